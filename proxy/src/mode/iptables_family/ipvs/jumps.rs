//! The jumps of this mode.

use crate::mode::iptables_family::rules::jumps::{Jump, On};
use crate::mode::iptables_family::rules::names;
use crate::ruleset::Table;

const NAT_PORTALS: &[On] = &[On::Comment("kubernetes service portals")];
const FIREWALL: &[On] = &[On::Comment("kube-proxy firewall rules")];

/// Every jump, in the order in which they are put before what stands in the kernel's chain: the last one is the
/// first that a packet meets.
///
/// IPVS takes what the node itself sends before filter's OUTPUT (at `NF_IP_PRI_NAT_DST + 2`), so what must not be sent is
/// kept back in mangle.
pub const ALL: [Jump; 9] = [
    Jump::new(Table::Mangle, "OUTPUT", names::IPVS_OUT_FILTER, &[On::Comment("kubernetes ipvs access filter")]),
    Jump::new(Table::Nat, "OUTPUT", names::SERVICES, NAT_PORTALS),
    Jump::new(Table::Nat, "PREROUTING", names::SERVICES, NAT_PORTALS),
    Jump::new(Table::Nat, "POSTROUTING", names::POSTROUTING, &[On::Comment("kubernetes postrouting rules")]),
    Jump::new(Table::Filter, "FORWARD", names::FORWARD, &[On::Comment("kubernetes forwarding rules")]),
    Jump::new(Table::Filter, "INPUT", names::NODE_PORT, &[On::Comment("kubernetes health check rules")]),
    Jump::new(Table::Filter, "INPUT", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "FORWARD", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "INPUT", names::IPVS_FILTER, &[On::Comment("kubernetes ipvs access filter")]),
];
