use super::names;
use crate::mode::iptables_family::rules::jumps::{Jump, JumpMatch};
use crate::plan::NodePlan;
use crate::ruleset::Table;

const EXTERNAL: &[JumpMatch] = &[JumpMatch::New, JumpMatch::Comment("kubernetes externally-visible service portals")];
const PORTALS: &[JumpMatch] = &[JumpMatch::New, JumpMatch::Comment("kubernetes service portals")];
const FIREWALL: &[JumpMatch] = &[JumpMatch::New, JumpMatch::Comment("kubernetes load balancer firewall")];
const NAT_PORTALS: &[JumpMatch] = &[JumpMatch::Comment("kubernetes service portals")];

/// Jumps in insertion order at the beginning of the built-in chains: packets pass the last jump first. In filter only
/// new connections jump; established traffic skips these chains.
pub const ALL: [Jump; 15] = [
    Jump::new(Table::Filter, "INPUT", names::EXTERNAL_SERVICES, EXTERNAL),
    Jump::new(Table::Filter, "FORWARD", names::EXTERNAL_SERVICES, EXTERNAL),
    // kube-proxy lacks this jump. Traffic to which policy Local does not apply is already translated, so no DROP
    // matches it.
    Jump::new(Table::Filter, "OUTPUT", names::EXTERNAL_SERVICES, EXTERNAL),
    Jump::new(
        Table::Filter,
        "INPUT",
        names::NODE_PORTS,
        &[JumpMatch::Comment("kubernetes health check service ports")],
    ),
    Jump::new(Table::Filter, "FORWARD", names::SERVICES, PORTALS),
    Jump::new(Table::Filter, "OUTPUT", names::SERVICES, PORTALS),
    Jump::new(Table::Filter, "FORWARD", names::FORWARD, &[JumpMatch::Comment("kubernetes forwarding rules")]),
    Jump::new(Table::Filter, "INPUT", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "OUTPUT", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "FORWARD", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "INPUT", names::FIREWALL, &[]),
    Jump::new(Table::Filter, "OUTPUT", names::FIREWALL, &[]),
    Jump::new(Table::Nat, "OUTPUT", names::SERVICES, NAT_PORTALS),
    Jump::new(Table::Nat, "PREROUTING", names::SERVICES, NAT_PORTALS),
    Jump::new(Table::Nat, "POSTROUTING", names::POSTROUTING, &[JumpMatch::Comment("kubernetes postrouting rules")]),
];

pub fn wanted(node: &NodePlan) -> impl Iterator<Item = &'static Jump> {
    let guard = node.guard_loopback;
    ALL.iter().filter(move |jump| guard || jump.to != names::FIREWALL)
}
