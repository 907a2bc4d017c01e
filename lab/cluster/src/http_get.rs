use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use svclab_netns::namespace::Namespace;
use svclab_netns::sockets;

/// In bytes.
const MAX_BODY: usize = 1 << 20;

/// Response to [`super::Cluster::http_get`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// Headers in the received order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body with invalid UTF-8 replaced.
    pub body: String,
}

/// Sends a GET without time limit, which the caller sets.
pub(super) async fn get(namespace: &Namespace, address: SocketAddr, path: &str) -> io::Result<HttpAnswer> {
    let socket = namespace.run(move || sockets::tcp(address)).await;
    let socket = socket.map_err(io::Error::other)??;
    let stream = socket.connect(address).await?;
    let failed = |error: hyper::Error| io::Error::new(ErrorKind::InvalidData, format!("{address}: {error}"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let request = Request::get(path).header(header::HOST, address.to_string()).header(header::CONNECTION, "close");
    let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(io::Error::other)?.to_bytes();
        let headers = head.headers.iter();
        let text = |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = headers.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        Ok(HttpAnswer { status: head.status.as_u16(), headers, body: String::from_utf8_lossy(&body).into_owned() })
    };
    // Ignores the connection's error, because the response fails with it.
    let (answer, _) = tokio::join!(answer, connection);
    answer
}
