//! The jumps of this mode: those of iptables mode in filter, and upstream's of old in nat.

use crate::mode::iptables_family::iptables;
use crate::mode::iptables_family::rules::jumps::{Jump, On};
use crate::mode::iptables_family::rules::names;
use crate::ruleset::Table;

const PORTALS: &[On] = &[On::Comment("handle ClusterIPs; NOTE: this must be before the NodePort rules")];
const NODE_PORTS: &[On] =
    &[On::ToLocalAddress, On::Comment("handle service NodePorts; NOTE: this must be the last rule in the chain")];

/// The jumps that no other mode has, in the order in which they are put before what stands in the kernel's chain: the last
/// one is the first that a packet meets.
pub const ALL: [Jump; 5] = [
    Jump::new(
        Table::Filter,
        "INPUT",
        names::NODEPORT_NON_LOCAL,
        &[On::Comment("Ensure that non-local NodePort traffic can flow")],
    ),
    Jump::new(Table::Nat, "PREROUTING", names::NODEPORT_CONTAINER, NODE_PORTS),
    Jump::new(Table::Nat, "PREROUTING", names::PORTALS_CONTAINER, PORTALS),
    Jump::new(Table::Nat, "OUTPUT", names::NODEPORT_HOST, NODE_PORTS),
    Jump::new(Table::Nat, "OUTPUT", names::PORTALS_HOST, PORTALS),
];

/// The jumps that a node needs.
pub fn wanted() -> impl Iterator<Item = &'static Jump> {
    let filter = iptables::jumps::ALL.iter().filter(|jump| jump.table == Table::Filter && jump.to != names::FIREWALL);
    ALL.iter().chain(filter)
}
