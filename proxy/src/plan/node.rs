use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::service_port::internal_masquerade;
use super::{NodePlan, NodePortScope, PodSource};
use crate::config::{Config, DetectLocal, MasqueradeSource, Mode, NodeAddresses, NodePortAddresses};
use crate::model::{Family, is_link_local};
use crate::state::NodeInfo;

pub fn plan_node(config: &Config, family: Family, node: &NodeInfo, addresses: &NodeAddresses) -> NodePlan {
    // IPv6 has no loopback node ports.
    let loopback = config.localhost_node_ports && family == Family::V4;
    NodePlan {
        family,
        masquerade_mark: 1 << config.masquerade_bit,
        masquerade_source: masquerade_source(config, family, node, addresses),
        unmasqueraded: unmasqueraded(config, family),
        pods: pods(config, family, node),
        internal_masquerade: internal_masquerade(config.masquerade_all),
        node_ports: node_ports(config, family, node, addresses, loopback),
        node_port_relay: node_port_relay(config, family),
        primary: primary_address(config, family, node, addresses),
        count_loopback: config.count_localhost_node_ports && family == Family::V4 && routes_loopback(config),
        guard_loopback: family == Family::V4 && routes_loopback(config),
        drop_invalid: !config.tcp_be_liberal,
        service_ranges: Vec::new(),
        lost_flows: None,
        limits_node_ports: false,
        count_services: config.service_counters.is_some(),
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRanges {
    /// Aggregated ranges whose unused addresses drop packets.
    pub dropped: Vec<IpNet>,
    /// Exceptions: ServiceCIDRs that contain a pod range or a node's address, with what they contain. The cluster's pod
    /// range is cut out of `dropped`; a ServiceCIDR with a range or address of this node is left out. A ServiceCIDR
    /// inside the pod range stays, because controllers give no pod an address of it.
    pub spared: Vec<(IpNet, IpNet)>,
}

pub fn service_ranges(
    config: &Config,
    node: &NodeInfo,
    of_service_cidrs: impl Iterator<Item = IpNet>,
) -> ServiceRanges {
    if config.mode != Mode::Nftables {
        return ServiceRanges::default();
    }
    let of_cluster = match &config.detect_local {
        DetectLocal::ClusterCidr(ranges) => ranges.iter().map(IpNet::trunc).collect(),
        DetectLocal::NodeCidr | DetectLocal::BridgeInterface(_) | DetectLocal::InterfaceNamePrefix(_) => Vec::new(),
    };
    let is_of_cluster = |range: &IpNet| of_cluster.iter().any(|cluster: &IpNet| cluster.contains(range));
    let of_node = node.pod_cidrs.iter().map(IpNet::trunc).filter(|range| !is_of_cluster(range));
    let of_node: Vec<IpNet> = of_node.chain(node.addresses.iter().copied().map(IpNet::from)).collect();
    let (mut dropped, mut spared) = (Vec::new(), Vec::new());
    for range in of_service_cidrs {
        // The ServiceCIDR may contain other nodes' unknown ranges.
        if let Some(within) = of_node.iter().find(|within| range.contains(*within)) {
            spared.push((range, *within));
            continue;
        }
        let mut parts = vec![range];
        for within in of_cluster.iter().filter(|within| range.contains(*within)) {
            spared.push((range, *within));
            parts = parts.into_iter().flat_map(|part| without(part, within)).collect();
        }
        dropped.extend(parts);
    }
    ServiceRanges { dropped: IpNet::aggregate(&dropped), spared }
}

fn without(range: IpNet, other: &IpNet) -> Vec<IpNet> {
    if other.contains(&range) {
        return Vec::new();
    }
    let halves = if range.contains(other) { range.subnets(range.prefix_len() + 1).ok() } else { None };
    halves.map_or_else(|| vec![range], |halves| halves.flat_map(|half| without(half, other)).collect())
}

/// Returns the addresses at which node ports are reached from outside the loopback and link-local ranges.
pub fn node_port_addresses(node: &NodePlan, addresses: &NodeAddresses) -> Vec<IpAddr> {
    let all = match &node.node_ports {
        NodePortScope::EveryLocalAddress { .. } => &addresses.local,
        NodePortScope::Addresses(addresses) => addresses,
    };
    let usable = |ip: &&IpAddr| Family::of(ip) == node.family && !ip.is_loopback() && !is_link_local(ip);
    all.iter().filter(usable).copied().collect()
}

/// Whether node ports are on 127.0.0.1, which requires `route_localnet` and its guard: unless `nodePortAddresses` names
/// no loopback address (upstream's `NewProxier` in pkg/proxy/iptables/proxier.go). Relays listen on the node's
/// addresses, and IPVS serves no loopback address.
pub fn routes_loopback(config: &Config) -> bool {
    config.localhost_node_ports && config.mode == Mode::Iptables && names_loopback(&config.node_port_addresses)
}

/// Returns nftables mode's loopback address for node port relays (KEP-6032), if a loopback range of `nodePortAddresses`
/// contains it. A range of all addresses does not count (upstream's `ContainsExplicitLoopback` in
/// pkg/proxy/util/nodeport_addresses.go).
pub fn node_port_relay(config: &Config, family: Family) -> Option<IpAddr> {
    let localhost = family.localhost();
    let may = config.mode == Mode::Nftables && config.gates.nftables_localhost_node_ports;
    (may && loopback_ranges(config, family).any(|range| range.contains(&localhost))).then_some(localhost)
}

fn loopback_ranges(config: &Config, family: Family) -> impl Iterator<Item = IpNet> {
    let ranges = match &config.node_port_addresses {
        NodePortAddresses::Ranges(ranges) | NodePortAddresses::PrimaryAndRanges(ranges) => &ranges[..],
        NodePortAddresses::All | NodePortAddresses::Primary => &[],
    };
    ranges.iter().copied().filter(move |range| family.loopback_range().contains(range))
}

pub fn ranges_without_relay(config: &Config) -> Vec<IpNet> {
    let of = |family: Family| loopback_ranges(config, family).filter(move |range| !range.contains(&family.localhost()));
    Family::ALL.into_iter().flat_map(of).collect()
}

fn names_loopback(addresses: &NodePortAddresses) -> bool {
    let start = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0));
    let one = |range: &IpNet| range.addr().is_ipv4() && (range.addr().is_loopback() || range.contains(&start));
    match addresses {
        NodePortAddresses::All => true,
        NodePortAddresses::Primary => false,
        NodePortAddresses::PrimaryAndRanges(ranges) => ranges.iter().any(one),
        // Without an IPv4 range, all IPv4 addresses accept node ports.
        NodePortAddresses::Ranges(ranges) => !ranges.iter().any(|r| r.addr().is_ipv4()) || ranges.iter().any(one),
    }
}

