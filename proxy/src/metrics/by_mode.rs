//! Metrics of some modes only (`RegisterMetrics` in pkg/proxy/metrics).

use prometheus::{Error, IntCounterVec, IntGaugeVec};

use super::as_gauge;
use super::build::RegistryBuilder;
use crate::config::Mode;
use crate::model::Family;
use crate::ruleset::{RuleCounts, SyncReport};

#[derive(Debug)]
pub(super) enum ByMode {
    /// Metrics of iptables mode, and of IPVS and userspace mode, which write iptables rules, too.
    Iptables {
        rules: IntGaugeVec,
        rules_last: IntGaugeVec,
        restore_failures: IntCounterVec,
        partial_restore_failures: IntCounterVec,
    },
    Nftables {
        sync_failures: IntCounterVec,
        cleanup_failures: IntCounterVec,
    },
}

impl ByMode {
    #[rustfmt::skip]
    pub(super) fn new(build: &RegistryBuilder, mode: Mode) -> Result<ByMode, Error> {
        let family = &["ip_family"][..];
        Ok(match mode {
            Mode::Nftables => ByMode::Nftables {
                sync_failures: build.counters("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "Syncs that failed", family)?,
                cleanup_failures: build.counters("kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total", "Deletions of unused chains and sets that failed", family)?,
            },
            Mode::Iptables | Mode::Ipvs | Mode::Userspace => ByMode::Iptables {
                rules: build.gauges("kubeproxy_sync_proxy_rules_iptables_total", "Rules of this proxy in the kernel", &["ip_family", "table"])?,
                rules_last: build.gauges("kubeproxy_sync_proxy_rules_iptables_last", "Rules written by the last sync", &["ip_family", "table"])?,
                restore_failures: build.counters("kubeproxy_sync_proxy_rules_iptables_restore_failures_total", "Syncs that failed", family)?,
                partial_restore_failures: build.counters("kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total", "Partial syncs that failed", family)?,
            },
        })
    }

    pub(super) fn begin_at_zero(&self, family: Family) {
        let (ByMode::Iptables { restore_failures: one, partial_restore_failures: other, .. }
        | ByMode::Nftables { sync_failures: one, cleanup_failures: other }) = self;
        [one, other].iter().for_each(|counters| counters.with_label_values(&[family.as_str()]).reset());
        self.written(family, RuleCounts::default());
    }

    pub(super) fn failed(&self, family: Family, full: bool) {
        let name = &[family.as_str()];
        match self {
            ByMode::Iptables { restore_failures, partial_restore_failures, .. } => {
                restore_failures.with_label_values(name).inc();
                if !full {
                    partial_restore_failures.with_label_values(name).inc();
                }
            }
            ByMode::Nftables { sync_failures, .. } => sync_failures.with_label_values(name).inc(),
        }
    }

    pub(super) fn cleanup_failed(&self, family: Family) {
        if let ByMode::Nftables { cleanup_failures, .. } = self {
            cleanup_failures.with_label_values(&[family.as_str()]).inc();
        }
    }

    pub(super) fn synced(&self, family: Family, report: &SyncReport) {
        self.written(family, report.sent);
        let ByMode::Iptables { rules, .. } = self else { return };
        let rules = |table: &str| rules.with_label_values(&[family.as_str(), table]);
        rules("filter").set(as_gauge(report.total.filter));
        rules("nat").set(as_gauge(report.total.nat));
    }

    fn written(&self, family: Family, written: RuleCounts) {
        let ByMode::Iptables { rules_last, .. } = self else { return };
        let last = |table: &str| rules_last.with_label_values(&[family.as_str(), table]);
        last("filter").set(as_gauge(written.filter));
        last("nat").set(as_gauge(written.nat));
    }
}
