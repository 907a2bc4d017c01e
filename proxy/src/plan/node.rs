//! What holds for the whole node.

use std::net::IpAddr;

use super::service_port::internal_masquerade;
use super::{NodePlan, NodePortScope, PodSource};
use crate::config::{Config, DetectLocal, Mode, NodeAddresses, NodePortAddresses};
use crate::model::Family;
use crate::state::NodeInfo;

/// Plans the node in one family.
pub fn plan_node(config: &Config, family: Family, node: &NodeInfo, addresses: &NodeAddresses) -> NodePlan {
    // Only IPv4 can route its loopback range, by way of `route_localnet`.
    let loopback = config.localhost_node_ports && family == Family::V4;
    NodePlan {
        family,
        masquerade_mark: 1 << config.masquerade_bit,
        pods: pods(config, family, node),
        internal_masquerade: internal_masquerade(config.masquerade_all),
        node_ports: node_ports(config, family, node, addresses, loopback),
        primary: primary_addresses(config, family, node, addresses),
        // Relays listen on the node's own addresses: nothing needs to be routed to its loopback range.
        guard_loopback: loopback && config.mode != Mode::Userspace,
        drop_invalid: !config.tcp_be_liberal,
    }
}

/// The primary addresses of one family: the operator's, or those of the Node object, or else those that the kernel
/// shows.
pub fn primary_addresses(config: &Config, family: Family, node: &NodeInfo, addresses: &NodeAddresses) -> Vec<IpAddr> {
    if let Some(address) = config.bind_address.filter(|address| Family::of(address) == family) {
        return vec![address];
    }
    let of_family =
        |ips: &[IpAddr]| -> Vec<IpAddr> { ips.iter().copied().filter(|ip| Family::of(ip) == family).collect() };
    let declared = of_family(&node.internal_ips);
    if declared.is_empty() { of_family(&addresses.primary) } else { declared }
}

fn pods(config: &Config, family: Family, node: &NodeInfo) -> Option<PodSource> {
    let of_family = |ranges: &[ipnet::IpNet]| {
        ranges.iter().find(|r| Family::of_net(r) == family).map(|r| PodSource::Range(r.trunc()))
    };
    match &config.detect_local {
        DetectLocal::ClusterCidr(ranges) => of_family(ranges),
        DetectLocal::NodeCidr => of_family(&node.pod_cidrs),
        DetectLocal::BridgeInterface(name) => Some(PodSource::Interface(name.clone())),
        DetectLocal::InterfaceNamePrefix(prefix) => Some(PodSource::InterfacePrefix(prefix.clone())),
    }
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
    let in_ranges = |ranges: &[ipnet::IpNet]| local().filter(|ip| ranges.iter().any(|r| r.contains(ip))).collect();
    let mut listed: Vec<IpAddr> = match &config.node_port_addresses {
        NodePortAddresses::All => return NodePortScope::EveryLocalAddress { loopback },
        NodePortAddresses::Primary => primary_addresses(config, family, node, addresses),
        NodePortAddresses::PrimaryAndRanges(ranges) => {
            let mut both: Vec<IpAddr> = in_ranges(ranges);
            both.extend(primary_addresses(config, family, node, addresses));
            both
        }
        NodePortAddresses::Ranges(ranges) => {
            // No range of this family restricts nothing in it, as upstream has it.
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
