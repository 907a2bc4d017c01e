//! All watches share one client. A thread of its own reads files and runs the plugin, so a hang delays nothing else.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::connect::capture_connection;
use kube::Client;
use kube::client::Body;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::debug;

use super::super::problem::one_line;
use super::access::{Access, AccessError, AccessIdentity, ClusterIdentity};
use super::client::client;
use super::media_type::AcceptedTypes;
use super::rate_limit::RateLimit;
use crate::metrics::{Requests, RequestsTo};

const PATIENCE: Duration = Duration::from_secs(10);
const RENEW_AGAIN: Duration = Duration::from_secs(60);
/// How long other requests wait for the first one of a client to open the connection that they share.
const OPENING: Duration = Duration::from_secs(1);

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

impl ConnectorState {
    /// Keeps the old client, and with it the connection, if the credentials are the same.
    fn keep(&mut self, made: CreatedClient) -> CreatedClient {
        let kept = match self.client.take() {
            Some(old) if old.identity == made.identity => CreatedClient { renew: made.renew, ..old },
            _ => {
                self.generation += 1;
                made
            }
        };
        self.cluster = Some(kept.cluster.clone());
        self.client = Some(kept.clone());
        kept
    }
}

#[derive(Clone)]
struct CreatedClient {
    client: Client,
    cluster: ClusterIdentity,
    identity: AccessIdentity,
    opening: Arc<Opening>,
    requests: RequestsTo,
    renew: Option<Instant>,
}

/// Without it, requests that begin together each open a connection.
#[derive(Default)]
struct Opening {
    turn: AsyncMutex<()>,
    is_open: AtomicBool,
}

type PendingClient = Shared<BoxFuture<'static, Result<CreatedClient, AccessError>>>;

#[derive(Clone)]
pub(super) struct ApiConnection {
    client: Client,
    opening: Arc<Opening>,
    pub accepted: AcceptedTypes,
    limit: Option<Arc<RateLimit>>,
    requests: RequestsTo,
    generation: u64,
}

impl ApiConnection {
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        self.in_turn(request, |request| self.client.send(request)).await
    }

    pub(super) async fn request_text(&self, request: Request<Vec<u8>>) -> Result<String, kube::Error> {
        self.in_turn(request, |request| self.client.request_text(request)).await
    }

    /// Sends a request; while no connection is open, no other one begins until this one has its connection.
    async fn in_turn<B, T, A: Future<Output = Result<T, kube::Error>>>(
        &self,
        mut request: Request<B>,
        send: impl FnOnce(Request<B>) -> A,
    ) -> Result<T, kube::Error> {
        let mut connection = capture_connection(&mut request);
        let mut answer = pin!(send(request));
        let is_open = || self.opening.is_open.load(Ordering::Acquire);
        let turn = if is_open() { None } else { timeout(OPENING, self.opening.turn.lock()).await.ok() };
        let turn = turn.filter(|_| !is_open());
        let early = tokio::select! {
            biased;
            answer = &mut answer => Some(answer),
            _ = connection.wait_for_connection_metadata() => None,
        };
        self.opening.is_open.store(early.as_ref().is_none_or(Result::is_ok), Ordering::Release);
        drop(turn);
        let answer = match early {
            Some(answer) => answer,
            None => answer.await,
        };
        if answer.is_err() {
            self.broke();
        }
        answer
    }

    /// Says that an answer broke off: the next requests open the connection anew, one ahead of the others.
    pub(super) fn broke(&self) {
        self.opening.is_open.store(false, Ordering::Release);
    }

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
                    made.map(|made| state.keep(made))
                } else {
                    made
                }
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
        ApiConnection {
            client: made.client.clone(),
            opening: Arc::clone(&made.opening),
            accepted: self.accepted.clone(),
            limit: self.limit.clone(),
            requests: made.requests.clone(),
            generation,
        }
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
            let mut resolved = access.resolve(&begun)?;
            begun("reading certificates".to_owned());
            let config = &mut resolved.config;
            let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
            let (cluster, identity) = (ClusterIdentity::of(config), AccessIdentity::of(config));
            let requests = requests.to(&host);
            let made = client(config, &requests);
            let client = made.map_err(|error| AccessError::Client { cause: one_line(&error.to_string()) })?;
            Ok(CreatedClient { client, cluster, identity, opening: Arc::default(), requests, renew: resolved.renew })
        });
        let ended = |result: Result<_, tokio::task::JoinError>| {
            result.unwrap_or_else(|error| Err(AccessError::Client { cause: one_line(&error.to_string()) }))
        };
        made.map(ended).boxed().shared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unchanged_credentials_keep_the_client() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("kubeconfig");
        let access = Access::new(Some(path.clone()), None);
        let connector = Connector::new(access, &Requests::default());
        let mut state = ConnectorState::default();
        for (token, generation) in [("one", 1), ("one", 1), ("two", 2), ("two", 2), ("one", 3)] {
            let text = format!(
                "{{clusters: [{{name: c, cluster: {{server: \"http://10.0.0.1\"}}}}], users: [{{name: u, user: {{token: {token}}}}}], \
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}], current-context: c}}"
            );
            std::fs::write(&path, text).expect("written");
            let made = connector.make(Arc::default()).await.expect("a client");
            state.keep(made);
            assert_eq!(state.generation, generation, "{token}");
        }
    }
}
