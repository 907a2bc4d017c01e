//! A GET as small as health checks need it: HTTP/1.0, so that nobody answers in chunks.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::netns::namespace::Namespace;
use crate::netns::sockets;

/// Longest answer that is read, in bytes.
const MAX_ANSWER: u64 = 1 << 20;

/// Answer to [`super::Cluster::http_get`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code, for example 200.
    pub status: u16,
    /// Header fields in the order received, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, bytes that are not UTF-8 replaced.
    pub body: String,
}

/// Asks for `path`; the caller limits the time.
pub(super) async fn get(namespace: &Namespace, address: SocketAddr, path: &str) -> io::Result<HttpAnswer> {
    let socket = namespace.run(move || sockets::tcp(address)).await;
    let socket = socket.map_err(io::Error::other)??;
    let mut stream = socket.connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
    parse(&String::from_utf8_lossy(&answer))
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("{address} does not speak HTTP")))
}

fn parse(text: &str) -> Option<HttpAnswer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let mut status = lines.next()?.split(' ');
    if !status.next()?.starts_with("HTTP/1.") {
        return None;
    }
    let status = status.next()?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    Some(HttpAnswer { status, headers: headers.collect(), body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_headers_and_body_are_told_apart() {
        let answer = parse("HTTP/1.0 503 Service Unavailable\r\nX-Weight: 0\r\n\r\n{\"a\": 1}\n").unwrap();
        assert_eq!(answer.status, 503);
        assert_eq!(answer.headers, [("x-weight".to_owned(), "0".to_owned())]);
        assert_eq!(answer.body, "{\"a\": 1}\n");
        assert_eq!(parse("SSH-2.0-x\r\n\r\n"), None);
        assert_eq!(parse("HTTP/1.1 200 OK"), None);
    }
}
