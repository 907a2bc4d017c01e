//! On which of a node's addresses node ports answer: `nodePortAddresses` and `localhostNodePorts`.

use std::net::IpAddr;

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
    /// Over TCP a program on the node answers, which no rule leads to; other protocols refuse.
    ByListener,
}

/// Whether `address` of `node` does.
pub(crate) fn accepts(objects: &Objects, world: &World, node: &str, address: IpAddr, reasons: &mut Reasons) -> Accepts {
    let settings = &world.proxy;
    let family = Family::of(address);
    if address.is_loopback() {
        let semantics = modes::semantics(settings);
        let possible = semantics.localhost && settings.localhost_node_ports && family == Family::V4;
        if semantics.listens_on_localhost && names_loopback(settings, address) {
            reasons.add(Rule::LocalhostListeners, address.to_string());
            return Accepts::ByListener;
        }
        reasons.add(Rule::LocalhostNodePorts, address.to_string());
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

/// A range of all addresses asks for no listener, nor does the word for them (KEP-6032).
fn names_loopback(settings: &ProxySettings, address: IpAddr) -> bool {
    settings.node_port_addresses.iter().any(|entry| match entry {
        NodePortAddress::Localhost => true,
        NodePortAddress::Range(range) => range.contains(&address) && range.network().is_loopback(),
        NodePortAddress::Primary | NodePortAddress::All => false,
    })
}
