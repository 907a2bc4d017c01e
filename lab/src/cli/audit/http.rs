//! The auditor's HTTP server: one request per connection; connections, their duration and requests' sizes are bounded.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use svclab_audit::report;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::status::SharedStatus;
use crate::exit::Exit;

const CONNECTIONS: usize = 32;
/// The time of a connection: a client that sends or reads slowly makes room for others.
const CONNECTION_TIME: Duration = Duration::from_secs(15);
const REQUEST_SIZE: usize = 16 << 10;
const PAUSE: Duration = Duration::from_millis(100);

const PATHS: &str = "/findings (JSON, or a page for browsers), /findings.html, /findings.json, /healthz, /metrics\n";

#[derive(Clone)]
pub(super) struct AuditServer {
    pub(super) status: SharedStatus,
    /// The age of the last audit from which `/healthz` fails.
    pub(super) stale: Duration,
}

pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, Exit> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| Exit::unable(format!("cannot listen on {address}: {error}; choose another with --listen")))
}

impl AuditServer {
    pub(super) async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors, for example.
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let server = self.clone();
            tokio::spawn(async move {
                let _ = timeout(CONNECTION_TIME, server.connection(stream)).await;
                drop(place);
            });
        }
    }

    async fn connection(&self, stream: TcpStream) {
        let service = service_fn(|request: Request<Incoming>| async move {
            let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
            Ok::<_, Infallible>(self.answer(request.method(), request.uri().path(), accept))
        });
        let mut http = http1::Builder::new();
        http.keep_alive(false).max_buf_size(REQUEST_SIZE);
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }

    fn answer(&self, method: &Method, path: &str, accept: &str) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            let mut refused = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD are served\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        // A copy: rendering must not block the audit.
        let status = self.status.lock().clone();
        match path {
            "/metrics" => {
                reply(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", status.metrics(Instant::now()))
            }
            "/healthz" => match status.unhealthy(Instant::now(), self.stale) {
                None => reply(StatusCode::OK, TEXT, "ok\n"),
                Some(why) => reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
            },
            "/findings" | "/findings.json" | "/findings.html" => {
                let Some(report) = status.report else {
                    let why = status.failure.unwrap_or_else(|| "the first audit has not ended".to_owned());
                    return reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("no audit yet: {why}\n"));
                };
                let page = path.ends_with(".html") || path == "/findings" && prefers_page(accept);
                match (page, report::json(&report)) {
                    (true, _) => reply(StatusCode::OK, "text/html; charset=utf-8", report::html(&report)),
                    (false, Ok(json)) => reply(StatusCode::OK, "application/json", json),
                    (false, Err(error)) => reply(StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string()),
                }
            }
            _ => reply(StatusCode::NOT_FOUND, TEXT, format!("there are: {PATHS}")),
        }
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

/// Whether `text/html` is before JSON in the list, as browsers send it.
fn prefers_page(accept: &str) -> bool {
    let types = accept.split(',').map(|one| one.split(';').next().unwrap_or_default().trim());
    types.into_iter().find(|one| matches!(*one, "text/html" | "application/json")) == Some("text/html")
}

fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply.headers_mut().insert("X-Content-Type-Options", HeaderValue::from_static("nosniff"));
    reply
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::status::tests::report;
    use super::*;

    fn start() -> (AuditServer, SocketAddr) {
        let server = AuditServer { status: SharedStatus::default(), stale: Duration::from_secs(60) };
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(server.clone().serve(listener));
        (server, address)
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let text = request.replacen(" ; ", " HTTP/1.1\r\nHost: x\r\n", 1).replace(';', "\r\n") + "\r\n\r\n";
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply
    }

    #[tokio::test]
    async fn findings_are_json_or_a_page_by_path_or_accept() {
        let (server, address) = start();
        let early = ask(address, "GET /findings ; ").await;
        assert!(early.starts_with("HTTP/1.1 503") && early.contains("no audit yet"), "{early}");
        server.status.lock().publish(report(&["shop/web"]), Duration::ZERO, Instant::now());
        let browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8";
        for (request, page) in [
            ("GET /findings ; ".to_owned(), false),
            ("GET /findings ; Accept: */*".to_owned(), false),
            ("GET /findings ; Accept: application/json, text/html".to_owned(), false),
            (format!("GET /findings ; {}", browser.replace(';', ",")), true),
            ("GET /findings.html ; ".to_owned(), true),
            (format!("GET /findings.json ; {}", browser.replace(';', ",")), false),
        ] {
            let reply = ask(address, &request).await;
            let (head, body) = reply.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200"), "{request}: {head}");
            assert_eq!(body.starts_with("<!DOCTYPE html>"), page, "{request}: {body}");
            assert!(body.contains("shop/web"), "{request}");
            if !page {
                assert!(serde_json::from_str::<serde_json::Value>(body).unwrap()["findings"].is_array());
            }
        }
    }

    #[tokio::test]
    async fn health_and_metrics_are_served_and_nothing_is_written() {
        let (server, address) = start();
        assert!(ask(address, "GET /healthz ; ").await.starts_with("HTTP/1.1 503"));
        server.status.lock().publish(report(&[]), Duration::ZERO, Instant::now());
        assert!(ask(address, "GET /healthz ; ").await.ends_with("ok\n"));
        assert!(ask(address, "GET /metrics ; ").await.contains("svclab_audits_total{result=\"done\"} 1"));
        assert!(ask(address, "GET / ; ").await.contains("/findings.html"));
        assert!(ask(address, "POST /findings ; ").await.starts_with("HTTP/1.1 405"));
        let head = ask(address, "HEAD /findings.html ; ").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        let large = ask(address, &format!("GET /metrics ; X: {}", "x".repeat(REQUEST_SIZE))).await;
        assert!(!large.starts_with("HTTP/1.1 200"), "{large}");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_clients_make_room_for_others() {
        let (server, address) = start();
        server.status.lock().publish(report(&[]), Duration::ZERO, Instant::now());
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let reply = timeout(CONNECTION_TIME * 4, ask(address, "GET /healthz ; ")).await;
        assert!(reply.unwrap().ends_with("ok\n"));
    }

    #[test]
    fn an_address_in_use_is_a_sentence() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = listen(taken.local_addr().unwrap()).unwrap_err().message;
        assert!(error.starts_with("cannot listen on 127.0.0.1:") && error.contains("--listen"), "{error}");
    }
}
