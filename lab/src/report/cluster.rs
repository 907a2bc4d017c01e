//! The cluster of a scenario as a report shows it.

use std::net::IpAddr;

use serde::Serialize;
use svclab_spec::{ClusterSpec, PodSpec};

/// Machines and pods before the first step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLayout {
    /// Ranges of the node network.
    pub network: Vec<String>,
    /// Nodes in order.
    pub nodes: Vec<ClusterMachine>,
    /// Clients outside.
    pub clients: Vec<ClusterMachine>,
    /// The cloud load balancer, if there is one.
    pub load_balancer: Option<ClusterMachine>,
}

/// A node, a pod or another machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ClusterMachine {
    /// Its name; a pod's with its namespace.
    pub name: String,
    /// What else there is to say of it.
    pub note: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// A node's pods.
    pub pods: Vec<ClusterMachine>,
}

impl ClusterLayout {
    /// That of a specification.
    pub fn of(spec: &ClusterSpec) -> ClusterLayout {
        let machine = |name: &str, addresses: &[IpAddr]| ClusterMachine {
            name: name.to_owned(),
            addresses: addresses.to_vec(),
            ..ClusterMachine::default()
        };
        let pod = |pod: &PodSpec| ClusterMachine {
            note: if pod.host_network { "host network".to_owned() } else { String::new() },
            ..machine(&format!("{}/{}", pod.namespace, pod.name), &pod.addresses)
        };
        let nodes = spec.nodes.iter().map(|node| ClusterMachine {
            note: node.zone.as_ref().map(|zone| format!("zone {zone}")).unwrap_or_default(),
            pods: spec.pods.iter().filter(|pod| pod.node == node.name).map(pod).collect(),
            ..machine(&node.name, &[&node.addresses[..], &node.extra_addresses].concat())
        });
        ClusterLayout {
            network: spec.node_network.iter().map(ToString::to_string).collect(),
            nodes: nodes.collect(),
            clients: spec.clients.iter().map(|client| machine(&client.name, &client.addresses)).collect(),
            load_balancer: spec.load_balancer.as_ref().map(|one| machine("load balancer", &one.addresses)),
        }
    }
}
