//! The port for those who operate the proxy: `/metrics`, and what upstream serves beside it.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::StatusCode;

use super::{CONTENT_TYPE, Metrics};
use crate::http::{Answer, Handler, ListenError, Reply, Server, reply};

/// What the server tells besides metrics: neither changes while the proxy runs.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The proxy mode's name.
    pub mode: String,
    /// The configuration, as JSON.
    pub configuration: serde_json::Value,
}

/// Serves `/metrics`, `/healthz`, `/proxyMode` and `/configz`.
#[derive(Debug)]
pub struct MetricsServer(Server);

impl MetricsServer {
    /// Starts to listen; must be called on a tokio runtime.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn bind(address: SocketAddr, metrics: Arc<Metrics>, about: &About) -> Result<MetricsServer, ListenError> {
        // Upstream's name for this part of a component's configuration.
        let configuration = serde_json::json!({ "kubeproxy.config.k8s.io": about.configuration }).to_string();
        let mode = about.mode.clone();
        let handler: Handler = Arc::new(move |path| match path {
            "/metrics" => scrape(Arc::clone(&metrics)),
            // As upstream: this says only that the process answers. What the proxy is worth, its other port tells.
            "/healthz" => now(text(StatusCode::OK, "ok")),
            "/proxyMode" => now(text(StatusCode::OK, &mode)),
            "/configz" => now(reply(StatusCode::OK, "application/json", configuration.clone())),
            _ => now(text(StatusCode::NOT_FOUND, "try /metrics, /healthz, /proxyMode or /configz\n")),
        });
        Server::bind(address, false, "/metrics", handler).map(MetricsServer)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

fn now(reply: Reply) -> Answer {
    Box::pin(std::future::ready(reply))
}

fn text(status: StatusCode, body: &str) -> Reply {
    reply(status, "text/plain; charset=utf-8", body.to_owned())
}

/// Reading counters out of the kernel takes its time, for which nothing else may wait.
fn scrape(metrics: Arc<Metrics>) -> Answer {
    Box::pin(async move {
        match tokio::task::spawn_blocking(move || metrics.text()).await {
            Ok(Ok(body)) => reply(StatusCode::OK, CONTENT_TYPE, body),
            Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be gathered\n"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::ask;
    use crate::model::Family;

    #[tokio::test]
    async fn every_path_answers() {
        let about = About { mode: "iptables".into(), configuration: serde_json::json!({ "mode": "iptables" }) };
        let metrics = Arc::new(Metrics::new(&Family::ALL).unwrap());
        let server = MetricsServer::bind("127.0.0.1:0".parse().unwrap(), metrics, &about).unwrap();
        let get = async |path: &str| ask(server.address(), &format!("GET {path}")).await.unwrap();
        for (path, kind, body) in [
            ("/healthz", "text/plain; charset=utf-8", "ok"),
            ("/proxyMode", "text/plain; charset=utf-8", "iptables"),
            ("/configz", "application/json", r#"{"kubeproxy.config.k8s.io":{"mode":"iptables"}}"#),
        ] {
            let reply = get(path).await;
            assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with(&format!("\r\n\r\n{body}")), "{reply}");
            assert!(reply.contains(&format!("content-type: {kind}\r\n")), "{reply}");
        }
        let reply = get("/metrics").await;
        assert!(reply.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{reply}");
        assert!(reply.contains("\nprocess_resident_memory_bytes "), "{reply}");
        assert!(get("/debug/pprof/").await.starts_with("HTTP/1.1 404 "));
    }
}
