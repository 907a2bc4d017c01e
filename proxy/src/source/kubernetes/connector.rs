//! All watches share one client. A thread of its own reads files and runs the plugin, so a hang delays nothing else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use hyper::Method;
use kube::Client;
use kube::client::ClientBuilder;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::debug;

use super::super::problem::one_line;
use super::access::{Access, AccessError, ClusterIdentity};
use super::media_type::AcceptedTypes;
use super::rate_limit::RateLimit;
use crate::metrics::{Requests, RequestsTo};

const PATIENCE: Duration = Duration::from_secs(10);
const RENEW_AGAIN: Duration = Duration::from_secs(60);

/// Clones share the newest client.
#[derive(Clone)]
pub struct Connector {
    access: Access,
    requests: Requests,
    accepted: AcceptedTypes,
    limit: Option<Arc<RateLimit>>,
    patience: Duration,
    state: Arc<Mutex<ConnectorState>>,
}

#[derive(Default)]
struct ConnectorState {
    generation: u64,
    client: Option<CreatedClient>,
    /// The cluster of the last client.
    cluster: Option<ClusterIdentity>,
    /// The client being made: at most one, even if it hangs.
    making: Option<PendingClient>,
    step: Arc<Mutex<String>>,
}

#[derive(Clone)]
struct CreatedClient {
    client: Client,
    cluster: ClusterIdentity,
    requests: RequestsTo,
    renew: Option<Instant>,
}

type PendingClient = Shared<BoxFuture<'static, Result<CreatedClient, AccessError>>>;

#[derive(Clone)]
pub(super) struct ApiConnection {
    pub client: Client,
    pub accepted: AcceptedTypes,
    limit: Option<Arc<RateLimit>>,
    requests: RequestsTo,
    generation: u64,
}

impl ApiConnection {
    /// Waits until the rate limit allows a request.
    pub(super) async fn admit(&self, method: &Method) {
        let Some(limit) = &self.limit else { return };
        let begun = Instant::now();
        limit.wait().await;
        self.requests.throttled(method, begun.elapsed());
    }
}

impl Connector {
    pub fn new(access: Access, requests: &Requests) -> Connector {
        Connector {
            access,
            requests: requests.clone(),
            accepted: AcceptedTypes::default(),
            limit: None,
            patience: PATIENCE,
            state: Arc::default(),
        }
    }

    pub fn accepting(self, accepted: AcceptedTypes) -> Connector {
        Connector { accepted, ..self }
    }

    /// Limits the requests of all clones.
    pub fn limited_to(self, qps: f32, burst: u32) -> Connector {
        Connector { limit: RateLimit::new(qps, burst).map(Arc::new), ..self }
    }

    pub fn with_patience(self, patience: Duration) -> Connector {
        Connector { patience, ..self }
    }

    pub(super) fn describe(&self) -> String {
        self.access.describe()
    }

    /// Creates a client if there is none or its credentials expire soon. If that fails, the old client stays in use: a
    /// token may be valid longer than its file is readable (kubernetes#68164).
    pub(super) async fn connect(&self) -> Result<ApiConnection, AccessError> {
        let making = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(made) = &state.client
                && made.renew.is_none_or(|renew| Instant::now() < renew)
            {
                return Ok(self.connection(made, state.generation));
            }
            let step = Arc::clone(&state.step);
            state.making.get_or_insert_with(|| self.make(step)).clone()
        };
        let made = timeout(self.patience, making).await;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match made {
            Ok(made) => {
                // The first waiter stores the result.
                if state.making.as_ref().is_some_and(|making| making.peek().is_some()) {
                    state.making = None;
                    if let Ok(made) = &made {
                        state.generation += 1;
                        state.cluster = Some(made.cluster.clone());
                        state.client = Some(made.clone());
                    }
                }
                made
            }
            Err(_) => Err(self.late(state.step.lock().unwrap_or_else(PoisonError::into_inner).clone())),
        };
        let generation = state.generation;
        match (made, &mut state.client) {
            (Ok(made), _) => Ok(self.connection(&made, generation)),
            (Err(error), Some(old)) => {
                debug!(%error, "credentials could not be renewed: going on with the old ones");
                old.renew = Some(Instant::now() + RENEW_AGAIN);
                Ok(self.connection(old, generation))
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Returns the cluster of the last client, even if it failed since.
    pub(super) fn cluster(&self) -> Option<ClusterIdentity> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).cluster.clone()
    }

    fn connection(&self, made: &CreatedClient, generation: u64) -> ApiConnection {
        let (client, requests) = (made.client.clone(), made.requests.clone());
        ApiConnection { client, accepted: self.accepted.clone(), limit: self.limit.clone(), requests, generation }
    }

    /// Drops a failed client, so that the next one reads files and runs the plugin again.
    pub(super) fn give_up(&self, failed: &ApiConnection) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.generation == failed.generation {
            state.client = None;
        }
    }

    fn late(&self, step: String) -> AccessError {
        AccessError::Late { step, after: self.patience }
    }

    fn make(&self, step: Arc<Mutex<String>>) -> PendingClient {
        let (access, requests) = (self.access.clone(), self.requests.clone());
        let begun = move |what: String| *step.lock().unwrap_or_else(PoisonError::into_inner) = what;
        let made = spawn_blocking(move || {
            let resolved = access.resolve(&begun)?;
            begun("reading certificates".to_owned());
            let failed = |cause: String| AccessError::Client { cause };
            let host = resolved.config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
            let cluster = ClusterIdentity::of(&resolved.config);
            let builder =
                ClientBuilder::try_from(resolved.config).map_err(|error| failed(one_line(&error.to_string())))?;
            let requests = requests.to(&host);
            let client = builder.with_layer(&requests).build();
            Ok(CreatedClient { client, cluster, requests, renew: resolved.renew })
        });
        let ended = |result: Result<_, tokio::task::JoinError>| {
            result.unwrap_or_else(|error| Err(AccessError::Client { cause: one_line(&error.to_string()) }))
        };
        made.map(ended).boxed().shared()
    }
}
