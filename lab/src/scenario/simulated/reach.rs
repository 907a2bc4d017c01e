//! A table of all callers by all targets.

use svclab_audit::audit::{Reach, ReachRow, ReachTable};
use svclab_sim::network::NetworkError;
use svclab_spec::Protocol;

use super::lab::{SimError, SimLab};
use super::outcomes::CallText;
use crate::scenario::file::OneFamily;

impl SimLab {
    /// Returns what becomes of the calls of every node, pod and client to every frontend, in each of the cluster's families.
    pub fn reach(&mut self) -> ReachTable {
        let nodes = self.spec.nodes.iter().map(|node| format!("node/{}", node.name));
        let pods = self.spec.pods.iter().map(|pod| format!("pod/{}/{}", pod.namespace, pod.name));
        let clients = self.spec.clients.iter().map(|client| format!("client/{}", client.name));
        let callers: Vec<String> = nodes.chain(pods).chain(clients).collect();
        let is_ipv4: Vec<bool> = self.spec.node_network.iter().map(|range| range.addr().is_ipv4()).collect();
        let targets = self.targets();
        let of_families = is_ipv4.iter().flat_map(|is_ipv4| targets.iter().map(move |target| (*is_ipv4, target)));
        let rows = of_families.map(|(is_ipv4, (target, protocol))| {
            let (family, named) = if is_ipv4 { (OneFamily::Ipv4, " IPv4") } else { (OneFamily::Ipv6, " IPv6") };
            let named = if self.spec.node_network.len() > 1 { named } else { "" };
            let cells = callers.iter().map(|from| self.cell(from, target, *protocol, family)).collect();
            ReachRow { target: format!("{target} {protocol}{named}"), cells }
        });
        // A Service without such an address has no such frontend.
        let rows = rows.filter(|row| row.cells.iter().any(|cell| *cell != Reach::NoCall)).collect();
        ReachTable { callers, rows }
    }

    fn targets(&self) -> Vec<(String, Protocol)> {
        let mut targets = Vec::new();
        for (key, service) in self.store.services() {
            for port in service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()) {
                let protocol = match port.protocol.as_deref() {
                    Some("UDP") => Protocol::Udp,
                    Some("SCTP") => Protocol::Sctp,
                    _ => Protocol::Tcp,
                };
                let named = format!("{key}:{}", port.name.clone().unwrap_or_else(|| port.port.to_string()));
                targets.push((format!("service/{named}"), protocol));
                let nodes = self.spec.nodes.iter().filter(|_| port.node_port.is_some());
                targets.extend(nodes.map(|node| (format!("nodePort/{named}@{}", node.name), protocol)));
                targets.extend(["loadBalancer", "externalIP"].map(|kind| (format!("{kind}/{named}"), protocol)));
            }
        }
        targets
    }

    fn cell(&mut self, from: &str, to: &str, protocol: Protocol, family: OneFamily) -> Reach {
        let (from, to) = (from.to_owned(), to.to_owned());
        let call = CallText { from, to, protocol: Some(protocol), family: Some(family), via: None };
        match self.explain(&call) {
            Ok(explained) => Reach::of(&explained.outcomes),
            Err(SimError::Step(_) | SimError::Packet(NetworkError::NoSource { .. })) => Reach::NoCall,
            Err(error) => Reach::Unknown(error.to_string()),
        }
    }
}
