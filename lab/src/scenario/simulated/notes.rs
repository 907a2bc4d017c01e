//! What the simulator has no model of, step by step.

use crate::scenario::Action;
use crate::scenario::fault::{Fault, FaultKind};

/// Why a step is left out, and whether what it does would matter to the steps after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    /// In words that follow "not simulated: ".
    pub(super) why: &'static str,
    /// The steps after it are left out as well.
    pub(super) for_good: bool,
}

/// The note on a step, if it is not simulated.
pub(super) fn on(action: &Action) -> Option<Note> {
    let looks = |why| Some(Note { why, for_good: false });
    let changes = |why| Some(Note { why, for_good: true });
    match action {
        Action::Apply(_) | Action::Delete(_) | Action::Ready(..) | Action::Terminate(_) | Action::Scale(..) => None,
        Action::Probe(probe) => match probe.pair.as_ref().is_some_and(|pair| pair.value) {
            true => looks("two datagrams at once are a race between processors"),
            false => None,
        },
        Action::Connect(_) | Action::Send(_) | Action::Advance(_) | Action::Scan(_) => None,
        Action::HealthCheck(..) | Action::LoadBalancer(_) => None,
        Action::OwnHealth(..) | Action::Metric(..) => looks("what a proxy tells of itself"),
        // Here a machine's rules are replaced as a whole.
        Action::Rules(rules) if rules.iter().any(|rule| rule.packets.is_some()) => {
            looks("which rules a sync leaves alone, with their counters")
        }
        Action::Rules(_) => None,
        Action::Proxy(..) => None,
        Action::SendStray(_) => looks("sequence numbers"),
        Action::Traffic(_) | Action::EndTraffic(_) => {
            looks("traffic during a change: the simulator changes in no time")
        }
        Action::Idle(_) => looks("what a proxy does while nothing happens"),
        Action::Exec(_) => changes("a command"),
        Action::KillLater(..) => changes("a restore that is cut short"),
        Action::Api(_) => changes("the Kubernetes API"),
        Action::Partition(_) | Action::Heal(_) => changes("a node that is cut off"),
        Action::Fault(Fault::Command(..), _) | Action::EndFault(FaultKind::Command, _) => {
            changes("a command that does not do its work")
        }
        Action::Fault(Fault::Lock, _) | Action::EndFault(FaultKind::Lock, _) => changes("the lock of iptables"),
        Action::Fault(Fault::Writer(_), _) | Action::EndFault(FaultKind::Writer, _) => {
            looks("how long a sync takes while another program writes")
        }
        Action::Impair(..) | Action::Repair(_) => changes("delay and loss on a link"),
    }
}
