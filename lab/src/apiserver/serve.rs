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
use super::faults::{Misbehaviour, Refusal, misbehave};
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
}

/// A running API server; it ends, with all its connections, when this is dropped.
pub struct ApiServer {
    shared: SharedStore,
    addresses: Vec<SocketAddr>,
    scheme: &'static str,
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
        let ServeOptions { tokens, tls, watches } = options;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let context = Arc::new(Context { shared: shared.clone(), tokens, times: watches });
        let (mut tasks, mut addresses) = (JoinSet::new(), Vec::new());
        for listener in listeners {
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            tasks.spawn(listen(tokio::net::TcpListener::from_std(listener)?, Arc::clone(&context), tls.clone()));
        }
        Ok(ApiServer { shared, addresses, scheme, _listeners: tasks })
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

    /// Does something wrong, at once.
    pub fn misbehave(&self, what: Misbehaviour) {
        misbehave(&self.shared, what);
    }
}

async fn listen(listener: tokio::net::TcpListener, context: Arc<Context>, tls: Option<Tls>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&context), tls.clone()));
                }
                Err(_) => sleep(AFTER_ERROR).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, context: Arc<Context>, tls: Option<Tls>) {
    if refuses(&context) {
        // Closing with a zero linger time sends a reset.
        let _ = stream.set_zero_linger();
        return;
    }
    let _ = stream.set_nodelay(true);
    let reset = reset(Arc::clone(&context));
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
    // A connection that broke has nobody to be told about it.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn refuses(context: &Context) -> bool {
    context.shared.look(|state| state.faults.refusal) == Some(Refusal::Reset)
}

/// Returns once connections are to be reset.
async fn reset(context: Arc<Context>) {
    let mut ticks = context.shared.ticks();
    while !refuses(&context) {
        if ticks.changed().await.is_err() {
            return;
        }
    }
}
