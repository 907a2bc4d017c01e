//! What steps need of a backend beyond a network, its rules and its proxies' health checks.

use crate::scenario::Action;
use crate::scenario::fault::{Fault, FaultKind};

/// Something that not every backend can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::scenario) enum Capability {
    /// Two packets of which either may be first.
    Race,
    /// Metrics and `/healthz` of a proxy.
    OwnReports,
    /// Syncs that leave rules and their counters alone.
    PartialSync,
    /// TCP segments outside of any window.
    SequenceNumbers,
    /// How long a request takes.
    Durations,
    /// Requests while objects change.
    Traffic,
    /// Time in which nothing happens, as a process spends it.
    Idle,
    /// Commands of the step's own.
    Commands,
    /// A proxy that is killed within a restore.
    KillInRestore,
    /// The Kubernetes API between objects and proxies.
    Api,
    /// A node that is cut off.
    Partition,
    /// Commands of the proxy's that fail.
    CommandFault,
    /// The lock of iptables.
    Lock,
    /// Who reads the log of a proxy.
    Log,
    /// Another program that writes rules.
    Writer,
    /// Delay and loss.
    Impairment,
    /// All that stands on a node.
    Snapshot,
}

impl Capability {
    /// The one that a step needs, if it does.
    pub(in crate::scenario) fn of(action: &Action) -> Option<Capability> {
        Some(match action {
            Action::Probe(probe) if probe.pair.as_ref().is_some_and(|pair| pair.value) => Capability::Race,
            Action::OwnHealth(..) | Action::Metric(..) => Capability::OwnReports,
            Action::Rules(rules) if rules.iter().any(|rule| rule.packets.is_some()) => Capability::PartialSync,
            Action::SendStray(_) => Capability::SequenceNumbers,
            Action::Traffic(_) | Action::EndTraffic(_) => Capability::Traffic,
            Action::Idle(_) => Capability::Idle,
            Action::Exec(_) => Capability::Commands,
            Action::KillLater(..) => Capability::KillInRestore,
            Action::Api(_) => Capability::Api,
            Action::Partition(_) | Action::Heal(_) => Capability::Partition,
            Action::Fault(Fault::Command(..), _) | Action::EndFault(FaultKind::Command, _) => Capability::CommandFault,
            Action::Fault(Fault::Log(_), _) | Action::EndFault(FaultKind::Log, _) => Capability::Log,
            Action::Fault(Fault::Lock, _) | Action::EndFault(FaultKind::Lock, _) => Capability::Lock,
            Action::Fault(Fault::Writer(_), _) | Action::EndFault(FaultKind::Writer, _) => Capability::Writer,
            Action::Impair(..) | Action::Repair(_) => Capability::Impairment,
            Action::Audit(_) => Capability::Snapshot,
            Action::Apply(_) | Action::Delete(_) | Action::Ready(..) | Action::Terminate(_) | Action::Scale(..) => {
                return None;
            }
            Action::Probe(_) | Action::Connect(_) | Action::Send(_) | Action::Scan(_) | Action::Rules(_) => {
                return None;
            }
            Action::Proxy(..) | Action::HealthCheck(..) | Action::LoadBalancer(_) | Action::Advance(_) => return None,
        })
    }

    /// What a backend without it does not show, after "not simulated: ".
    pub(in crate::scenario) fn words(self) -> &'static str {
        match self {
            Capability::Race => "two datagrams at once are a race between processors",
            Capability::OwnReports => "what a proxy tells of itself",
            Capability::PartialSync => "which rules a sync leaves alone, with their counters",
            Capability::SequenceNumbers => "sequence numbers",
            Capability::Durations => "how long a request takes",
            Capability::Traffic => "traffic during a change: the simulator changes in no time",
            Capability::Idle => "what a proxy does while nothing happens",
            Capability::Commands => "a command",
            Capability::KillInRestore => "a restore that is cut short",
            Capability::Api => "the Kubernetes API",
            Capability::Partition => "a node that is cut off",
            Capability::CommandFault => "a command that does not do its work",
            Capability::Log => "a log that nobody reads",
            Capability::Lock => "the lock of iptables",
            Capability::Writer => "how long a sync takes while another program writes",
            Capability::Impairment => "delay and loss on a link",
            Capability::Snapshot => "an audit, which reads a node of the kernel",
        }
    }

    /// Whether the steps after one that needs it mean something else without it.
    pub(in crate::scenario) fn changes_what_follows(self) -> bool {
        match self {
            Capability::Race | Capability::OwnReports | Capability::PartialSync | Capability::SequenceNumbers => false,
            Capability::Durations | Capability::Traffic | Capability::Idle | Capability::Writer => false,
            Capability::Log => false,
            Capability::Snapshot => false,
            Capability::Commands | Capability::KillInRestore | Capability::Api | Capability::Partition => true,
            Capability::CommandFault | Capability::Lock | Capability::Impairment => true,
        }
    }
}
