//! The cluster of a scenario, for reports.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use svclab_spec::{ClusterSpec, PodSpec};

/// The cluster's machines before the first step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLayout {
    pub network: Vec<String>,
    pub nodes: Vec<ClusterMachine>,
    pub clients: Vec<ClusterMachine>,
    pub load_balancer: Option<ClusterMachine>,
}

/// A node, a pod, a client or the load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterMachine {
    /// The machine's name; `namespace/name` for a pod.
    pub name: String,
    /// A node's zone, or a pod's use of the host network.
    pub note: String,
    pub addresses: Vec<IpAddr>,
    pub pods: Vec<ClusterMachine>,
}

impl ClusterLayout {
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
