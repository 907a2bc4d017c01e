use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::address::Family;
use crate::modes;
use crate::rules::{Reasons, Rule};
use crate::settings::{NodePortAddress, ProxySettings};
use crate::world::{Objects, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodePortAcceptance {
    Yes,
    No,
    /// All ranges are of the other family: the documentation closes this family's addresses, kube-proxy opens them. Or
    /// kube-proxy's modes differ, and the proxy is in none of them.
    Unclear,
}

pub(crate) fn accepts(
    objects: &Objects,
    world: &World,
    node: &str,
    address: IpAddr,
    reasons: &mut Reasons,
) -> NodePortAcceptance {
    let settings = &world.proxy;
    let family = Family::of(address);
    let semantics = modes::semantics(settings);
    if address.is_loopback() {
        if semantics.leaves_differences_open {
            return NodePortAcceptance::Unclear;
        }
        if semantics.listens_on_localhost {
            reasons.add(Rule::LocalhostListeners, address.to_string());
            return if relay_listens(settings, address) { NodePortAcceptance::Yes } else { NodePortAcceptance::No };
        }
        reasons.add(Rule::LocalhostNodePorts, address.to_string());
        let possible = semantics.localhost && settings.localhost_node_ports && family == Family::V4;
        if !possible {
            return NodePortAcceptance::No;
        }
    }
    let mut entries: Vec<NodePortAddress> = settings.node_port_addresses(family).collect();
    if settings.node_port_addresses.is_empty() {
        if !semantics.primary_node_ports {
            return NodePortAcceptance::Yes;
        }
        if semantics.leaves_differences_open && objects.primary_address(node, family) != Some(address) {
            return NodePortAcceptance::Unclear;
        }
        entries.push(NodePortAddress::Primary);
    }
    if entries.is_empty() {
        reasons.add(Rule::NodePortAddressesOtherFamily, address.to_string());
        return NodePortAcceptance::Unclear;
    }
    let named = entries.iter().any(|entry| match entry {
        NodePortAddress::All => true,
        NodePortAddress::Localhost => address.is_loopback(),
        NodePortAddress::Primary => objects.primary_address(node, family) == Some(address),
        NodePortAddress::Range(range) => range.contains(&address),
    });
    reasons.add(Rule::NodePortAddresses, format!("{address} of {node} is {}named", if named { "" } else { "not " }));
    if named { NodePortAcceptance::Yes } else { NodePortAcceptance::No }
}

/// Whether a relay listens on `address`, 127.0.0.1 or ::1 (KEP-6032): an entry must contain it and only loopback
/// addresses.
fn relay_listens(settings: &ProxySettings, address: IpAddr) -> bool {
    let family = Family::of(address);
    let of_loopback = |range: IpNet| range.network().is_loopback() && range.broadcast().is_loopback();
    let asks = |entry: NodePortAddress| match entry {
        NodePortAddress::Localhost => true,
        NodePortAddress::Range(range) => of_loopback(range) && range.contains(&address),
        NodePortAddress::Primary | NodePortAddress::All => false,
    };
    let everything = settings.node_port_addresses.contains(&NodePortAddress::All);
    let is_localhost = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].contains(&address);
    is_localhost && !everything && settings.node_port_addresses(family).any(asks)
}
