//! Nodes: their own addresses as addresses of Services, and Node objects that are deleted.

use crate::habits::Habit;
use crate::mutants::{Hook, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "machines-own-not-served",
        "does not serve an external address that is the node's own",
        "vip-of-a-node",
        Hook::ServicePort(|state, port| port.external_ips.retain(|address| !state.node().addresses.contains(address))),
    ),
    Mutant::new(
        "machines-of-others-not-served",
        "serves an external address only on the node that has it",
        "vip-of-a-node",
        Hook::ServicePort(|state, port| port.external_ips.retain(|address| state.node().addresses.contains(address))),
    ),
    Mutant::new(
        "machines-unwatched",
        "reads the addresses of the node only when something else changes",
        "node-port-address-moves",
        Hook::Habit(Habit::AddressesAreNotWatched),
    ),
    Mutant::new(
        "machines-of-a-deleted-node",
        "takes no endpoint for its own while its Node is deleted",
        "node-object",
        Hook::Endpoints(|state, _, endpoints| {
            if state.node().addresses.is_empty() {
                endpoints.iter_mut().for_each(|endpoint| endpoint.local = false);
            }
        }),
    ),
];
