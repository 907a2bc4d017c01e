//! A small HTTP server: one handler per listener, GET and HEAD only. It knows nothing of what is served.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

/// What is sent back.
pub type Reply = Response<Full<Bytes>>;
/// A reply to wait for.
pub type Answer = Pin<Box<dyn Future<Output = Reply> + Send>>;
/// What a client asks for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'r> {
    /// The path.
    pub path: &'r str,
    /// The header `Accept`; empty where there is none.
    pub accept: &'r str,
}
/// Answers a question.
pub type Handler = Arc<dyn Fn(Asked<'_>) -> Answer + Send + Sync>;

/// How long a client may take over the head of its request. Load balancers ask within milliseconds; without a bound,
/// clients that send nothing hold descriptors for ever.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, so that a lack of descriptors does not become a busy loop as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {purpose}: {source}")]
pub struct ListenError {
    /// Where.
    pub address: SocketAddr,
    /// Such as `/healthz`, or the health check of a Service.
    pub purpose: String,
    /// Why not.
    pub source: std::io::Error,
}

/// A listener and the task that serves it; both end with it, and so do the connections: one that is kept alive must
/// not go on answering for a Service that is gone.
#[derive(Debug)]
pub struct Server {
    task: JoinHandle<()>,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts to listen; must be called on a tokio runtime. With `v6_only`, an IPv6 wildcard leaves the IPv4 one to
    /// another listener on the same port.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn bind(address: SocketAddr, v6_only: bool, purpose: &str, handler: Handler) -> Result<Server, ListenError> {
        let listener =
            listen(address, v6_only).map_err(|source| ListenError { address, purpose: purpose.into(), source })?;
        let address = listener.local_addr().unwrap_or(address);
        Ok(Server { task: tokio::spawn(serve(listener, handler)), address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A handler that looks at the path alone, and need not wait for anything.
pub fn at_once(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Handler {
    Arc::new(move |asked| Box::pin(std::future::ready(answer(asked.path))))
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
                let answer = dispatch(&request, &handler);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
            // A client that breaks off is its own business.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn dispatch(request: &Request<Incoming>, handler: &Handler) -> Answer {
    match *request.method() {
        Method::GET | Method::HEAD => {
            let accept: Vec<&str> =
                request.headers().get_all(ACCEPT).iter().filter_map(|one| one.to_str().ok()).collect();
            handler(Asked { path: request.uri().path(), accept: &accept.join(",") })
        }
        _ => {
            let mut reply = json(StatusCode::METHOD_NOT_ALLOWED, &serde_json::json!({ "error": "method not allowed" }));
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            Box::pin(std::future::ready(reply))
        }
    }
}

/// A JSON reply.
pub fn json(status: StatusCode, body: &serde_json::Value) -> Reply {
    reply(status, "application/json", body.to_string())
}

/// A reply that browsers must not take for anything else than it says.
pub fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply.headers_mut().insert("X-Content-Type-Options", HeaderValue::from_static("nosniff"));
    reply
}

/// For tests: one request, and everything that comes back.
#[cfg(test)]
pub(crate) async fn ask(address: SocketAddr, request: &str) -> std::io::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let text = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    fn server() -> Server {
        let handler = at_once(|path| match path {
            "/here" => reply(StatusCode::OK, "text/plain", "yes"),
            _ => json(StatusCode::NOT_FOUND, &serde_json::json!({})),
        });
        Server::bind("127.0.0.1:0".parse().unwrap(), false, "/here", handler).unwrap()
    }

    #[tokio::test]
    async fn only_get_and_head_are_answered() {
        let server = server();
        for (request, status) in [("GET /here", 200), ("GET /", 404), ("POST /here", 405), ("DELETE /here", 405)] {
            let reply = ask(server.address(), request).await.unwrap();
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {reply}");
        }
        let head = ask(server.address(), "HEAD /here").await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[tokio::test]
    async fn connections_end_with_their_server() {
        let server = server();
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(b"GET /here HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut buffer = [0; 4096];
        assert!(stream.read(&mut buffer).await.unwrap() > 0);
        drop(server);
        let end = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut buffer)).await;
        assert!(matches!(end, Ok(Ok(0) | Err(_))), "kept alive: {end:?}");
    }

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let server = server();
        let again = Server::bind(server.address(), false, "/here", at_once(|_| unreachable!()));
        let error = again.unwrap_err().to_string();
        assert!(error.contains(&server.address().to_string()) && error.contains("/here"), "{error}");
    }
}
