//! The operator's port: `/metrics` and the other pages that kube-proxy serves there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::body::Bytes;

use super::scrapes::{ScrapeError, Scrapes};
use super::{CONTENT_TYPE, Metrics, Slis, process_start};
use crate::http::{ConnectionLimit, Handler, HttpReply, ListenError, ReplyFuture, Server, reply};
use crate::zpages::{Flagz, Statusz};

#[derive(Debug, Clone, Default)]
pub struct StaticPages {
    pub mode: String,
    pub configuration: serde_json::Value,
    /// `None` disables `/flagz`.
    pub flags: Option<BTreeMap<String, String>>,
    pub statusz: bool,
}

#[derive(Debug)]
pub struct MetricsServer(Server);

impl MetricsServer {
    pub fn bind(
        address: SocketAddr,
        limit: &ConnectionLimit,
        metrics: Arc<Metrics>,
        slis: Arc<Slis>,
        about: &StaticPages,
    ) -> Result<MetricsServer, ListenError> {
        // kube-proxy's key for its part of the configuration.
        let configuration = serde_json::json!({ "kubeproxy.config.k8s.io": about.configuration }).to_string();
        let mode = about.mode.clone();
        let flagz = about.flags.clone().map(Flagz::new);
        let mut paths = vec!["/metrics", "/metrics/slis", "/healthz", "/healthz/ping", "/proxyMode", "/configz"];
        paths.extend(flagz.is_some().then_some("/flagz"));
        let statusz = about.statusz.then(|| Statusz::new(process_start(), paths.iter().copied()));
        paths.extend(statusz.is_some().then_some("/statusz"));
        let try_these = format!("try {}\n", paths.join(", "));
        let scrapes = Arc::new(Scrapes::new(metrics));
        let handler: Handler = Arc::new(move |asked| match (asked.path, &flagz, &statusz) {
            ("/metrics", ..) => scrape(Arc::clone(&scrapes)),
            ("/metrics/slis", ..) => now(slis.text().map_or_else(|error| failed(&error), exposed)),
            // As in kube-proxy, only the process is checked here, not the proxy.
            ("/healthz", ..) => {
                slis.pinged();
                now(text(StatusCode::OK, "ok"))
            }
            ("/healthz/ping", ..) => now(text(StatusCode::OK, "ok")),
            ("/proxyMode", ..) => now(text(StatusCode::OK, &mode)),
            ("/configz", ..) => now(reply(StatusCode::OK, "application/json", configuration.clone())),
            ("/flagz", Some(flagz), _) => now(flagz.answer(asked.accept)),
            ("/statusz", _, Some(statusz)) => now(statusz.answer(asked.accept)),
            _ => now(text(StatusCode::NOT_FOUND, &try_these)),
        });
        Server::bind(address, false, "/metrics", limit, handler).map(MetricsServer)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

fn now(reply: HttpReply) -> ReplyFuture {
    Box::pin(std::future::ready(reply))
}

fn text(status: StatusCode, body: &str) -> HttpReply {
    reply(status, "text/plain; charset=utf-8", body.to_owned())
}

fn scrape(scrapes: Arc<Scrapes>) -> ReplyFuture {
    Box::pin(async move {
        match scrapes.text().await {
            Ok(body) => exposed(body),
            Err(error @ ScrapeError::Late) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{error}\n")),
            Err(error) => failed(&error),
        }
    })
}

fn exposed(body: impl Into<Bytes>) -> HttpReply {
    reply(StatusCode::OK, CONTENT_TYPE, body)
}

fn failed(error: &impl std::error::Error) -> HttpReply {
    text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::ask;
    use crate::model::Family;

    fn server(about: &StaticPages) -> MetricsServer {
        let metrics = Arc::new(Metrics::new(&Family::ALL).unwrap());
        let slis = Arc::new(Slis::new().unwrap());
        MetricsServer::bind("127.0.0.1:0".parse().unwrap(), &ConnectionLimit::new("/metrics", 8), metrics, slis, about)
            .unwrap()
    }

    async fn get(server: &MetricsServer, path: &str) -> String {
        ask(server.address(), &format!("GET {path}")).await.unwrap()
    }

    #[tokio::test]
    async fn every_path_answers() {
        let about = StaticPages {
            mode: "iptables".into(),
            configuration: serde_json::json!({ "mode": "iptables" }),
            flags: Some([("v".to_owned(), "2".to_owned())].into()),
            statusz: true,
        };
        let server = server(&about);
        for (path, kind, body) in [
            ("/healthz", "text/plain; charset=utf-8", "ok"),
            ("/healthz/ping", "text/plain; charset=utf-8", "ok"),
            ("/proxyMode", "text/plain; charset=utf-8", "iptables"),
            ("/configz", "application/json", r#"{"kubeproxy.config.k8s.io":{"mode":"iptables"}}"#),
        ] {
            let reply = get(&server, path).await;
            assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with(&format!("\r\n\r\n{body}")), "{reply}");
            assert!(reply.contains(&format!("content-type: {kind}\r\n")), "{reply}");
        }
        let reply = get(&server, "/metrics").await;
        assert!(reply.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{reply}");
        assert!(reply.contains("\nprocess_resident_memory_bytes "), "{reply}");
        let reply = get(&server, "/metrics/slis").await;
        assert!(reply.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{reply}");
        assert!(reply.contains("\nkubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1\n"), "{reply}");
        assert!(get(&server, "/flagz").await.ends_with("\nv=2\n"));
        let paths = "\nPaths: /configz /flagz /healthz /metrics /proxyMode\n";
        assert!(get(&server, "/statusz").await.ends_with(paths));
        assert!(get(&server, "/debug/pprof/").await.starts_with("HTTP/1.1 404 "));
        let object = "GET /flagz HTTP/1.1\r\nAccept: application/json;v=v1beta1;g=config.k8s.io;as=Flagz\r\nX: ";
        let reply = ask(server.address(), object).await.unwrap();
        assert!(
            reply.contains("content-type: application/json\r\n") && reply.contains(r#""flags":{"v":"2"}"#),
            "{reply}"
        );
    }

    #[tokio::test]
    async fn pages_are_missing_when_their_gates_are_off() {
        let server = server(&StaticPages::default());
        for path in ["/flagz", "/statusz"] {
            assert!(get(&server, path).await.starts_with("HTTP/1.1 404 "), "{path}");
        }
    }
}
