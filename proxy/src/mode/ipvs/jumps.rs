//! The jumps of this mode.

use crate::kernel::iptables::Table;
use crate::mode::rules::jumps::Jump;
use crate::mode::rules::names;

const NAT_PORTALS: &str = "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";
const FIREWALL: &str = "-m comment --comment \"kube-proxy firewall rules\" -j KUBE-PROXY-FIREWALL";

/// Every jump, in the order in which they are put before what stands in the kernel's chain: the last one is the
/// first that a packet meets.
///
/// IPVS takes what the node itself sends before filter's OUTPUT (at `NF_IP_PRI_NAT_DST + 2`), so what must not be sent is
/// kept back in mangle.
pub const ALL: [Jump; 9] = [
    Jump::new(
        Table::Mangle,
        "OUTPUT",
        names::IPVS_OUT_FILTER,
        "-m comment --comment \"kubernetes ipvs access filter\" -j KUBE-IPVS-OUT-FILTER",
    ),
    Jump::new(Table::Nat, "OUTPUT", names::SERVICES, NAT_PORTALS),
    Jump::new(Table::Nat, "PREROUTING", names::SERVICES, NAT_PORTALS),
    Jump::new(
        Table::Nat,
        "POSTROUTING",
        names::POSTROUTING,
        "-m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING",
    ),
    Jump::new(
        Table::Filter,
        "FORWARD",
        names::FORWARD,
        "-m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD",
    ),
    Jump::new(
        Table::Filter,
        "INPUT",
        names::NODE_PORT,
        "-m comment --comment \"kubernetes health check rules\" -j KUBE-NODE-PORT",
    ),
    Jump::new(Table::Filter, "INPUT", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(Table::Filter, "FORWARD", names::PROXY_FIREWALL, FIREWALL),
    Jump::new(
        Table::Filter,
        "INPUT",
        names::IPVS_FILTER,
        "-m comment --comment \"kubernetes ipvs access filter\" -j KUBE-IPVS-FILTER",
    ),
];
