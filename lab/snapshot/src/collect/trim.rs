use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Service, ServiceStatus};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{ServiceCIDR, ServiceCIDRStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

use crate::Objects;

/// Annotations that some version of kube-proxy reads (kubernetes.io, "Well-Known Labels, Annotations and Taints").
const ANNOTATIONS: [&str; 2] = ["service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints"];
/// The prefix of svcproxy's own.
const SVCPROXY: &str = "svcproxy/";
/// `kubectl apply` stores whole objects in this annotation.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(crate) fn objects(objects: &mut Objects) {
    objects.services.iter_mut().for_each(service);
    objects.slices.iter_mut().for_each(slice);
    objects.nodes.iter_mut().for_each(node);
    objects.service_cidrs.iter_mut().for_each(service_cidr);
}

/// Keeps only known fields: those of newer API versions are removed.
fn metadata(meta: &mut ObjectMeta) {
    let all = std::mem::take(meta);
    let mut annotations = all.annotations.unwrap_or_default();
    annotations.retain(|key, _| ANNOTATIONS.contains(&key.as_str()) || key.starts_with(SVCPROXY));
    *meta = ObjectMeta {
        name: all.name,
        namespace: all.namespace,
        uid: all.uid,
        labels: all.labels,
        annotations: (!annotations.is_empty()).then_some(annotations),
        creation_timestamp: all.creation_timestamp,
        deletion_timestamp: all.deletion_timestamp,
        resource_version: all.resource_version,
        ..ObjectMeta::default()
    };
}

pub(super) fn service(service: &mut Service) {
    metadata(&mut service.metadata);
    let load_balancer = service.status.take().and_then(|status| status.load_balancer);
    service.status = load_balancer
        .map(|load_balancer| ServiceStatus { load_balancer: Some(load_balancer), ..ServiceStatus::default() });
}

pub(super) fn slice(slice: &mut EndpointSlice) {
    slice.metadata.managed_fields = None;
    if let Some(annotations) = &mut slice.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

/// Keeps only the condition `Ready`, without its message about the machine.
pub(super) fn node(node: &mut Node) {
    metadata(&mut node.metadata);
    node.spec = node.spec.take().map(|spec| NodeSpec {
        pod_cidr: spec.pod_cidr,
        pod_cidrs: spec.pod_cidrs,
        ..NodeSpec::default()
    });
    node.status = node.status.take().map(|status| {
        let ready = status.conditions.unwrap_or_default().into_iter().filter(|condition| condition.type_ == "Ready");
        let bare = |condition: NodeCondition| NodeCondition {
            type_: condition.type_,
            status: condition.status,
            ..NodeCondition::default()
        };
        NodeStatus { addresses: status.addresses, conditions: Some(ready.map(bare).collect()), ..NodeStatus::default() }
    });
}

pub(super) fn service_cidr(cidr: &mut ServiceCIDR) {
    metadata(&mut cidr.metadata);
    cidr.status = cidr.status.take().map(|status| ServiceCIDRStatus {
        conditions: status.conditions.map(|conditions| {
            let quiet = |condition| Condition { message: String::new(), ..condition };
            conditions.into_iter().map(quiet).collect()
        }),
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn meta() -> Value {
        json!({
            "name": "a", "namespace": "b", "uid": "u", "labels": { "k": "v" }, "resourceVersion": "7",
            "annotations": {
                LAST_APPLIED: "{\"secret\":1}", "other": "secret", "service.kubernetes.io/topology-mode": "Auto",
                "svcproxy/load-balancing": "maglev",
            },
            "managedFields": [{ "manager": "secret" }],
            "ownerReferences": [{ "apiVersion": "v1", "kind": "X", "name": "secret", "uid": "x" }],
        })
    }

    #[test]
    fn services_lose_what_no_proxy_reads() {
        let all = json!({
            "metadata": meta(), "spec": { "clusterIP": "10.0.0.1" },
            "status": {
                "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] },
                "conditions": [{
                    "type": "T", "status": "True", "message": "secret", "reason": "R",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        });
        let mut kept: Service = serde_json::from_value(all).unwrap();
        service(&mut kept);
        let text = serde_json::to_string(&kept).unwrap();
        assert!(!text.contains("secret"), "{text}");
        for part in ["10.0.0.1", "192.0.2.1", "topology-mode", "svcproxy/load-balancing", "\"k\":\"v\"", "\"7\""] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn nodes_lose_all_but_addresses_and_readiness() {
        let all = json!({
            "metadata": meta(), "spec": { "podCIDR": "10.1.0.0/24", "providerID": "secret" },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
                "images": [{ "names": ["secret"] }], "nodeInfo": null,
                "conditions": [
                    { "type": "Ready", "status": "True", "message": "secret" },
                    { "type": "DiskPressure", "status": "False", "message": "secret" },
                ],
            },
        });
        let mut kept: Node = serde_json::from_value(all).unwrap();
        node(&mut kept);
        let text = serde_json::to_string(&kept).unwrap();
        assert!(!text.contains("secret") && !text.contains("Disk"), "{text}");
        assert!(text.contains("10.1.0.0/24") && text.contains("InternalIP") && text.contains("Ready"), "{text}");
    }

    #[test]
    fn slices_stay_but_for_their_history() {
        let all = json!({
            "metadata": meta(), "addressType": "IPv4",
            "endpoints": [{ "addresses": ["10.1.0.2"], "nodeName": "n" }],
        });
        let mut kept: EndpointSlice = serde_json::from_value(all).unwrap();
        slice(&mut kept);
        let text = serde_json::to_string(&kept).unwrap();
        assert!(!text.contains("managedFields") && !text.contains("last-applied"), "{text}");
        assert!(text.contains("10.1.0.2") && text.contains("ownerReferences"), "{text}");
    }
}
