use crate::mode::iptables_family::rules::jumps::{Jump, JumpMatch};
use crate::mode::iptables_family::rules::names;
use crate::ruleset::Table;

const NAT_PORTALS: &[JumpMatch] = &[JumpMatch::Comment("kubernetes service portals")];
const FIREWALL: &[JumpMatch] = &[JumpMatch::Comment("kube-proxy firewall rules")];

/// Jumps in insertion order at the beginning of the built-in chains: packets pass the last jump first. IPVS takes the
/// node's own packets before filter's OUTPUT (`NF_IP_PRI_NAT_DST + 2`), so mangle drops them.
pub const ALL: [Jump; 9] = [
    Jump::new(Table::Mangle, "OUTPUT", names::IPVS_OUT_FILTER, &[JumpMatch::Comment("kubernetes ipvs access filter")]),
    Jump::new(Table::Nat, "OUTPUT", names::SERVICES, NAT_PORTALS),
    Jump::new(Table::Nat, "PREROUTING", names::SERVICES, NAT_PORTALS),
    Jump::new(Table::Nat, "POSTROUTING", names::POSTROUTING, &[JumpMatch::Comment("kubernetes postrouting rules")]),
    Jump::new(Table::Filter, "FORWARD", names::FORWARD, &[JumpMatch::Comment("kubernetes forwarding rules")]),
    Jump::new(Table::Filter, "INPUT", names::NODE_PORT, &[JumpMatch::Comment("kubernetes health check rules")]),
    Jump::new(Table::Filter, "INPUT", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "FORWARD", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "INPUT", names::IPVS_FILTER, &[JumpMatch::Comment("kubernetes ipvs access filter")]),
];
