//! The service ports of a family, found by address and by node port.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::service::ServicePort;

#[derive(Debug, Default)]
pub(crate) struct PortIndex {
    ports: Vec<ServicePort>,
    by_address: HashMap<IpAddr, Vec<usize>>,
    by_node_port: HashMap<u16, Vec<usize>>,
}

impl PortIndex {
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, ServicePort> {
        self.ports.iter()
    }

    /// Returns the ports of services with this address, in the order of the objects.
    pub(crate) fn at(&self, address: IpAddr) -> impl Iterator<Item = &ServicePort> {
        self.by_address.get(&address).into_iter().flatten().map(|at| &self.ports[*at])
    }

    pub(crate) fn with_node_port(&self, number: u16) -> impl Iterator<Item = &ServicePort> {
        self.by_node_port.get(&number).into_iter().flatten().map(|at| &self.ports[*at])
    }
}

impl FromIterator<ServicePort> for PortIndex {
    fn from_iter<I: IntoIterator<Item = ServicePort>>(ports: I) -> PortIndex {
        let mut index = PortIndex { ports: ports.into_iter().collect(), ..PortIndex::default() };
        for (at, port) in index.ports.iter().enumerate() {
            for (_, address) in port.addresses() {
                let known = index.by_address.entry(address).or_default();
                if known.last() != Some(&at) {
                    known.push(at);
                }
            }
            if let Some(number) = port.node_port {
                index.by_node_port.entry(number).or_default().push(at);
            }
        }
        index
    }
}
