//! Userspace mode: rules lead packets to listening ports of this process, which relays them.
//!
//! [`ports`] gives each listener its port, [`objects`] writes one service port down, [`ruleset`] puts the chains together,
//! [`syncer`] brings listeners and rules where they should be; [`found`] reads the ports out of a predecessor's rules. What
//! listens and relays is [`crate::relay`].
//!
//! One listening port serves one of the two sets of backends that a service port may have ([`BackendSet`]): whether a client
//! is held to the policy Local is decided by rules, which see where a packet comes from; which backend it gets, by the relay.

pub mod found;
pub mod jumps;
pub mod objects;
pub mod ports;
pub mod ruleset;
pub mod syncer;

use std::collections::BTreeSet;

use crate::model::Protocol;
use crate::plan::{BackendSet, ExternalFrontends, FrontendAction, ServicePortPlan, Verdict};

/// A service port as this mode can serve it: SCTP is not relayed, so its service ports refuse.
pub fn served(plan: &ServicePortPlan) -> ServicePortPlan {
    let mut plan = plan.clone();
    if plan.protocol() == Protocol::Sctp {
        let refuse = |action: &mut FrontendAction| action.verdict = Verdict::Reject;
        plan.internal.iter_mut().for_each(|internal| refuse(&mut internal.action));
        if let Some(external) = &mut plan.external {
            refuse(&mut external.action);
            external.short_circuit = None;
        }
    }
    plan
}

/// The sets of backends that rules lead to.
pub fn sets(plan: &ServicePortPlan) -> BTreeSet<BackendSet> {
    let of_external = |external: &ExternalFrontends| {
        let short = external.short_circuit.map(|short| [short.pods, short.node]);
        short.into_iter().flatten().chain([external.action]).collect::<Vec<_>>()
    };
    let treatments = plan.external.iter().flat_map(of_external);
    let treatments = treatments.chain(plan.internal.map(|internal| internal.action));
    let delivered = treatments.filter_map(|action| match action.verdict {
        Verdict::Deliver(set) => Some(set),
        Verdict::Reject | Verdict::Drop => None,
    });
    delivered.filter(|set| !plan.backends(*set).is_empty()).collect()
}
