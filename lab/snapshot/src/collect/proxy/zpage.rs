use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::files::LARGEST_CONFIG;
use super::{Config, ContainedPath};

/// kube-proxy's default `metricsBindAddress`.
const ADDRESS: &str = "127.0.0.1:10249";
/// The configuration's key in `/configz` (kube-proxy, `configz.New`).
const KEY: &str = "kubeproxy.config.k8s.io";
const DEADLINE: Duration = Duration::from_secs(2);

/// `None` if no proxy answers. Paths in the answer start from `root`.
pub(super) async fn ask(root: ContainedPath) -> Option<Config> {
    let body = timeout(DEADLINE, get()).await.ok().flatten()?;
    understood(&body, root)
}

/// `None` for kube-proxy's answer, which has an internal type (`"Mode"`). svcproxy answers with a
/// `KubeProxyConfiguration`.
fn understood(body: &[u8], root: ContainedPath) -> Option<Config> {
    let mut pages: Value = serde_json::from_slice(body).ok()?;
    let mut value = pages.get_mut(KEY)?.take();
    let fields = value.as_object_mut()?;
    let internal = fields.keys().any(|name| name.starts_with(|first: char| first.is_ascii_uppercase()));
    if internal || fields.is_empty() {
        return None;
    }
    fields.entry("apiVersion").or_insert_with(|| format!("{KEY}/v1alpha1").into());
    fields.entry("kind").or_insert_with(|| "KubeProxyConfiguration".into());
    super::is_config(&value).then(|| Config { value, source: format!("http://{ADDRESS}/configz"), file: root })
}

async fn get() -> Option<Bytes> {
    let stream = TcpStream::connect(ADDRESS).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let task = tokio::spawn(connection);
    let request = Request::get("/configz").header(HOST, ADDRESS).body(Empty::<Bytes>::new()).ok()?;
    let answer = async {
        let response = sender.send_request(request).await.ok().filter(|response| response.status().is_success())?;
        let most = usize::try_from(LARGEST_CONFIG).ok()?;
        Some(Limited::new(response.into_body(), most).collect().await.ok()?.to_bytes())
    };
    let answer = answer.await;
    task.abort();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_published_type_is_taken() {
        let root = || ContainedPath::new(std::path::Path::new("/"), "/");
        let own = br#"{"kubeproxy.config.k8s.io": {"mode": "nftables", "clientConnection": {"kubeconfig": "/a"}}}"#;
        let text = understood(own, root()).unwrap().text();
        assert!(text.contains("mode: nftables") && text.contains("kind: KubeProxyConfiguration"), "{text}");
        for other in
            [&br#"{"kubeproxy.config.k8s.io": {"Mode": "iptables", "FeatureGates": {}}}"#[..], b"{}", b"<html>"]
        {
            assert!(understood(other, root()).is_none());
        }
    }
}
