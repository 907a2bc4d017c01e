//! The jumps of this mode.

use super::names;
use crate::mode::iptables_family::rules::jumps::{Jump, On};
use crate::plan::NodePlan;
use crate::ruleset::Table;

const EXTERNAL: &[On] = &[On::New, On::Comment("kubernetes externally-visible service portals")];
const PORTALS: &[On] = &[On::New, On::Comment("kubernetes service portals")];
const FIREWALL: &[On] = &[On::New, On::Comment("kubernetes load balancer firewall")];
const NAT_PORTALS: &[On] = &[On::Comment("kubernetes service portals")];

/// Every jump, in the order in which they are put before what stands in the kernel's chain: the last one is the
/// first that a packet meets. The filter ones look at new connections only, so established traffic does not pay.
pub const ALL: [Jump; 15] = [
    Jump::new(Table::Filter, "INPUT", names::EXTERNAL_SERVICES, EXTERNAL),
    Jump::new(Table::Filter, "FORWARD", names::EXTERNAL_SERVICES, EXTERNAL),
    // kube-proxy has none here. Whom policy Local does not hold has been translated in nat's OUTPUT, and meets no DROP.
    Jump::new(Table::Filter, "OUTPUT", names::EXTERNAL_SERVICES, EXTERNAL),
    Jump::new(Table::Filter, "INPUT", names::NODE_PORTS, &[On::Comment("kubernetes health check service ports")]),
    Jump::new(Table::Filter, "FORWARD", names::SERVICES, PORTALS),
    Jump::new(Table::Filter, "OUTPUT", names::SERVICES, PORTALS),
    Jump::new(Table::Filter, "FORWARD", names::FORWARD, &[On::Comment("kubernetes forwarding rules")]),
    Jump::new(Table::Filter, "INPUT", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "OUTPUT", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "FORWARD", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "INPUT", names::FIREWALL, &[]),
    Jump::new(Table::Filter, "OUTPUT", names::FIREWALL, &[]),
    Jump::new(Table::Nat, "OUTPUT", names::SERVICES, NAT_PORTALS),
    Jump::new(Table::Nat, "PREROUTING", names::SERVICES, NAT_PORTALS),
    Jump::new(Table::Nat, "POSTROUTING", names::POSTROUTING, &[On::Comment("kubernetes postrouting rules")]),
];

/// The jumps that a node needs.
pub fn wanted(node: &NodePlan) -> impl Iterator<Item = &'static Jump> {
    let guard = node.guard_loopback;
    ALL.iter().filter(move |jump| guard || jump.to != names::FIREWALL)
}
