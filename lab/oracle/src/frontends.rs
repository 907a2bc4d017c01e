//! Where services can be called, for those who ask about all of it.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::address::Family;
use crate::question::Protocol;
use crate::service::{FrontendKind, ServicePort, ServicePortName};

/// An address of a service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFrontend {
    /// Whose.
    pub service: ServicePortName,
    /// Of which kind.
    pub kind: FrontendKind,
    /// The address; none of a node port, which is at nodes' addresses.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// Over which protocol.
    pub protocol: Protocol,
    /// In which family.
    pub family: Family,
    /// Sources that a load balancer's address is for; empty: all.
    pub source_ranges: Vec<IpNet>,
    /// Every endpoint of its slices, ready or not, with its node.
    pub endpoints: Vec<(SocketAddr, Option<String>)>,
}

pub(crate) fn of(port: &ServicePort) -> impl Iterator<Item = ServiceFrontend> + '_ {
    let frontend = |kind, address, number| ServiceFrontend {
        service: port.name.clone(),
        kind,
        address,
        port: number,
        protocol: port.name.protocol,
        family: port.family,
        source_ranges: port.source_ranges.clone(),
        endpoints: port.endpoints.iter().map(|endpoint| (endpoint.address, endpoint.node.clone())).collect(),
    };
    let addresses = port.addresses().map(move |(kind, address)| frontend(kind, Some(address), port.port));
    addresses.chain(port.node_port.map(move |number| frontend(FrontendKind::NodePort, None, number)))
}
