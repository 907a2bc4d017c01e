//! One client for all watches. Its files and its plugin are read on a thread of their own: however long they hang, health
//! checks, syncs and the end of the program go on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use kube::Client;
use kube::client::ClientBuilder;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::debug;

use super::super::problem::one_line;
use super::access::{Access, AccessError};
use crate::metrics::Requests;

/// How long a request waits for credentials.
const PATIENCE: Duration = Duration::from_secs(10);
/// Credentials that could not be renewed are tried to be renewed again after so long.
const RENEW_AGAIN: Duration = Duration::from_secs(60);

/// Makes clients, and keeps the newest; copies share it.
#[derive(Clone)]
pub struct Connector {
    access: Access,
    requests: Requests,
    patience: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Grows with each client.
    generation: u64,
    client: Option<Made>,
    /// A thread that makes the next one. There is never a second: one that hangs for ever is enough.
    making: Option<Making>,
    /// What that thread does at the moment.
    step: Arc<Mutex<String>>,
}

#[derive(Clone)]
struct Made {
    client: Client,
    renew: Option<Instant>,
}

type Making = Shared<BoxFuture<'static, Result<Made, AccessError>>>;

/// A client, and which one it is.
#[derive(Clone)]
pub(super) struct Connection {
    pub client: Client,
    generation: u64,
}

impl Connector {
    /// Clients for this access; their requests are counted.
    pub fn new(access: Access, requests: &Requests) -> Connector {
        Connector { access, requests: requests.clone(), patience: PATIENCE, state: Arc::default() }
    }

    /// A request waits so long for credentials, instead of ten seconds.
    pub fn with_patience(self, patience: Duration) -> Connector {
        Connector { patience, ..self }
    }

    /// For messages.
    pub(super) fn describe(&self) -> String {
        self.access.describe()
    }

    /// The client, made anew where there is none or its credentials are about to expire. What fails to be renewed goes on with
    /// what is there: a token may be valid for longer than its file can be read (kubernetes#68164).
    pub(super) async fn connect(&self) -> Result<Connection, AccessError> {
        let making = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(made) = &state.client
                && made.renew.is_none_or(|renew| Instant::now() < renew)
            {
                return Ok(Connection { client: made.client.clone(), generation: state.generation });
            }
            let step = Arc::clone(&state.step);
            state.making.get_or_insert_with(|| self.make(step)).clone()
        };
        let made = timeout(self.patience, making).await;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match made {
            Ok(made) => {
                // The first to hear of it takes it down.
                if state.making.as_ref().is_some_and(|making| making.peek().is_some()) {
                    state.making = None;
                    if let Ok(made) = &made {
                        state.generation += 1;
                        state.client = Some(made.clone());
                    }
                }
                made
            }
            Err(_) => Err(self.late(state.step.lock().unwrap_or_else(PoisonError::into_inner).clone())),
        };
        let generation = state.generation;
        match (made, &mut state.client) {
            (Ok(made), _) => Ok(Connection { client: made.client, generation }),
            (Err(error), Some(old)) => {
                debug!(%error, "credentials could not be renewed: going on with the old ones");
                old.renew = Some(Instant::now() + RENEW_AGAIN);
                Ok(Connection { client: old.client.clone(), generation })
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Gives up a client that a request failed with: files and plugin are read anew for the next one.
    pub(super) fn give_up(&self, failed: &Connection) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.generation == failed.generation {
            state.client = None;
        }
    }

    fn late(&self, step: String) -> AccessError {
        AccessError::Late { step, after: self.patience }
    }

    fn make(&self, step: Arc<Mutex<String>>) -> Making {
        let (access, requests) = (self.access.clone(), self.requests.clone());
        let begun = move |what: String| *step.lock().unwrap_or_else(PoisonError::into_inner) = what;
        let made = spawn_blocking(move || {
            let resolved = access.resolve(&begun)?;
            begun("reading certificates".to_owned());
            let failed = |cause: String| AccessError::Client { cause };
            let host = resolved.config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
            let builder =
                ClientBuilder::try_from(resolved.config).map_err(|error| failed(one_line(&error.to_string())))?;
            Ok(Made { client: builder.with_layer(&requests.to(&host)).build(), renew: resolved.renew })
        });
        let ended = |result: Result<_, tokio::task::JoinError>| {
            result.unwrap_or_else(|error| Err(AccessError::Client { cause: one_line(&error.to_string()) }))
        };
        made.map(ended).boxed().shared()
    }
}
