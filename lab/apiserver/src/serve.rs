//! Sockets: accepts connections on every listener and serves HTTP/1.1 on each, with TLS where that was asked for.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::auth::Tokens;
use super::faults::{Fault, Refusal};
use super::gate::{Gate, Gated};
use super::misbehave::{misbehave, misbehave_before};
use super::relay::Upstream;
use super::request::{Context, answer};
use super::shared::SharedStore;
use super::tls::Tls;
use super::watch::WatchTimes;

/// A client that does not finish its handshake by then is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long to wait after a connection could not be accepted (no file descriptors left, for example).
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// How the API is served.
#[derive(Clone, Default)]
pub struct ServeOptions {
    /// Who may ask; `None` lets everybody.
    pub tokens: Option<Tokens>,
    /// Serve HTTPS; `None` is plain HTTP.
    pub tls: Option<Tls>,
    /// Length of watches and time between bookmarks.
    pub watches: WatchTimes,
    /// Another API server, whose answers are passed on instead of this one's own; it must know the tokens as well.
    pub upstream: Option<Upstream>,
}

/// A running API server; it ends, with all its connections, when this is dropped.
pub struct ApiServer {
    shared: SharedStore,
    addresses: Vec<SocketAddr>,
    scheme: &'static str,
    /// One for each listener, in their order.
    gates: Vec<Arc<Gate>>,
    _listeners: JoinSet<()>,
}

impl ApiServer {
    /// Serves the objects of `shared` on every one of `listeners`, which the caller has bound wherever it likes: a
    /// socket belongs to the network namespace that it was made in. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// When a listener cannot be handed to the runtime.
    pub fn start(
        shared: SharedStore,
        listeners: impl IntoIterator<Item = TcpListener>,
        options: ServeOptions,
    ) -> io::Result<Self> {
        let ServeOptions { tokens, tls, watches, upstream } = options;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let context = Arc::new(Context { shared: shared.clone(), tokens, times: watches, upstream });
        let (mut tasks, mut addresses, mut gates) = (JoinSet::new(), Vec::new(), Vec::new());
        for listener in listeners {
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            let (listener, gate) = (tokio::net::TcpListener::from_std(listener)?, Arc::new(Gate::default()));
            gates.push(Arc::clone(&gate));
            tasks.spawn(listen(listener, gate, Arc::clone(&context), tls.clone()));
        }
        Ok(ApiServer { shared, addresses, scheme, gates, _listeners: tasks })
    }

    /// What the listeners are bound to.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The URL that `address` is served under.
    pub fn url(&self, address: SocketAddr) -> String {
        format!("{}://{address}", self.scheme)
    }

    /// The objects.
    pub fn store(&self) -> &SharedStore {
        &self.shared
    }

    /// The version of the newest change.
    pub fn resource_version(&self) -> u64 {
        self.shared.version()
    }

    /// Whether it keeps changes from its clients at the moment, by misbehaviour.
    pub fn withholds(&self) -> bool {
        self.shared.look(|state| state.faults.withhold())
    }

    /// How many requests were given the [`HostileAnswer`](super::HostileAnswer), and how many bytes of it were taken.
    pub fn hostile_answers(&self) -> (usize, usize) {
        self.shared.look(|state| (state.faults.hostile_answers, state.faults.hostile_bytes))
    }

    /// Cuts the clients of listener number `listener` (from 0, in the order given at the start) off, or lets them
    /// through again. Meanwhile not a byte passes, without notice: connections that stand fall silent, new ones get as
    /// far as the kernel takes them and hear nothing.
    pub fn cut_off(&self, listener: usize, cut_off: bool) {
        if let Some(gate) = self.gates.get(listener) {
            gate.shut(cut_off);
        }
    }

    /// Does something wrong, at once.
    pub fn misbehave(&self, what: Fault) {
        misbehave(&self.shared, what);
    }

    /// Does something wrong in front of another server, whose newest version is `version`.
    pub fn misbehave_before(&self, what: Fault, version: u64) {
        misbehave_before(&self.shared, what, version);
    }
}

async fn listen(listener: tokio::net::TcpListener, gate: Arc<Gate>, context: Arc<Context>, tls: Option<Tls>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&gate), Arc::clone(&context), tls.clone()));
                }
                Err(_) => sleep(AFTER_ERROR).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, gate: Arc<Gate>, context: Arc<Context>, tls: Option<Tls>) {
    // Not even a reset gets through.
    gate.open().await;
    if refuses(&context) {
        // Closing with a zero linger time sends a reset.
        let _ = stream.set_zero_linger();
        return;
    }
    let _ = stream.set_nodelay(true);
    let reset = reset(Arc::clone(&gate), Arc::clone(&context));
    let stream = Gated::new(stream, gate);
    let serve = async {
        match tls {
            None => http(stream, context).await,
            Some(tls) => {
                if let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.acceptor().accept(stream)).await {
                    http(stream, context).await;
                }
            }
        }
    };
    tokio::select! {
        () = serve => {}
        () = reset => {}
    }
}

async fn http(stream: impl AsyncRead + AsyncWrite + Unpin, context: Arc<Context>) {
    let service = service_fn(move |request| answer(Arc::clone(&context), request));
    // There is no peer left to report a broken connection to.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn refuses(context: &Context) -> bool {
    context.shared.look(|state| state.faults.refusal) == Some(Refusal::Reset)
}

/// Returns once connections are to be reset, and can be.
async fn reset(gate: Arc<Gate>, context: Arc<Context>) {
    let mut ticks = context.shared.ticks();
    while gate.is_shut() || !refuses(&context) {
        if ticks.changed().await.is_err() {
            return;
        }
    }
}
