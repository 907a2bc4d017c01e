//! A node of the oracle's world as the proxy knows it: its configuration, and the addresses that its kernel would show.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use svclab_oracle as oracle;
use svclab_oracle::{Cni, NodeMachine, NodePortAddress, Scheduler, World};
use svcproxy::config::{Config, DetectLocal, Mode, NodeAddresses, NodePortAddresses};
use svcproxy::model::Family;

/// What an operator would write for this node's proxy.
#[must_use]
pub fn config(world: &World, node: &str) -> Config {
    let settings = &world.proxy;
    let mode = match settings.mode {
        oracle::Mode::Iptables => Mode::Iptables,
        oracle::Mode::Ipvs => Mode::Ipvs,
        oracle::Mode::Nftables => Mode::Nftables,
        oracle::Mode::Userspace => Mode::Userspace,
    };
    let mut config = Config::for_node(node);
    config.detect_local = match &settings.detect_local {
        oracle::DetectLocalMode::Off => DetectLocal::ClusterCidr(Vec::new()),
        oracle::DetectLocalMode::ClusterCidr(ranges) => DetectLocal::ClusterCidr(ranges.clone()),
        oracle::DetectLocalMode::NodeCidr => DetectLocal::NodeCidr,
        oracle::DetectLocalMode::BridgeInterface(name) => DetectLocal::BridgeInterface(name.clone()),
        oracle::DetectLocalMode::InterfaceNamePrefix(prefix) => DetectLocal::InterfaceNamePrefix(prefix.clone()),
    };
    config.masquerade_all = settings.masquerade_all;
    config.node_port_addresses = match settings.node_port_addresses.as_slice() {
        // As the reading of a configuration has it, and kube-proxy.
        [] if mode == Mode::Nftables => NodePortAddresses::Primary,
        entries => node_port_addresses(entries),
    };
    // As the reading of a configuration has it: these modes have no node ports on loopback by rules.
    config.localhost_node_ports = settings.localhost_node_ports && !matches!(mode, Mode::Ipvs | Mode::Nftables);
    config.ipvs.scheduler = scheduler(settings.scheduler).to_owned();
    config.mode = mode;
    config
}

fn node_port_addresses(entries: &[NodePortAddress]) -> NodePortAddresses {
    let (mut primary, mut ranges) = (false, Vec::new());
    for entry in entries {
        match entry {
            NodePortAddress::All => return NodePortAddresses::All,
            NodePortAddress::Primary => primary = true,
            NodePortAddress::Range(range) => ranges.push(*range),
            NodePortAddress::Localhost => {
                ranges.extend(IpNet::new(Ipv4Addr::LOCALHOST.into(), 8));
                ranges.push(IpNet::from(IpAddr::from(Ipv6Addr::LOCALHOST)));
            }
        }
    }
    match (primary, ranges.is_empty()) {
        (true, true) => NodePortAddresses::Primary,
        (true, false) => NodePortAddresses::PrimaryAndRanges(ranges),
        (false, true) => NodePortAddresses::All,
        (false, false) => NodePortAddresses::Ranges(ranges),
    }
}

/// The scheduler as `ipvs.scheduler` has it.
pub(crate) fn scheduler(scheduler: Scheduler) -> &'static str {
    match scheduler {
        Scheduler::RoundRobin => "rr",
        Scheduler::WeightedRoundRobin => "wrr",
        Scheduler::LeastConnections => "lc",
        Scheduler::Locality => "lblc",
        Scheduler::DestinationHash => "dh",
        Scheduler::SourceHash => "sh",
        Scheduler::Maglev => "mh",
    }
}

/// The families that a cluster's nodes have.
#[must_use]
pub fn families(world: &World) -> Vec<Family> {
    let addresses = || world.nodes.iter().flat_map(|node| &node.addresses);
    Family::ALL.into_iter().filter(|family| addresses().any(|address| Family::of(address) == *family)).collect()
}

/// What the node's kernel shows: every address of every interface, and which families an interface lacks.
#[must_use]
pub fn addresses(world: &World, node: &NodeMachine) -> NodeAddresses {
    let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let families = families(world);
    let first = |family: &Family| node.addresses.iter().copied().find(|address| Family::of(address) == *family);
    NodeAddresses {
        local: loopback.into_iter().chain(node.own()).collect(),
        primary: families.iter().filter_map(first).collect(),
        // Point-to-point links have no address, but for ptp's; bridges and the node's own interface have one of each family
        // there is.
        bare: match world.cni {
            Cni::PointToPoint => Family::ALL.to_vec(),
            Cni::Bridge | Cni::Ptp => Family::ALL.into_iter().filter(|family| !families.contains(family)).collect(),
        },
        links: Vec::new(),
        // Generated Services publish no address of another machine.
        next_hops: Vec::new(),
        of_services: None,
    }
}
