use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::address::Family;
use crate::question::Protocol;
use crate::service::{FrontendKind, ServicePort, ServicePortName};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFrontend {
    pub service: ServicePortName,
    pub kind: FrontendKind,
    /// `None`: a node port, at the addresses of every node.
    pub address: Option<IpAddr>,
    pub port: u16,
    pub protocol: Protocol,
    pub family: Family,
    /// The sources that `loadBalancerSourceRanges` or the annotation name.
    pub source_ranges: Vec<IpNet>,
    /// Every endpoint, ready or not, with its node.
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
        source_ranges: match kind {
            FrontendKind::NodePort | FrontendKind::ExternalIp => port.annotated_ranges.clone().unwrap_or_default(),
            FrontendKind::LoadBalancerIp => port.source_ranges.clone(),
            FrontendKind::ClusterIp => Vec::new(),
        },
        endpoints: port.endpoints.iter().map(|endpoint| (endpoint.address, endpoint.node.clone())).collect(),
    };
    let addresses = port.addresses().map(move |(kind, address)| frontend(kind, Some(address), port.port));
    addresses.chain(port.node_port.map(move |number| frontend(FrontendKind::NodePort, None, number)))
}
