//! A small HTTP server: one handler per listener, GET and HEAD only.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;

use super::{HealthState, ListenError};

pub(super) type Reply = Response<Full<Bytes>>;
/// Answers a path.
pub(super) type Handler = Arc<dyn Fn(&str) -> Reply + Send + Sync>;

/// A listener and the task that serves it; both end with it.
#[derive(Debug)]
pub(super) struct Server {
    task: JoinHandle<()>,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(super) fn bind(address: SocketAddr, purpose: &str, handler: Handler) -> Result<Server, ListenError> {
        let listener = listen(address).map_err(|source| ListenError { address, purpose: purpose.into(), source })?;
        let address = listener.local_addr().unwrap_or(address);
        Ok(Server { task: tokio::spawn(serve(listener, handler)), address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for connections of the process before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(128)
}

async fn serve(listener: TcpListener, handler: Handler) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: let others close theirs.
            tokio::task::yield_now().await;
            continue;
        };
        let handler = Arc::clone(&handler);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(|request: Request<Incoming>| {
                let reply = dispatch(&request, &handler);
                async move { Ok::<_, Infallible>(reply) }
            });
            // A client that breaks off is its own business.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn dispatch(request: &Request<Incoming>, handler: &Handler) -> Reply {
    match *request.method() {
        Method::GET | Method::HEAD => handler(request.uri().path()),
        _ => {
            let mut reply = json(StatusCode::METHOD_NOT_ALLOWED, &serde_json::json!({ "error": "method not allowed" }));
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            reply
        }
    }
}

/// A JSON reply that browsers must not take for anything else.
pub(super) fn json(status: StatusCode, body: &serde_json::Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(body.to_string())));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply.headers_mut().insert("X-Content-Type-Options", HeaderValue::from_static("nosniff"));
    reply
}

/// Serves `/healthz` and `/livez`.
#[derive(Debug)]
pub struct HealthzServer(Server);

impl HealthzServer {
    /// Starts to listen; must be called on a tokio runtime.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn bind(address: SocketAddr, state: HealthState) -> Result<HealthzServer, ListenError> {
        let handler: Handler = Arc::new(move |path| match path {
            // Whether the node is being deleted, in which the two differ upstream, is not known without the API.
            "/healthz" | "/livez" => about_the_proxy(&state),
            _ => json(StatusCode::NOT_FOUND, &serde_json::json!({ "error": "try /healthz or /livez" })),
        });
        Server::bind(address, "/healthz", handler).map(HealthzServer)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

fn about_the_proxy(state: &HealthState) -> Reply {
    let health = state.look();
    let status = if health.healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::json!({
        "lastUpdated": health.last_updated.map(rfc3339),
        "currentTime": rfc3339(SystemTime::now()),
        "nodeEligible": true,
        "appliedResourceVersion": health.applied_resource_version,
    });
    json(status, &body)
}

fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}
