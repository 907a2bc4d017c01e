//! The proxy's configuration and the node's addresses for a generated cluster.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use svclab_oracle as oracle;
use svclab_oracle::{Cni, NodeMachine, NodePortAddress, World};
use svcproxy::config::{Config, DetectLocal, MasqueradeSource, Mode, NodeAddresses, NodePortAddresses};
use svcproxy::model::{Family, LoadBalancing};

pub fn config(world: &World, node: &str) -> Config {
    let settings = &world.proxy;
    let mode = match settings.mode {
        // svcproxy has no other mode, and no generated cluster asks for one.
        oracle::Mode::Iptables | oracle::Mode::Other => Mode::Iptables,
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
    config.masquerade_source = match settings.chosen_source() {
        oracle::MasqueradeSource::OutgoingInterface => MasqueradeSource::OutgoingInterface,
        oracle::MasqueradeSource::Primary => MasqueradeSource::Primary,
        oracle::MasqueradeSource::Addresses(all) => MasqueradeSource::Addresses(all.clone()),
    };
    config.no_masquerade = settings.exempt_ranges().to_vec();
    config.load_balancing = match settings.load_balancing {
        oracle::LoadBalancing::Random => LoadBalancing::Random,
        oracle::LoadBalancing::Maglev => LoadBalancing::Maglev,
        oracle::LoadBalancing::MaglevPort => LoadBalancing::MaglevPort,
    };
    config.node_port_addresses = match settings.node_port_addresses.as_slice() {
        // The configuration reader has the same default.
        [] if mode == Mode::Nftables => NodePortAddresses::Primary,
        entries => node_port_addresses(entries),
    };
    // As in the configuration reader, IPVS and nftables mode ignore the setting.
    config.localhost_node_ports = settings.localhost_node_ports && !matches!(mode, Mode::Ipvs | Mode::Nftables);
    config.ipvs.scheduler = settings.scheduler.name().to_owned();
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

pub fn families(world: &World) -> Vec<Family> {
    let addresses = || world.nodes.iter().flat_map(|node| &node.addresses);
    Family::ALL.into_iter().filter(|family| addresses().any(|address| Family::of(address) == *family)).collect()
}

pub fn addresses(world: &World, node: &NodeMachine) -> NodeAddresses {
    let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let families = families(world);
    let first = |family: &Family| node.addresses.iter().copied().find(|address| Family::of(address) == *family);
    NodeAddresses {
        local: loopback.into_iter().chain(node.own()).collect(),
        primary: families.iter().filter_map(first).collect(),
        // Point-to-point links have no address, except with ptp.
        bare: match world.cni {
            Cni::PointToPoint => Family::ALL.to_vec(),
            Cni::Bridge | Cni::Ptp => Family::ALL.into_iter().filter(|family| !families.contains(family)).collect(),
        },
        links: Vec::new(),
        next_hops: Vec::new(),
        of_services: None,
    }
}
