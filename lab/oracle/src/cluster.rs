use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::address::{self, Family};
use crate::oracle::Oracle;
use crate::question::Protocol;
use crate::world::{Objects, PodName, World};

#[derive(Debug, Clone, PartialEq)]
pub struct ClusterModel {
    pub objects: Objects,
    pub world: World,
}

impl ClusterModel {
    pub fn oracle(&self) -> Oracle<'_> {
        Oracle::new(&self.objects, &self.world)
    }

    /// Returns the families, that of the first address first.
    pub(crate) fn families(&self) -> Vec<Family> {
        let mut families = Vec::new();
        for address in self.world.nodes.iter().flat_map(|node| &node.addresses) {
            if !families.contains(&Family::of(*address)) {
                families.push(Family::of(*address));
            }
        }
        families
    }

    /// Returns the ports on which pods listen: the slice's ports for every endpoint of every slice.
    pub(crate) fn listening_ports(&self) -> BTreeMap<PodName, BTreeSet<(Protocol, u16)>> {
        let mut listening_ports: BTreeMap<PodName, BTreeSet<(Protocol, u16)>> = BTreeMap::new();
        for slice in &self.objects.slices {
            let ports =
                slice.ports.iter().flatten().filter_map(|port| {
                    Some((Protocol::parse(port.protocol.as_deref())?, u16::try_from(port.port?).ok()?))
                });
            let ports: Vec<(Protocol, u16)> = ports.filter(|(_, port)| *port != 0).collect();
            for endpoint in slice.endpoints.iter().flatten() {
                let address = endpoint.addresses.first().and_then(|text| address::parse(text));
                if let Some(pod) = address.and_then(|address| self.world.pod_at(address)) {
                    listening_ports.entry(pod.name.clone()).or_default().extend(ports.iter().copied());
                }
            }
        }
        listening_ports
    }

    /// Returns the pod that answers a packet to `to` that no service translates.
    pub(crate) fn listener(&self, to: SocketAddr, protocol: Protocol) -> Option<&PodName> {
        let listening_ports = self.listening_ports();
        let has = |own: &[IpAddr]| own.contains(&to.ip());
        let pods = self.world.pods.iter().filter(|pod| {
            let node = self.world.node(&pod.node).filter(|_| pod.host_network);
            has(&pod.addresses) || node.is_some_and(|node| node.has(to.ip()))
        });
        let mut listening = pods
            .filter(|pod| listening_ports.get(&pod.name).is_some_and(|ports| ports.contains(&(protocol, to.port()))));
        listening.next().map(|pod| &pod.name)
    }
}
