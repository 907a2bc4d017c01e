//! Proxies' metrics and their own health.

use std::net::{Ipv4Addr, SocketAddr};

use svclab_cluster::ClusterError;
use svclab_cluster::HttpAnswer;
use svclab_cluster::traffic::probe::ClusterHost;

use super::error::LabError;
use super::lab::{HANGS_AFTER, KernelLab};
use super::proxy::HEALTH;
use crate::expect::Mismatch;
use crate::scenario::execute::StepOutcome;
use crate::scenario::file::{ExpectFile, HealthCheckFile, HealthPath};
use crate::scenario::{resolve, rule_checks};

pub(super) const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10_249);

/// Returns the sum of a metric's samples; `None` without samples. `name{label="value",…}` sums those with these labels,
/// whatever others they have.
pub(super) fn sum(text: &str, name: &str) -> Option<f64> {
    let (name, labels) = name.split_once('{').unwrap_or((name, ""));
    let wanted: Vec<&str> = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()).collect();
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
        let (labels, value) = rest.rsplit_once(' ')?;
        let has = |label: &&str| ["{", ","].iter().any(|before| labels.contains(&format!("{before}{label}")));
        if wanted.iter().all(has) { value.parse::<f64>().ok() } else { None }
    });
    values.reduce(|all, value| all + value)
}

impl KernelLab {
    async fn get(&self, from: &ClusterHost, address: SocketAddr, path: &str) -> Result<HttpAnswer, Mismatch> {
        let answer = self.cluster.http_get(from, address, path, HANGS_AFTER).await;
        let wanted = || format!("{address}{path} answers {from}");
        answer.map_err(|error: ClusterError| Mismatch::new(wanted(), error.to_string()))
    }

    /// Notes a metric, or compares it with its noted value.
    pub(super) async fn metric(
        &mut self,
        node: &str,
        name: &str,
        expect: &ExpectFile,
    ) -> Result<StepOutcome, LabError> {
        let answer = match self.get(&ClusterHost::Node(node.to_owned()), METRICS, "/metrics").await {
            Ok(answer) => answer,
            Err(silent) => return Ok(StepOutcome::new("", vec![silent])),
        };
        let Some(now) = sum(&answer.body, name) else {
            let wrong = Mismatch::new(format!("the proxy on {node} has the metric {name}"), "it has no sample of it");
            return Ok(StepOutcome::new("", vec![wrong]));
        };
        let key = (node.to_owned(), name.to_owned());
        let Some(wanted) = &expect.grew else {
            self.metrics.insert(key, now);
            return Ok(StepOutcome::new(format!("{now}"), []));
        };
        let before = self.metrics.get(&key).copied().unwrap_or_default();
        let grew = now - before;
        let right = grew >= 0.0 && wanted.accepts(grew as u64, |_| 0);
        let wrong =
            (!right).then(|| Mismatch::new(format!("{name} grows by {wanted}"), format!("by {grew}, from {before}")));
        Ok(StepOutcome::new(format!("{before} before, {now} now"), wrong))
    }

    pub(super) async fn own_health(
        &self,
        node: &str,
        (file, path): (&HealthCheckFile, HealthPath),
        expect: &ExpectFile,
    ) -> Result<StepOutcome, LabError> {
        let (from, address) = match file.is_over_loopback() {
            true => (ClusterHost::Node(node.to_owned()), HEALTH),
            false => self.store.read(|store| resolve::health_check(store, node, file))?,
        };
        let answer = match self.get(&from, address, path.text()).await {
            Ok(answer) => answer,
            Err(silent) => return Ok(StepOutcome::new("", vec![silent])),
        };
        let broken = rule_checks::health(expect, answer.status, None, answer.body.trim());
        Ok(StepOutcome::new(format!("{} {}", answer.status, answer.body.trim().replace('\n', " ")), broken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_without_samples_has_no_sum() {
        let text = "# TYPE a counter\na{x=\"1\"} 2\na{x=\"2\"} 3\na_total 7\nb 0\n";
        assert_eq!(sum(text, "a"), Some(5.0));
        assert_eq!(sum(text, "b"), Some(0.0));
        assert_eq!(sum(text, "c"), None);
        let text = "a{x=\"1\",y=\"2\"} 2\na{x=\"1\",y=\"3\"} 4\na{xx=\"1\"} 8\n";
        assert_eq!(sum(text, "a{x=\"1\"}"), Some(6.0));
        assert_eq!(sum(text, "a{y=\"3\",x=\"1\"}"), Some(4.0));
        assert_eq!(sum(text, "a{y=\"4\"}"), None);
    }
}
