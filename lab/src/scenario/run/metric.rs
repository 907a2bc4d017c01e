//! What a proxy tells of itself: its metrics, and its own health.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use svclab_cluster::ClusterError;
use svclab_cluster::HttpAnswer;
use svclab_cluster::traffic::probe::ClusterHost;

use super::error::LabError;
use super::lab::Lab;
use super::proxy::HEALTH;
use crate::expect::Mismatch;
use crate::scenario::execute::Seen;
use crate::scenario::file::{ExpectFile, HealthPath};
use crate::scenario::look;

/// kube-proxy's own metrics port.
pub(super) const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10_249);
/// How long an answer may take; the rules' counters are read for the metrics.
const PATIENCE: Duration = Duration::from_secs(10);

/// The sum of a metric's samples over all labels; `None` where it has none.
pub(super) fn sum(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
        rest.rsplit_once(' ')?.1.parse::<f64>().ok()
    });
    values.reduce(|all, value| all + value)
}

impl Lab {
    async fn get(&self, node: &str, address: SocketAddr, path: &str) -> Result<HttpAnswer, Mismatch> {
        let answer = self.cluster.http_get(&ClusterHost::Node(node.to_owned()), address, path, PATIENCE).await;
        answer.map_err(|error: ClusterError| Mismatch::new(format!("{address}{path} answers"), error.to_string()))
    }

    /// Takes note of a metric, or compares it with the last note.
    pub(super) async fn metric(&mut self, node: &str, name: &str, expect: &ExpectFile) -> Result<Seen, LabError> {
        let answer = match self.get(node, METRICS, "/metrics").await {
            Ok(answer) => answer,
            Err(silent) => return Ok(Seen::new("", vec![silent])),
        };
        let Some(now) = sum(&answer.body, name) else {
            let wrong = Mismatch::new(format!("the proxy on {node} has the metric {name}"), "it has no sample of it");
            return Ok(Seen::new("", vec![wrong]));
        };
        let key = (node.to_owned(), name.to_owned());
        let Some(wanted) = &expect.grew else {
            self.metrics.insert(key, now);
            return Ok(Seen::new(format!("{now}"), []));
        };
        let before = self.metrics.get(&key).copied().unwrap_or_default();
        let grew = now - before;
        let right = grew >= 0.0 && wanted.accepts(grew as u64, |_| 0);
        let wrong =
            (!right).then(|| Mismatch::new(format!("{name} grows by {wanted}"), format!("by {grew}, from {before}")));
        Ok(Seen::new(format!("{before} before, {now} now"), wrong))
    }

    /// Asks a proxy for its own health.
    pub(super) async fn own_health(&self, node: &str, path: HealthPath, expect: &ExpectFile) -> Result<Seen, LabError> {
        let answer = match self.get(node, HEALTH, path.text()).await {
            Ok(answer) => answer,
            Err(silent) => return Ok(Seen::new("", vec![silent])),
        };
        let broken = look::health(expect, answer.status, None, answer.body.trim());
        Ok(Seen::new(format!("{} {}", answer.status, answer.body.trim().replace('\n', " ")), broken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_and_none_is_told_from_zero() {
        let text = "# TYPE a counter\na{x=\"1\"} 2\na{x=\"2\"} 3\na_total 7\nb 0\n";
        assert_eq!(sum(text, "a"), Some(5.0));
        assert_eq!(sum(text, "b"), Some(0.0));
        assert_eq!(sum(text, "c"), None);
    }
}
