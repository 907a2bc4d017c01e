//! Serves HTTP/1.1 on every listener; over TLS, if configured, also HTTP/2, as kube-apiserver does.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::auth::Tokens;
use super::context::ServerContext;
use super::fault_control::{misbehave, misbehave_before};
use super::faults::{ServerFault, ServerRefusal};
use super::gate::{Gate, GatedStream};
use super::relay::{self, Upstream};
use super::request;
use super::shared::SharedStore;
use super::tls::{HTTP_2, Tls};
use super::watch::WatchTimes;
use crate::objects::ObjectKind;

const HANDSHAKE: Duration = Duration::from_secs(10);
/// Pause after a failed accept, for example without a free file descriptor.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// Options of an [`ApiServer`].
#[derive(Clone, Default)]
pub struct ServeOptions {
    /// The accepted bearer tokens; `None` disables authentication.
    pub tokens: Option<Tokens>,
    /// Certificates for HTTPS; `None` serves plain HTTP.
    pub tls: Option<Tls>,
    /// Length of watches and time between bookmarks.
    pub watches: WatchTimes,
    /// Relays requests to this API server, which must know the tokens.
    pub upstream: Option<Upstream>,
}

/// A running API server; dropping it closes all its connections.
pub struct ApiServer {
    service: Arc<ConnectionService>,
    addresses: Vec<SocketAddr>,
    /// One gate per listener, in the same order.
    gates: Vec<Arc<Gate>>,
    _listeners: JoinSet<()>,
}

impl ApiServer {
    /// Serves on `listeners`. Each may serve another network namespace, because a socket belongs to the namespace that
    /// created it. Call on a tokio runtime.
    pub fn start(
        shared: SharedStore,
        listeners: impl IntoIterator<Item = TcpListener>,
        options: ServeOptions,
    ) -> io::Result<Self> {
        let ServeOptions { tokens, tls, watches, upstream } = options;
        let context = ServerContext { shared, tokens, times: watches };
        let service = Arc::new(ConnectionService { context, upstream, tls });
        let (mut tasks, mut addresses, mut gates) = (JoinSet::new(), Vec::new(), Vec::new());
        for listener in listeners {
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            let (listener, gate) = (tokio::net::TcpListener::from_std(listener)?, Arc::new(Gate::default()));
            gates.push(Arc::clone(&gate));
            tasks.spawn(Arc::clone(&service).listen(listener, gate));
        }
        Ok(ApiServer { service, addresses, gates, _listeners: tasks })
    }

    /// The listeners' addresses, in the order given to [`ApiServer::start`].
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The URL of the API at `address`.
    pub fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.service.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }

    /// The served objects.
    pub fn store(&self) -> &SharedStore {
        &self.service.context.shared
    }

    /// The `resourceVersion` of the newest change.
    pub fn resource_version(&self) -> u64 {
        self.store().version()
    }

    /// Whether a fault withholds changes from clients.
    pub fn withholds(&self) -> bool {
        self.store().inspect(|state| state.faults.withholds_changes())
    }

    /// Number of hostile answers, and of their bytes that clients read.
    pub fn hostile_answers(&self) -> (usize, usize) {
        self.store().inspect(|state| (state.faults.hostile_answers, state.faults.hostile_bytes))
    }

    /// Stops or resumes the traffic of a listener without closing connections; the kernel still accepts new ones.
    pub fn cut_off(&self, listener: usize, cut_off: bool) {
        if let Some(gate) = self.gates.get(listener) {
            gate.set_shut(cut_off);
        }
    }

    /// Begins or ends a fault.
    pub fn misbehave(&self, what: ServerFault) {
        misbehave(self.store(), what);
    }

    /// Like [`ApiServer::misbehave`] for a relay; `version_of` is the newest `resourceVersion` that the upstream has sent
    /// to watches of a kind.
    pub fn misbehave_before(&self, what: ServerFault, version_of: impl Fn(ObjectKind) -> u64) {
        misbehave_before(self.store(), what, version_of);
    }
}

struct ConnectionService {
    context: ServerContext,
    upstream: Option<Upstream>,
    tls: Option<Tls>,
}

impl ConnectionService {
    async fn listen(self: Arc<Self>, listener: tokio::net::TcpListener, gate: Arc<Gate>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(Arc::clone(&self).connection(stream, Arc::clone(&gate)))),
                    Err(_) => sleep(AFTER_ERROR).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, gate: Arc<Gate>) {
        // Waits, because a shut gate lets no reset through.
        gate.open().await;
        if self.resets() {
            // Closing a socket with linger time zero sends a reset.
            let _ = stream.set_zero_linger();
            return;
        }
        let _ = stream.set_nodelay(true);
        tokio::select! {
            () = self.serve(GatedStream::new(stream, Arc::clone(&gate))) => {}
            () = self.wait_for_reset(&gate) => {}
        }
    }

    async fn serve(self: &Arc<Self>, stream: GatedStream<TcpStream>) {
        match &self.tls {
            None => self.http(stream, false).await,
            Some(tls) => {
                if let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.acceptor().accept(stream)).await {
                    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
                    self.http(stream, is_http2).await;
                }
            }
        }
    }

    async fn http(self: &Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin, is_http2: bool) {
        let server = Arc::clone(self);
        let service = service_fn(move |request| {
            let server = Arc::clone(&server);
            async move {
                let response = match &server.upstream {
                    None => request::answer(&server.context, request).await,
                    Some(upstream) => relay::answer(&server.context, upstream, request).await,
                };
                Ok::<_, Infallible>(response)
            }
        });
        let stream = TokioIo::new(stream);
        let _ = if is_http2 {
            http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await
        } else {
            http1::Builder::new().serve_connection(stream, service).await
        };
    }

    fn resets(&self) -> bool {
        self.context.shared.inspect(|state| state.faults.refusal) == Some(ServerRefusal::Reset)
    }

    async fn wait_for_reset(&self, gate: &Gate) {
        let mut ticks = self.context.shared.ticks();
        while gate.is_shut() || !self.resets() {
            if ticks.changed().await.is_err() {
                return;
            }
        }
    }
}