/// Returns the configured address, else the Node object's, else the kernel's.
pub fn primary_address(config: &Config, family: Family, node: &NodeInfo, addresses: &NodeAddresses) -> Option<IpAddr> {
    let of_family = |ips: &[IpAddr]| ips.iter().copied().find(|ip| Family::of(ip) == family);
    let bound = config.bind_address.filter(|address| Family::of(address) == family);
    bound.or_else(|| of_family(&node.primary)).or_else(|| of_family(&addresses.primary))
}

fn masquerade_source(config: &Config, family: Family, node: &NodeInfo, addresses: &NodeAddresses) -> Option<IpAddr> {
    match &config.masquerade_source {
        MasqueradeSource::OutgoingInterface => None,
        MasqueradeSource::Primary => primary_address(config, family, node, addresses),
        MasqueradeSource::Addresses(all) => all.iter().copied().find(|ip| Family::of(ip) == family),
    }
}

fn unmasqueraded(config: &Config, family: Family) -> Vec<IpNet> {
    let of_family = config.no_masquerade.iter().copied().filter(|range| Family::of_net(range) == family);
    IpNet::aggregate(&of_family.collect())
}

fn pods(config: &Config, family: Family, node: &NodeInfo) -> Option<PodSource> {
    let of_family =
        |ranges: &[IpNet]| ranges.iter().find(|r| Family::of_net(r) == family).map(|r| PodSource::Range(r.trunc()));
    match &config.detect_local {
        DetectLocal::ClusterCidr(ranges) => of_family(ranges),
        DetectLocal::NodeCidr => of_family(&node.pod_cidrs),
        DetectLocal::BridgeInterface(name) => Some(PodSource::Interface(name.clone())),
        DetectLocal::InterfaceNamePrefix(prefix) => Some(PodSource::InterfacePrefix(prefix.clone())),
    }
}

/// Whether node ports need a list of addresses, instead of the kernel's check for local ones.
pub fn names_node_port_addresses(config: &Config, family: Family) -> bool {
    let scope = node_ports(config, family, &NodeInfo::default(), &NodeAddresses::default(), false);
    matches!(scope, NodePortScope::Addresses(_))
}

fn node_ports(
    config: &Config,
    family: Family,
    node: &NodeInfo,
    addresses: &NodeAddresses,
    loopback: bool,
) -> NodePortScope {
    let local =
        || addresses.local.iter().copied().filter(|ip| Family::of(ip) == family && (loopback || !ip.is_loopback()));
    let in_ranges = |ranges: &[IpNet]| local().filter(|ip| ranges.iter().any(|r| r.contains(ip))).collect();
    let mut listed: Vec<IpAddr> = match &config.node_port_addresses {
        NodePortAddresses::All => return NodePortScope::EveryLocalAddress { loopback },
        NodePortAddresses::Primary => primary_address(config, family, node, addresses).into_iter().collect(),
        NodePortAddresses::PrimaryAndRanges(ranges) => {
            let mut both: Vec<IpAddr> = in_ranges(ranges);
            both.extend(primary_address(config, family, node, addresses));
            both
        }
        NodePortAddresses::Ranges(ranges) => {
            // As in upstream, all addresses of a family without ranges accept node ports.
            let mut of_family = ranges.iter().filter(|r| Family::of_net(r) == family);
            if !ranges.iter().any(|r| Family::of_net(r) == family) || of_family.any(|r| r.prefix_len() == 0) {
                return NodePortScope::EveryLocalAddress { loopback };
            }
            in_ranges(ranges)
        }
    };
    listed.sort_unstable();
    listed.dedup();
    NodePortScope::Addresses(listed)
}
