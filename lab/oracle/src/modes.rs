//! The differences between modes that are correct (`docs/limitations.md`); otherwise all modes behave alike.

use std::net::IpAddr;

use crate::settings::{Mode, ProxySettings, Scheduler};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Balancing {
    AtRandom,
    RoundRobin,
    /// A client's hash selects the endpoint: no shares.
    ByHash,
    /// A client's hash selects the endpoint, the same on every node: no shares.
    Consistent {
        /// Whether the client's port is hashed, too.
        with_port: bool,
    },
    /// The fewest connections: no shares.
    LeastConnections,
    /// One endpoint per destination address until it has too many connections: no shares.
    ByLocality,
}

impl Balancing {
    pub fn is_even(self) -> bool {
        matches!(self, Balancing::AtRandom | Balancing::RoundRobin)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AffinityScope {
    /// Affinity keeps one endpoint per client and service port.
    ServicePort,
    /// Affinity keeps one endpoint per client and called address.
    Frontend,
    /// Affinity keeps one address of endpoints per client and Service.
    Service,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModeSemantics {
    pub(crate) balancing: Balancing,
    pub(crate) affinity: AffinityScope,
    /// The proxy relays connections, so endpoints see the node's address.
    pub(crate) relays: bool,
    pub(crate) refuses_sctp: bool,
    pub(crate) refuses_udp: bool,
    /// Service addresses are local: the node uses them as sources, and their other ports reject.
    pub(crate) binds_addresses: bool,
    /// Policy Local also restricts the node and its pods.
    pub(crate) one_backend_list: bool,
    pub(crate) masquerades_own_node: bool,
    /// Node ports can answer on 127.0.0.1.
    pub(crate) localhost: bool,
    /// TCP node ports answer on the loopback addresses of `nodePortAddresses`.
    pub(crate) listens_on_localhost: bool,
    /// Unused ports reject, unused addresses of a ServiceCIDR drop.
    pub(crate) closes_cluster_ips: bool,
    /// By default node ports answer on primary addresses only.
    pub(crate) primary_node_ports: bool,
    /// Nothing is promised where kube-proxy's modes differ: other ports of service addresses, unused cluster IPs,
    /// loopback addresses, and by default node ports on a node's other addresses.
    pub(crate) leaves_differences_open: bool,
}

/// The mode from which the others are derived.
const IPTABLES: ModeSemantics = ModeSemantics {
    balancing: Balancing::AtRandom,
    affinity: AffinityScope::ServicePort,
    relays: false,
    refuses_sctp: false,
    refuses_udp: false,
    binds_addresses: false,
    one_backend_list: false,
    masquerades_own_node: false,
    localhost: true,
    listens_on_localhost: false,
    closes_cluster_ips: false,
    primary_node_ports: false,
    leaves_differences_open: false,
};

pub(crate) fn semantics(settings: &ProxySettings) -> ModeSemantics {
    match settings.mode {
        Mode::Iptables => IPTABLES,
        Mode::Ipvs => ModeSemantics {
            balancing: scheduled(settings.scheduler),
            affinity: AffinityScope::Frontend,
            binds_addresses: true,
            one_backend_list: true,
            masquerades_own_node: true,
            localhost: false,
            ..IPTABLES
        },
        Mode::Nftables => ModeSemantics {
            localhost: false,
            listens_on_localhost: true,
            closes_cluster_ips: true,
            primary_node_ports: true,
            ..IPTABLES
        },
        Mode::Userspace => {
            ModeSemantics { balancing: Balancing::RoundRobin, relays: true, refuses_sctp: true, ..IPTABLES }
        }
        Mode::Other => ModeSemantics {
            // No page says whether affinity joins the addresses of a service port.
            affinity: AffinityScope::Frontend,
            primary_node_ports: true,
            leaves_differences_open: true,
            ..IPTABLES
        },
    }
}

/// Returns the semantics for `to`: nftables mode relays TCP node ports on loopback addresses.
pub(crate) fn semantics_at(settings: &ProxySettings, to: IpAddr) -> ModeSemantics {
    let everywhere = semantics(settings);
    if !everywhere.listens_on_localhost || !to.is_loopback() {
        return everywhere;
    }
    ModeSemantics {
        balancing: Balancing::RoundRobin,
        relays: true,
        refuses_sctp: true,
        refuses_udp: true,
        localhost: true,
        ..everywhere
    }
}

fn scheduled(scheduler: Scheduler) -> Balancing {
    match scheduler {
        Scheduler::RoundRobin | Scheduler::WeightedRoundRobin => Balancing::RoundRobin,
        Scheduler::LeastConnections => Balancing::LeastConnections,
        Scheduler::Locality => Balancing::ByLocality,
        Scheduler::DestinationHash | Scheduler::SourceHash | Scheduler::Maglev => Balancing::ByHash,
    }
}
