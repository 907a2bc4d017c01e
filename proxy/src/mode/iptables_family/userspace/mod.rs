//! Userspace mode: rules redirect packets to this process's listening ports.
//!
//! [`ports`] assigns ports to listeners, [`objects`] renders one service port, [`ruleset`] the fixed chains; [`syncer`]
//! is the [renderer](super::engine::render::Renderer). [`previous_ports`] reads a previous proxy's ports.
//! [`crate::relay`] relays.
//!
//! A listening port serves one [`BackendSet`]. Rules choose the set, because they see the packet's source; the relay
//! chooses the backend.

pub mod jumps;
pub mod objects;
pub mod ports;
pub mod previous_ports;
pub mod ruleset;
pub mod syncer;

use std::collections::BTreeSet;

use crate::model::Protocol;
use crate::plan::{BackendSet, ExternalFrontends, FrontendAction, FrontendVerdict, ServicePortPlan};

/// Returns the plan, which rejects SCTP because relays lack it.
pub fn served(plan: &ServicePortPlan) -> ServicePortPlan {
    let mut plan = plan.clone();
    if plan.protocol() == Protocol::Sctp {
        let refuse = |action: &mut FrontendAction| action.verdict = FrontendVerdict::Reject;
        plan.internal.iter_mut().for_each(|internal| refuse(&mut internal.action));
        if let Some(external) = &mut plan.external {
            refuse(&mut external.action);
            external.short_circuit = None;
        }
    }
    plan
}

/// Returns the sets to which rules redirect.
pub fn sets(plan: &ServicePortPlan) -> BTreeSet<BackendSet> {
    let of_external = |external: &ExternalFrontends| {
        let short = external.short_circuit.map(|short| [short.pods, short.node]);
        short.into_iter().flatten().chain([external.action]).collect::<Vec<_>>()
    };
    let treatments = plan.external.iter().flat_map(of_external);
    let treatments = treatments.chain(plan.internal.map(|internal| internal.action));
    let delivered = treatments.filter_map(|action| match action.verdict {
        FrontendVerdict::Deliver(set) => Some(set),
        FrontendVerdict::Reject | FrontendVerdict::Drop => None,
    });
    delivered.filter(|set| !plan.backends(*set).is_empty()).collect()
}
