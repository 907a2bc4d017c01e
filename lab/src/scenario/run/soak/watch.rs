//! Watches one node's proxy during a soak.

use std::time::Duration;

use svclab_cluster::process::ProcessHandle;
use svclab_cluster::traffic::probe::ClusterHost;

use super::sample::{Sample, growth, median, metric};
use super::{KernelLab, SoakNodeRow};
use crate::log::complains;
use crate::scenario::run::lab::HANGS_AFTER;
use crate::scenario::run::metric::METRICS;

const KEPT: usize = 3;

pub(super) struct ProxyWatch {
    node: String,
    pid: i32,
    /// The samples of each tenth of the time.
    samples: Vec<Vec<Sample>>,
    read: u64,
    complaints: u64,
    kept: Vec<String>,
    failures: u64,
    syncs: u64,
    used: Duration,
}

impl ProxyWatch {
    /// Begins to watch, and skips the log lines of the proxy's start.
    pub(super) fn begin(lab: &KernelLab, node: String) -> Self {
        let handle = lab.proxies.handle(&node);
        let pid = handle.map_or(-1, |handle| handle.pid());
        let read = handle.map_or(0, |handle| handle.log_since(u64::MAX).0);
        let used = handle.and_then(ProcessHandle::tree_usage).map_or(Duration::ZERO, |work| work.processor);
        ProxyWatch {
            node,
            pid,
            samples: Vec::new(),
            read,
            complaints: 0,
            kept: Vec::new(),
            failures: 0,
            syncs: 0,
            used,
        }
    }

    pub(super) fn begin_tenth(&mut self) {
        self.samples.push(Vec::new());
    }

    pub(super) fn look(&mut self, lab: &KernelLab) {
        if let Some(samples) = self.samples.last_mut() {
            samples.extend(Sample::of(self.pid));
        }
        let Some(handle) = lab.proxies.handle(&self.node) else { return };
        let (read, lines) = handle.log_since(self.read);
        self.read = read;
        for line in lines.into_iter().filter(|line| complains(line)) {
            self.complaints += 1;
            if self.kept.len() < KEPT {
                self.kept.push(line);
            }
        }
    }

    pub(super) async fn row(&mut self, lab: &KernelLab, changes: usize) -> SoakNodeRow {
        self.look(lab);
        let used =
            lab.proxies.handle(&self.node).and_then(ProcessHandle::tree_usage).map_or(self.used, |work| work.processor);
        let spent = used.saturating_sub(std::mem::replace(&mut self.used, used));
        let place = ClusterHost::Node(self.node.clone());
        if let Ok(answer) = lab.cluster.http_get(&place, METRICS, "/metrics", HANGS_AFTER).await {
            let of = |name: &str| metric(&answer.body, &format!("kubeproxy_sync_proxy_rules_{name}"));
            self.syncs = of("duration_seconds_count");
            self.failures = of("iptables_restore_failures_total") + of("iptables_partial_restore_failures_total");
        }
        let samples = self.samples.last().map(Vec::as_slice).unwrap_or_default();
        SoakNodeRow {
            node: self.node.clone(),
            syncs: self.syncs,
            rss: median(samples.iter().map(|sample| sample.rss).collect()),
            fds: median(samples.iter().map(|sample| sample.fds).collect()),
            errors: self.complaints + self.failures,
            per_change: spent / u32::try_from(changes).unwrap_or(u32::MAX).max(1),
        }
    }

    pub(super) fn lives(&self, lab: &KernelLab) -> bool {
        lab.proxies.handle(&self.node).is_some_and(|handle| handle.is_alive() && handle.pid() == self.pid)
    }

    pub(super) fn death(&self, lab: &KernelLab) -> String {
        let last = lab.proxies.handle(&self.node).map(|handle| handle.log_tail(3)).unwrap_or_default();
        format!("{}: the proxy has ended: {}", self.node, last.trim())
    }

    pub(super) fn verdict(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.complaints > 0 {
            wrong.push(format!("{} complaints in the log: {}", self.complaints, self.kept.join(" | ")));
        }
        if self.failures > 0 {
            wrong.push(format!("{} restores failed", self.failures));
        }
        if self.syncs == 0 {
            wrong.push("no sync was counted in /metrics".to_owned());
        }
        match &self.samples[..] {
            [_, second, .., last] if !second.is_empty() && !last.is_empty() => wrong.extend(growth(second, last)),
            _ => wrong.push("its memory could not be looked at".to_owned()),
        }
        wrong.into_iter().map(|words| format!("{}: {words}", self.node)).collect()
    }
}
