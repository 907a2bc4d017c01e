//! HTTP/1.1 on an echo server's port, for `curl`.

use std::convert::Infallible;

use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::servers::{ConnectionEnds, ServerIdentity};

/// The methods of RFC 9110 and RFC 5789.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Whether the line begins with a method or ends with the protocol version, unlike the lab's own requests.
pub(super) fn is_request(line: &[u8]) -> bool {
    let (first, last) = (line.split(|byte| *byte == b' ').next(), line.split(|byte| *byte == b' ').next_back());
    let begins = first.is_some_and(|word| word.len() < line.len() && METHODS.iter().any(|it| it.as_bytes() == word));
    begins || last.is_some_and(|word| word.starts_with(b"HTTP/"))
}

/// Answers 400 to a malformed request and closes.
pub(super) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    identity: &ServerIdentity,
    called: ConnectionEnds,
) {
    let service = service_fn(|request| async move { Ok::<_, Infallible>(answer(request, identity, called).await) });
    // Clients like `nc` half-close after their last request.
    let _ = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    identity: &ServerIdentity,
    called: ConnectionEnds,
) -> Response<BoxBody<Bytes, Infallible>> {
    let (head, mut body) = request.into_parts();
    let wants_json = head.headers.get_all(ACCEPT).iter().any(|value| {
        let types = value.to_str().unwrap_or_default().split([',', ';']);
        types.map(str::trim).any(|one| one == "application/json")
    });
    // Reads the body, because the next request follows it.
    while let Some(Ok(_)) = body.frame().await {}
    let (kind, text) = if wants_json {
        ("application/json", format!("{}\n", identity.json(called)))
    } else {
        ("text/plain; charset=utf-8", identity.sentence(called))
    };
    let is_tunnel = head.method == Method::CONNECT;
    let text = if is_tunnel { "CONNECT: an echo server is no proxy\n".to_owned() } else { text };
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if is_tunnel {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    }
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn identity() -> ServerIdentity {
        ServerIdentity { server: "default/web".to_owned(), node: "node-a".to_owned() }
    }

    async fn response_to(bytes: &str) -> String {
        let called = ConnectionEnds { peer: "10.0.0.1:4711".parse().unwrap(), at: "10.0.0.2:80".parse().unwrap() };
        let (client, server) = tokio::io::duplex(1 << 16);
        let (mut reader, mut writer) = tokio::io::split(client);
        let identity = identity();
        let (_, response) = tokio::join!(serve(server, &identity, called), async {
            writer.write_all(bytes.as_bytes()).await.unwrap();
            writer.shutdown().await.unwrap();
            let mut response = String::new();
            reader.read_to_string(&mut response).await.unwrap();
            response
        });
        response
    }

    #[test]
    fn an_http_request_differs_from_the_labs_requests() {
        for line in ["GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n", "BREW /pot HTTP/1.1\n", "GET /cut"] {
            assert!(is_request(line.as_bytes()), "{line}");
        }
        for line in ["who? 00000001\n", "A? 00000002\n", "AAAA? 00000003\n", "GET\n", "hello\n", "\n"] {
            assert!(!is_request(line.as_bytes()), "{line}");
        }
    }

    #[tokio::test]
    async fn a_connection_serves_one_request_after_the_other() {
        let post = "POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello";
        let json = "GET / HTTP/1.1\r\nhost: x\r\naccept: application/json\r\n\r\n";
        let response = response_to(&format!("{post}{json}HEAD /b HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        assert_eq!(response.matches("HTTP/1.1 200 OK").count(), 3, "{response}");
        let sentence = "default/web on node-a answered at 10.0.0.2:80; it saw you as 10.0.0.1:4711\n";
        assert_eq!(response.matches(sentence).count(), 1, "a HEAD has no body: {response}");
        assert!(response.contains(r#""node":"node-a""#), "{response}");
    }

    #[tokio::test]
    async fn a_malformed_request_gets_400() {
        for bytes in ["GET / HTTP/9\r\n\r\n", "GET /\r\n no header\r\n\r\n", "POST / HTTP/1.1\r\n:x\r\n\r\n"] {
            let response = response_to(bytes).await;
            assert!(response.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{bytes:?}: {response}");
        }
        assert!(response_to("CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n").await.starts_with("HTTP/1.1 405"));
    }
}
