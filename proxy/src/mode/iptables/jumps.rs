//! The jumps of this mode.

use super::names;
use crate::kernel::iptables::Table;
use crate::mode::rules::jumps::Jump;
use crate::plan::NodePlan;

const EXTERNAL: &str = "-m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES";
const PORTALS: &str = "-m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";
const FIREWALL: &str =
    "-m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL";
const NAT_PORTALS: &str = "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";

/// Every jump, in the order in which they are put before what stands in the kernel's chain: the last one is the
/// first that a packet meets. The filter ones look at new connections only, so established traffic does not pay.
pub const ALL: [Jump; 15] = [
    Jump::new(Table::Filter, "INPUT", names::EXTERNAL_SERVICES, EXTERNAL),
    Jump::new(Table::Filter, "FORWARD", names::EXTERNAL_SERVICES, EXTERNAL),
    // kube-proxy has none here. Whom policy Local does not hold has been translated in nat's OUTPUT, and meets no DROP.
    Jump::new(Table::Filter, "OUTPUT", names::EXTERNAL_SERVICES, EXTERNAL),
    Jump::new(
        Table::Filter,
        "INPUT",
        names::NODE_PORTS,
        "-m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS",
    ),
    Jump::new(Table::Filter, "FORWARD", names::SERVICES, PORTALS),
    Jump::new(Table::Filter, "OUTPUT", names::SERVICES, PORTALS),
    Jump::new(
        Table::Filter,
        "FORWARD",
        names::FORWARD,
        "-m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD",
    ),
    Jump::new(Table::Filter, "INPUT", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "OUTPUT", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "FORWARD", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "INPUT", names::FIREWALL, "-j KUBE-FIREWALL"),
    Jump::new(Table::Filter, "OUTPUT", names::FIREWALL, "-j KUBE-FIREWALL"),
    Jump::new(Table::Nat, "OUTPUT", names::SERVICES, NAT_PORTALS),
    Jump::new(Table::Nat, "PREROUTING", names::SERVICES, NAT_PORTALS),
    Jump::new(
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
