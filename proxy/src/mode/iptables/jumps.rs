//! The jumps from the kernel's own chains into ours: few, constant, and the only thing that touches chains of others.

use super::names;
use crate::kernel::iptables::Table;
use crate::plan::NodePlan;

/// A rule in one of the kernel's chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    /// The table.
    pub table: Table,
    /// The kernel's chain.
    pub from: &'static str,
    /// The rule, as `iptables-save` prints it.
    pub rule: &'static str,
    /// Our chain.
    pub to: &'static str,
}

const fn jump(table: Table, from: &'static str, to: &'static str, rule: &'static str) -> Jump {
    Jump { table, from, rule, to }
}

const EXTERNAL: &str = "-m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES";
const PORTALS: &str = "-m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";
const FIREWALL: &str =
    "-m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL";
const NAT_PORTALS: &str = "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";

/// Every jump, in the order in which they are put before what stands in the kernel's chain: the last one is the
/// first that a packet meets. The filter ones look at new connections only, so established traffic does not pay.
pub const ALL: [Jump; 14] = [
    jump(Table::Filter, "INPUT", names::EXTERNAL_SERVICES, EXTERNAL),
    jump(Table::Filter, "FORWARD", names::EXTERNAL_SERVICES, EXTERNAL),
    jump(
        Table::Filter,
        "INPUT",
        names::NODE_PORTS,
        "-m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS",
    ),
    jump(Table::Filter, "FORWARD", names::SERVICES, PORTALS),
    jump(Table::Filter, "OUTPUT", names::SERVICES, PORTALS),
    jump(
        Table::Filter,
        "FORWARD",
        names::FORWARD,
        "-m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD",
    ),
    jump(Table::Filter, "INPUT", names::PROXY_FIREWALL, FIREWALL),
    jump(Table::Filter, "OUTPUT", names::PROXY_FIREWALL, FIREWALL),
    jump(Table::Filter, "FORWARD", names::PROXY_FIREWALL, FIREWALL),
    jump(Table::Filter, "INPUT", names::FIREWALL, "-j KUBE-FIREWALL"),
    jump(Table::Filter, "OUTPUT", names::FIREWALL, "-j KUBE-FIREWALL"),
    jump(Table::Nat, "OUTPUT", names::SERVICES, NAT_PORTALS),
    jump(Table::Nat, "PREROUTING", names::SERVICES, NAT_PORTALS),
    jump(
        Table::Nat,
        "POSTROUTING",
        names::POSTROUTING,
        "-m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING",
    ),
];

/// The jumps that a node needs.
pub fn wanted(node: &NodePlan) -> impl Iterator<Item = &'static Jump> {
    let guard = node.guard_loopback;
    ALL.iter().filter(move |jump| guard || jump.to != names::FIREWALL)
}
