//! HTTP server: one handler per listener, GET and HEAD only; connections, sizes and times are bounded.

mod connection_limit;
mod stream;

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

pub use connection_limit::ConnectionLimit;
use connection_limit::ConnectionSlot;
use stream::TimedStream;

pub type HttpReply = Response<Full<Bytes>>;
pub type ReplyFuture = Pin<Box<dyn Future<Output = HttpReply> + Send>>;
#[derive(Debug, Clone, Copy)]
pub struct GetRequest<'r> {
    pub path: &'r str,
    /// The `Accept` headers, joined by commas; empty if absent.
    pub accept: &'r str,
}
pub type Handler = Arc<dyn Fn(GetRequest<'_>) -> ReplyFuture + Send + Sync>;

/// The time for a request's head: silent clients must not hold descriptors forever.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest head of a request, and largest pipelined answers, in bytes. hyper closes a connection with an unread body.
const BUFFER: usize = 16 << 10;
/// The pause after a failed accept, to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {purpose}: {source}")]
pub struct ListenError {
    pub address: SocketAddr,
    pub purpose: String,
    pub source: std::io::Error,
}

/// Dropping the value closes its connections, which must not answer for a deleted Service.
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
    /// Needs a tokio runtime. A wildcard address listens in both families, unless `one_family`.
    pub fn bind(
        address: SocketAddr,
        one_family: bool,
        purpose: &str,
        limit: &ConnectionLimit,
        handler: Handler,
    ) -> Result<Server, ListenError> {
        let listener =
            listen(address, one_family).map_err(|source| ListenError { address, purpose: purpose.into(), source })?;
        let address = listener.local_addr().unwrap_or(address);
        Ok(Server { task: tokio::spawn(serve(listener, limit.clone(), handler)), address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

pub fn immediate(answer: impl Fn(&str) -> HttpReply + Send + Sync + 'static) -> Handler {
    Arc::new(move |asked| Box::pin(std::future::ready(answer(asked.path))))
}

/// Fails as [`Server::bind`] in both families would. Needs a tokio runtime.
pub fn try_listen(address: SocketAddr, purpose: &str) -> Result<(), ListenError> {
    listen(address, false).map(drop).map_err(|source| ListenError { address, purpose: purpose.into(), source })
}

fn listen(address: SocketAddr, one_family: bool) -> std::io::Result<TcpListener> {
    if one_family || !address.ip().is_unspecified() {
        open(address, true)
    } else {
        in_both_families(address.port(), open)
    }
}

/// Opens a socket for both families as Go does (`favoriteAddrFamily` in src/net/ipsock_posix.go); for IPv4 if the
/// kernel has no IPv6.
fn in_both_families<T>(port: u16, open: impl Fn(SocketAddr, bool) -> std::io::Result<T>) -> std::io::Result<T> {
    match open(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port), false) {
        Err(error) if lacks_ipv6(&error) => open(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), true),
        opened => opened,
    }
}

/// With `ipv6.disable=1` IPv6 sockets cannot be created, or not be bound (`inet6_bind` in net/ipv6/af_inet6.c).
fn lacks_ipv6(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

fn open(address: SocketAddr, v6_only: bool) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of the previous process must not delay a restart.
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        // The node may have changed the default (`net.ipv6.bindv6only`).
        setsockopt(&socket, sockopt::Ipv6V6Only, &v6_only)?;
    }
    socket.bind(address)?;
    socket.listen(128)
}

async fn serve(listener: TcpListener, limit: ConnectionLimit, handler: Handler) {
    let number = limit.listener();
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // The client closed the connection before it was accepted (accept(2)).
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => continue,
            Err(error) => {
                limit.shortage(&error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = limit.acquire().await else { return };
        let handler = Arc::clone(&handler);
        limit.spawn(place, number, &mut connections, |slot| serve_connection(stream, slot, handler));
    }
}

/// Frees the slot after the stream is closed.
async fn serve_connection(stream: TcpStream, slot: Arc<ConnectionSlot>, handler: Handler) {
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let answering = Arc::clone(&slot).begin();
        let answer = dispatch(&request, &handler);
        async move {
            let reply = answer.await;
            drop(answering);
            Ok::<_, Infallible>(reply)
        }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(BUFFER);
    let _ = http.serve_connection(TokioIo::new(TimedStream::new(stream)), service).await;
}

fn dispatch(request: &Request<Incoming>, handler: &Handler) -> ReplyFuture {
    match *request.method() {
        Method::GET | Method::HEAD => {
            let accept: Vec<&str> =
                request.headers().get_all(ACCEPT).iter().filter_map(|one| one.to_str().ok()).collect();
            handler(GetRequest { path: request.uri().path(), accept: &accept.join(",") })
        }
        _ => {
            let mut reply = json(StatusCode::METHOD_NOT_ALLOWED, &serde_json::json!({ "error": "method not allowed" }));
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            Box::pin(std::future::ready(reply))
        }
    }
}

pub fn json(status: StatusCode, body: &serde_json::Value) -> HttpReply {
    reply(status, "application/json", body.to_string())
}

/// Returns a reply whose content type browsers must not guess.
pub fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> HttpReply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply.headers_mut().insert("X-Content-Type-Options", HeaderValue::from_static("nosniff"));
    reply
}

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
        let handler = immediate(|path| match path {
            "/here" => reply(StatusCode::OK, "text/plain", "yes"),
            _ => json(StatusCode::NOT_FOUND, &serde_json::json!({})),
        });
        Server::bind("127.0.0.1:0".parse().unwrap(), false, "/here", &ConnectionLimit::new("/here", 3), handler)
            .unwrap()
    }

    async fn send_until_refused(stream: &mut TcpStream) -> std::io::Error {
        let requests = "GET /here HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
        loop {
            if let Err(error) = stream.write_all(requests.as_bytes()).await {
                return error;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_is_closed() {
        let server = server();
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let refused = tokio::time::timeout(10 * stream::WRITE_TIMEOUT, send_until_refused(&mut stream)).await;
        assert!(refused.is_ok(), "it goes on");
    }

    #[tokio::test]
    async fn a_new_client_replaces_the_longest_idle_one() {
        let server = server();
        let mut old = Vec::new();
        for _ in 0..3 {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            stream.write_all(b"GET /here HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            old.push(stream);
        }
        // The first client sends a request, so the second one is idle longest.
        old[0].write_all(b"GET /here HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert!(old[0].read(&mut [0; 4096]).await.unwrap() > 0);
        assert!(ask(server.address(), "GET /here").await.unwrap().ends_with("yes"));
        assert!(matches!(old[1].read(&mut [0; 1]).await, Ok(0) | Err(_)), "closed");
        for index in [0, 2] {
            old[index].write_all(b"GET /here HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            assert!(old[index].read(&mut [0; 4096]).await.unwrap() > 0, "{index} goes on");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_its_body_is_closed() {
        let server = server();
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(b"GET /here HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n").await.unwrap();
        let mut reply = String::new();
        let end = tokio::time::timeout(10 * HEAD_TIMEOUT, stream.read_to_string(&mut reply)).await;
        assert!(end.is_ok() && reply.starts_with("HTTP/1.1 200 "), "{end:?} {reply}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_closed() {
        let server = server();
        for begin in ["", "GET /here HTTP/1.1\r\nHost: x\r\n\r\n", "GET /he"] {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            stream.write_all(begin.as_bytes()).await.unwrap();
            let end = tokio::time::timeout(10 * HEAD_TIMEOUT, stream.read_to_end(&mut Vec::new())).await;
            assert!(end.is_ok(), "{begin:?}");
        }
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
    async fn dropping_a_server_closes_its_connections() {
        let server = server();
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(b"GET /here HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut buffer = [0; 4096];
        assert!(stream.read(&mut buffer).await.unwrap() > 0);
        drop(server);
        let end = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut buffer)).await;
        assert!(matches!(end, Ok(Ok(0) | Err(_))), "kept alive: {end:?}");
    }

    #[test]
    fn a_wildcard_address_listens_in_both_families() {
        let refusing = |error: i32| {
            move |address: SocketAddr, v6_only: bool| match address.is_ipv6() {
                true => Err(std::io::Error::from_raw_os_error(error)),
                false => Ok((address.to_string(), v6_only)),
            }
        };
        let opened = in_both_families(7, |address, v6_only| Ok((address, v6_only))).unwrap();
        assert_eq!(opened, ("[::]:7".parse().unwrap(), false));
        for error in [libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL] {
            assert_eq!(in_both_families(7, refusing(error)).unwrap().0, "0.0.0.0:7");
        }
        let taken = in_both_families(7, refusing(libc::EADDRINUSE)).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse, "half of it would be taken for all of it");
    }

    #[tokio::test]
    async fn an_address_in_use_is_an_error_with_the_address() {
        let server = server();
        let again = Server::bind(
            server.address(),
            false,
            "/here",
            &ConnectionLimit::new("/here", 1),
            immediate(|_| unreachable!()),
        );
        let error = again.unwrap_err().to_string();
        assert!(error.contains(&server.address().to_string()) && error.contains("/here"), "{error}");
    }
}
