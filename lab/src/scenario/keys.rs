//! The keys of steps and of what they expect: which an author has written, and which goes with which.

use super::file::{ExpectFile, ProxyOverride};
use super::{Action, ProxyAction};
use crate::mode::Need;

impl Action {
    /// What it needs without being told.
    pub(super) fn needs(&self) -> Vec<Need> {
        match self {
            Action::Advance(_) => vec![Need::VirtualTime],
            Action::Impair(..) => vec![Need::Netem],
            Action::Proxy(ProxyAction::Start(ProxyOverride { mode: Some(mode), .. }), _) => mode.needs().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Whether it may be done again without another result than that of a fresh look: it changes nothing that is looked at.
    pub(super) fn can_be_repeated(&self) -> bool {
        matches!(
            self,
            Action::Probe(_)
                | Action::Rules(_)
                | Action::HealthCheck(..)
                | Action::OwnHealth(..)
                | Action::LoadBalancer(_)
                | Action::Audit(_)
        )
    }

    /// Whether it changes nothing and does nothing that is promised to succeed: without a promise it could not fail.
    pub(super) fn only_looks(&self) -> bool {
        matches!(self, Action::HealthCheck(..) | Action::OwnHealth(..) | Action::LoadBalancer(_))
    }

    /// The keys that authors write.
    pub const KEYS: [&'static str; 38] = [
        "apply",
        "delete",
        "ready",
        "unready",
        "terminate",
        "probe",
        "connect",
        "send",
        "sendStray",
        "scan",
        "rules",
        "exec",
        "killProxy",
        "stopProxy",
        "startProxy",
        "cleanupProxy",
        "healthCheck",
        "metric",
        "loadBalancer",
        "traffic",
        "endTraffic",
        "scale",
        "api",
        "partition",
        "heal",
        "impair",
        "repair",
        "commandFault",
        "endCommandFault",
        "holdLock",
        "releaseLock",
        "busyWriter",
        "endBusyWriter",
        "logFault",
        "endLogFault",
        "advance",
        "idle",
        "audit",
    ];

    /// The key that the author wrote.
    pub fn key(&self) -> &'static str {
        match self {
            Action::Apply(_) => "apply",
            Action::Delete(_) => "delete",
            Action::Ready(_, true) => "ready",
            Action::Ready(_, false) => "unready",
            Action::Terminate(_) => "terminate",
            Action::Probe(_) => "probe",
            Action::Connect(_) => "connect",
            Action::Send(_) => "send",
            Action::SendStray(_) => "sendStray",
            Action::Scan(_) => "scan",
            Action::Rules(_) => "rules",
            Action::Exec(_) => "exec",
            Action::Proxy(ProxyAction::Kill, _) | Action::KillLater(..) => "killProxy",
            Action::Proxy(ProxyAction::Stop, _) => "stopProxy",
            Action::Proxy(ProxyAction::Start(_), _) => "startProxy",
            Action::Proxy(ProxyAction::Cleanup, _) => "cleanupProxy",
            Action::HealthCheck(..) | Action::OwnHealth(..) => "healthCheck",
            Action::Metric(..) => "metric",
            Action::LoadBalancer(_) => "loadBalancer",
            Action::Traffic(_) => "traffic",
            Action::EndTraffic(_) => "endTraffic",
            Action::Scale(..) => "scale",
            Action::Api(_) => "api",
            Action::Partition(_) => "partition",
            Action::Heal(_) => "heal",
            Action::Impair(..) => "impair",
            Action::Repair(_) => "repair",
            Action::Fault(fault, _) => fault.kind().begins(),
            Action::EndFault(kind, _) => kind.ends(),
            Action::Advance(_) => "advance",
            Action::Idle(_) => "idle",
            Action::Audit(_) => "audit",
        }
    }
}

impl ExpectFile {
    /// The keys that are set, each with the actions it goes with.
    pub(super) fn keys(&self) -> Vec<(&'static str, &'static [&'static str])> {
        const PROBE: &[&str] = &["probe"];
        const OPEN: &[&str] = &["probe", "connect"];
        const ASK: &[&str] = &["probe", "connect", "send", "sendStray"];
        const EXEC: &[&str] = &["exec"];
        const HEALTH: &[&str] = &["healthCheck"];
        const TRAFFIC: &[&str] = &["endTraffic"];
        const IDLE: &[&str] = &["idle"];
        [
            ("answered", self.answered.is_some(), ASK),
            ("spread", self.spread.is_some(), PROBE),
            ("sensitivity", self.sensitivity.is_some(), PROBE),
            ("sticky", self.sticky.is_some(), PROBE),
            ("sameAs", self.same_as.is_some(), ASK),
            ("differsFrom", self.differs_from.is_some(), ASK),
            ("sawSource", self.saw_source.is_some(), ASK),
            ("refused", self.refused.is_some(), OPEN),
            ("dropped", self.dropped.is_some(), OPEN),
            ("unanswered", self.unanswered.is_some(), OPEN),
            ("took", self.took.is_some(), ASK),
            ("counters", !self.counters.is_empty(), ASK),
            ("status", self.status.is_some(), &["exec", "healthCheck"]),
            ("output", self.output.is_some(), EXEC),
            ("lacks", self.lacks.is_some(), EXEC),
            ("localEndpoints", self.local_endpoints.is_some(), HEALTH),
            ("healthyNodes", self.healthy_nodes.is_some(), &["loadBalancer"]),
            ("alive", self.alive.is_some(), &["send", "sendStray"]),
            ("open", self.open.is_some(), &["scan"]),
            ("made", self.made.is_some(), TRAFFIC),
            ("failed", self.failed.is_some(), TRAFFIC),
            ("misdelivered", self.misdelivered.is_some(), TRAFFIC),
            ("grew", self.grew.is_some(), &["metric"]),
            ("processor", self.processor.is_some(), IDLE),
            ("wakeUps", self.wake_ups.is_some(), IDLE),
            ("findings", self.findings.is_some(), &["audit"]),
        ]
        .into_iter()
        .filter(|(_, set, _)| *set)
        .map(|(key, _, fits)| (key, fits))
        .collect()
    }
}
