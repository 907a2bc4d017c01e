//! What the modes rightly do in different ways, as one table. Everything not in it is the same in all of them.
//!
//! Each column is of one mode; `docs/limitations.md` and the scenarios that name their `modes` say the same in words.

use std::net::IpAddr;

use crate::settings::{Mode, ProxySettings, Scheduler};

/// How one of several endpoints is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Balancing {
    /// Each connection is a draw; shares are probabilities.
    AtRandom,
    /// In turn; shares are those of many connections.
    RoundRobin,
    /// A hash of something decides, so one client, or everybody, may always meet the same: no shares.
    ByHash,
    /// Whoever has the fewest connections at that moment: no shares.
    LeastConnections,
    /// One endpoint for each address that is called, until it has too many connections: no shares.
    ByLocality,
}

impl Balancing {
    /// Whether every endpoint's share is the same and known.
    #[must_use]
    pub fn is_even(self) -> bool {
        matches!(self, Balancing::AtRandom | Balancing::RoundRobin)
    }
}

/// How far session affinity reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AffinityScope {
    /// A client has one endpoint for a service port, whatever address it calls.
    ServicePort,
    /// A client has one for each address that it calls, so it may meet two.
    Frontend,
}

/// What a mode does in a way of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModeSemantics {
    /// Who is chosen.
    pub(crate) balancing: Balancing,
    /// How far affinity reaches.
    pub(crate) affinity: AffinityScope,
    /// Endpoints see the node that relays, never the client.
    pub(crate) relays: bool,
    /// SCTP service ports refuse.
    pub(crate) refuses_sctp: bool,
    /// So do those of UDP.
    pub(crate) refuses_udp: bool,
    /// Services' addresses are addresses of every node. So a node calls them from themselves, and other ports are shut.
    pub(crate) binds_addresses: bool,
    /// A frontend has one list of endpoints for everybody: policy Local holds the node and its pods to it as well.
    pub(crate) one_list: bool,
    /// What the node itself sends to a service always has its address replaced.
    pub(crate) masquerades_own_node: bool,
    /// Node ports can answer on 127.0.0.1.
    pub(crate) localhost: bool,
    /// Node ports are listened on, over TCP, on loopback addresses that `nodePortAddresses` names.
    pub(crate) listens_on_localhost: bool,
    /// Ports of a cluster IP that no service has refuse.
    pub(crate) shuts_cluster_ips: bool,
    /// Without `nodePortAddresses` node ports answer on a node's primary addresses alone.
    pub(crate) primary_node_ports: bool,
}

/// The table's column for these settings.
pub(crate) fn semantics(settings: &ProxySettings) -> ModeSemantics {
    match settings.mode {
        Mode::Iptables => ModeSemantics {
            balancing: Balancing::AtRandom,
            affinity: AffinityScope::ServicePort,
            relays: false,
            refuses_sctp: false,
            refuses_udp: false,
            binds_addresses: false,
            one_list: false,
            masquerades_own_node: false,
            localhost: true,
            listens_on_localhost: false,
            shuts_cluster_ips: false,
            primary_node_ports: false,
        },
        Mode::Ipvs => ModeSemantics {
            balancing: scheduled(settings.scheduler),
            affinity: AffinityScope::Frontend,
            relays: false,
            refuses_sctp: false,
            refuses_udp: false,
            binds_addresses: true,
            one_list: true,
            masquerades_own_node: true,
            localhost: false,
            listens_on_localhost: false,
            shuts_cluster_ips: false,
            primary_node_ports: false,
        },
        Mode::Nftables => ModeSemantics {
            balancing: Balancing::AtRandom,
            affinity: AffinityScope::ServicePort,
            relays: false,
            refuses_sctp: false,
            refuses_udp: false,
            binds_addresses: false,
            one_list: false,
            masquerades_own_node: false,
            localhost: false,
            listens_on_localhost: true,
            shuts_cluster_ips: true,
            primary_node_ports: true,
        },
        Mode::Userspace => ModeSemantics {
            balancing: Balancing::RoundRobin,
            affinity: AffinityScope::ServicePort,
            relays: true,
            refuses_sctp: true,
            refuses_udp: false,
            binds_addresses: false,
            one_list: false,
            masquerades_own_node: false,
            localhost: true,
            listens_on_localhost: false,
            shuts_cluster_ips: false,
            primary_node_ports: false,
        },
    }
}

/// The same for what goes to this address: in nftables mode node ports on loopback addresses are relayed, over TCP alone.
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
