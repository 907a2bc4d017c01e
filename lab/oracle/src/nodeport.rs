//! On which of a node's addresses node ports answer: `nodePortAddresses` and `localhostNodePorts`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::address::Family;
use crate::modes;
use crate::rules::{Reasons, Rule};
use crate::settings::{NodePortAddress, ProxySettings};
use crate::world::{Objects, World};

/// Whether an address accepts node ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepts {
    Yes,
    No,
    /// There are ranges, all of the other family.
    Unclear,
}

/// Whether `address` of `node` does.
pub(crate) fn accepts(objects: &Objects, world: &World, node: &str, address: IpAddr, reasons: &mut Reasons) -> Accepts {
    let settings = &world.proxy;
    let family = Family::of(address);
    if address.is_loopback() {
        let semantics = modes::semantics(settings);
        if semantics.listens_on_localhost {
            reasons.add(Rule::LocalhostListeners, address.to_string());
            return if listens(settings, address) { Accepts::Yes } else { Accepts::No };
        }
        reasons.add(Rule::LocalhostNodePorts, address.to_string());
        let possible = semantics.localhost && settings.localhost_node_ports && family == Family::V4;
        if !possible {
            return Accepts::No;
        }
    }
    let mut entries: Vec<NodePortAddress> = settings.node_port_addresses(family).collect();
    if settings.node_port_addresses.is_empty() {
        if !modes::semantics(settings).primary_node_ports {
            return Accepts::Yes;
        }
        entries.push(NodePortAddress::Primary);
    }
    if entries.is_empty() {
        reasons.add(Rule::NodePortAddressesOtherFamily, address.to_string());
        return Accepts::Unclear;
    }
    let named = entries.iter().any(|entry| match entry {
        NodePortAddress::All => true,
        NodePortAddress::Localhost => address.is_loopback(),
        NodePortAddress::Primary => objects.primary_address(node, family) == Some(address),
        NodePortAddress::Range(range) => range.contains(&address),
    });
    reasons.add(Rule::NodePortAddresses, format!("{address} of {node} is {}named", if named { "" } else { "not " }));
    if named { Accepts::Yes } else { Accepts::No }
}

/// Whether relays listen there (KEP-6032): on 127.0.0.1 and ::1, where an entry is about loopback addresses and nothing else.
fn listens(settings: &ProxySettings, address: IpAddr) -> bool {
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
