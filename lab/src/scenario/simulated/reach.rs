//! A table of all callers by all targets.

use svclab_audit::audit::{Reach, ReachRow, ReachTable};
use svclab_sim::network::NetworkError;
use svclab_spec::Protocol;

use super::lab::{SimError, SimLab};
use super::outcomes::CallText;

impl SimLab {
    /// Returns what becomes of the calls of every node, pod and client to every frontend, in the primary family.
    pub fn reach(&mut self) -> ReachTable {
        let nodes = self.spec.nodes.iter().map(|node| format!("node/{}", node.name));
        let pods = self.spec.pods.iter().map(|pod| format!("pod/{}/{}", pod.namespace, pod.name));
        let clients = self.spec.clients.iter().map(|client| format!("client/{}", client.name));
        let callers: Vec<String> = nodes.chain(pods).chain(clients).collect();
        let rows = self.targets().into_iter().map(|(target, protocol)| {
            let cells = callers.iter().map(|from| self.cell(from, &target, protocol)).collect();
            ReachRow { target: format!("{target} {protocol}"), cells }
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

    fn cell(&mut self, from: &str, to: &str, protocol: Protocol) -> Reach {
        let call = CallText { from: from.to_owned(), to: to.to_owned(), protocol: Some(protocol), via: None };
        match self.explain(&call) {
            Ok(explained) => Reach::of(&explained.outcomes),
            Err(SimError::Step(_) | SimError::Packet(NetworkError::NoSource { .. })) => Reach::NoCall,
            Err(error) => Reach::Unknown(error.to_string()),
        }
    }
}
