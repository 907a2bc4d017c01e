use crate::mode::iptables_family::iptables;
use crate::mode::iptables_family::rules::jumps::{Jump, JumpMatch};
use crate::mode::iptables_family::rules::names;
use crate::ruleset::Table;

const PORTALS: &[JumpMatch] = &[JumpMatch::Comment("handle ClusterIPs; NOTE: this must be before the NodePort rules")];
const NODE_PORTS: &[JumpMatch] = &[
    JumpMatch::ToLocalAddress,
    JumpMatch::Comment("handle service NodePorts; NOTE: this must be the last rule in the chain"),
];

pub const ALL: [Jump; 5] = [
    Jump::new(
        Table::Filter,
        "INPUT",
        names::NODEPORT_NON_LOCAL,
        &[JumpMatch::Comment("Ensure that non-local NodePort traffic can flow")],
    ),
    Jump::new(Table::Nat, "PREROUTING", names::NODEPORT_CONTAINER, NODE_PORTS),
    Jump::new(Table::Nat, "PREROUTING", names::PORTALS_CONTAINER, PORTALS),
    Jump::new(Table::Nat, "OUTPUT", names::NODEPORT_HOST, NODE_PORTS),
    Jump::new(Table::Nat, "OUTPUT", names::PORTALS_HOST, PORTALS),
];

pub fn wanted() -> impl Iterator<Item = &'static Jump> {
    let filter = iptables::jumps::ALL.iter().filter(|jump| jump.table == Table::Filter && jump.to != names::FIREWALL);
    ALL.iter().chain(filter)
}
