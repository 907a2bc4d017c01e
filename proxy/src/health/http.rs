//! A small HTTP server: one handler per listener, GET and HEAD only.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

use super::{HealthState, ListenError};

pub(super) type Reply = Response<Full<Bytes>>;
/// Answers a path.
pub(super) type Handler = Arc<dyn Fn(&str) -> Reply + Send + Sync>;

/// How long a client may take over the head of its request. Load balancers ask within milliseconds; without a bound,
/// clients that send nothing hold descriptors for ever.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, so that a lack of descriptors does not become a busy loop as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener and the task that serves it; both end with it, and so do the connections: one that is kept alive must
/// not go on answering for a Service that is gone.
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
    /// With `v6_only`, an IPv6 wildcard leaves the IPv4 one to another listener on the same port.
    pub(super) fn bind(
        address: SocketAddr,
        v6_only: bool,
        purpose: &str,
        handler: Handler,
    ) -> Result<Server, ListenError> {
        let listener =
            listen(address, v6_only).map_err(|source| ListenError { address, purpose: purpose.into(), source })?;
        let address = listener.local_addr().unwrap_or(address);
        Ok(Server { task: tokio::spawn(serve(listener, handler)), address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn listen(address: SocketAddr, v6_only: bool) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for connections of the process before.
    socket.set_reuseaddr(true)?;
    if v6_only && address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    socket.bind(address)?;
    socket.listen(128)
}

async fn serve(listener: TcpListener, handler: Handler) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let handler = Arc::clone(&handler);
        connections.spawn(async move {
            let service = hyper::service::service_fn(|request: Request<Incoming>| {
                let reply = dispatch(&request, &handler);
                async move { Ok::<_, Infallible>(reply) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
            // A client that breaks off is its own business.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
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
        Server::bind(address, false, "/healthz", handler).map(HealthzServer)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

fn about_the_proxy(state: &HealthState) -> Reply {
    let health = state.look();
    let status = if health.healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let versions = health.applied_resource_versions;
    let body = serde_json::json!({
        "lastUpdated": health.last_updated.map(rfc3339),
        "currentTime": rfc3339(SystemTime::now()),
        "nodeEligible": true,
        "appliedResourceVersion": health.applied_resource_version,
        "appliedResourceVersions": {
            "services": versions.services,
            "endpointslices": versions.endpoint_slices,
            "nodes": versions.nodes,
        },
    });
    json(status, &body)
}

fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ResourceVersions;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn ask(server: &HealthzServer, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let text = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply
    }

    fn server() -> (HealthzServer, HealthState) {
        let state = HealthState::new(Duration::from_secs(30));
        let server = HealthzServer::bind("127.0.0.1:0".parse().unwrap(), state.clone()).unwrap();
        (server, state)
    }

    #[tokio::test]
    async fn healthz_tells_the_applied_version() {
        let (server, state) = server();
        assert!(ask(&server, "GET /healthz").await.starts_with("HTTP/1.1 503 "), "before the first sync");
        let versions = ResourceVersions { services: Some("41".into()), ..ResourceVersions::default() };
        state.synced(Some("42".into()), versions);
        for path in ["/healthz", "/livez", "/healthz?verbose"] {
            let reply = ask(&server, &format!("GET {path}")).await;
            assert!(reply.starts_with("HTTP/1.1 200 "), "{path}: {reply}");
            let (head, body) = reply.split_once("\r\n\r\n").unwrap();
            assert!(head.contains("content-type: application/json"), "{head}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!((&body["appliedResourceVersion"], &body["nodeEligible"]), (&"42".into(), &true.into()));
            let versions = serde_json::json!({ "services": "41", "endpointslices": null, "nodes": null });
            assert_eq!(body["appliedResourceVersions"], versions);
            for time in ["lastUpdated", "currentTime"] {
                assert!(body[time].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{body}");
            }
        }
    }

    #[tokio::test]
    async fn other_paths_and_methods_are_refused() {
        let (server, state) = server();
        state.synced(None, ResourceVersions::default());
        for (request, status) in [("GET /", 404), ("GET /metrics", 404), ("POST /healthz", 405), ("DELETE /livez", 405)]
        {
            let reply = ask(&server, request).await;
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {reply}");
        }
        let head = ask(&server, "HEAD /healthz").await;
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[tokio::test]
    async fn connections_end_with_their_server() {
        let (server, _state) = server();
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut buffer = [0; 4096];
        assert!(stream.read(&mut buffer).await.unwrap() > 0);
        drop(server);
        let end = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut buffer)).await;
        assert!(matches!(end, Ok(Ok(0) | Err(_))), "kept alive: {end:?}");
    }

    #[test]
    fn an_address_in_use_is_named() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (server, state) = server();
            let error = HealthzServer::bind(server.address(), state).unwrap_err().to_string();
            assert!(error.contains(&server.address().to_string()) && error.contains("/healthz"), "{error}");
        });
    }
}
