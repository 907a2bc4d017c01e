use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec as KubeNodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use svclab_spec::NodeSpec;

pub(super) const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

pub(super) fn generate(node: &NodeSpec) -> Node {
    let mut labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), node.name.clone())]);
    if let Some(zone) = &node.zone {
        labels.insert(ZONE_LABEL.to_owned(), zone.clone());
    }
    let internal =
        |address: &std::net::IpAddr| NodeAddress { address: address.to_string(), type_: "InternalIP".to_owned() };
    let hostname = NodeAddress { address: node.name.clone(), type_: "Hostname".to_owned() };
    Node {
        metadata: ObjectMeta { name: Some(node.name.clone()), labels: Some(labels), ..ObjectMeta::default() },
        spec: Some(KubeNodeSpec {
            pod_cidr: node.pod_cidrs.first().map(ToString::to_string),
            pod_cidrs: Some(node.pod_cidrs.iter().map(ToString::to_string).collect()),
            ..KubeNodeSpec::default()
        }),
        status: Some(NodeStatus {
            addresses: Some(node.addresses.iter().map(internal).chain([hostname]).collect()),
            conditions: Some(vec![NodeCondition {
                type_: "Ready".to_owned(),
                status: "True".to_owned(),
                ..NodeCondition::default()
            }]),
            ..NodeStatus::default()
        }),
    }
}

/// Merges a manifest's Node: it replaces labels, annotations, taints and addresses, but not the pod ranges.
pub(super) fn merge_manifest(generated: &mut Node, written: Node) {
    let labels = written.metadata.labels.unwrap_or_default();
    generated.metadata.labels.get_or_insert_default().extend(labels);
    generated.metadata.annotations = written.metadata.annotations;
    generated.metadata.deletion_timestamp = written.metadata.deletion_timestamp;
    let addresses = written.status.and_then(|status| status.addresses);
    if let (Some(status), Some(addresses)) = (&mut generated.status, addresses) {
        status.addresses = Some(addresses);
    }
    if let (Some(spec), Some(written)) = (&mut generated.spec, written.spec) {
        spec.taints = written.taints;
        spec.unschedulable = written.unschedulable;
        spec.provider_id = written.provider_id;
    }
}
