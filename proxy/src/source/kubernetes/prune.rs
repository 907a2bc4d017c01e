//! Removes fields that the proxy does not read, and computes a fingerprint of the rest: most Node updates (conditions)
//! and many of Services (others' annotations) cause no sync.

use std::collections::BTreeMap;
use std::io;

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Service, ServiceStatus};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::model::{ANNOTATION_PREFIX, LABEL_HEADLESS, LABEL_PROXY_NAME, LABEL_SERVICE_NAME};

/// An annotation that is not part of the fingerprint
/// (<https://kubernetes.io/docs/reference/labels-annotations-taints/#endpoints-last-change-trigger-time>).
pub(super) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Half of a SHA-256.
pub(super) type Fingerprint = [u8; 16];

pub(super) trait Prune: Serialize {
    fn prune(&mut self);
    fn metadata(&mut self) -> &mut ObjectMeta;

    fn fingerprint(&mut self) -> Fingerprint {
        let version = self.metadata().resource_version.take();
        let mut annotations = self.metadata().annotations.take();
        let trigger = annotations.as_mut().and_then(|all| all.remove_entry(TRIGGER_TIME));
        self.metadata().annotations = annotations.filter(|all| !all.is_empty());
        let mut digest = HashWriter(Sha256::new());
        // Serialization cannot fail: all keys are strings.
        let written = serde_json::to_writer(&mut digest, self);
        debug_assert!(written.is_ok(), "{written:?}");
        self.metadata().resource_version = version;
        if let Some((key, time)) = trigger {
            self.metadata().annotations.get_or_insert_default().insert(key, time);
        }
        let mut half = [0; 16];
        half.copy_from_slice(&digest.0.finalize()[..16]);
        half
    }
}

struct HashWriter(Sha256);

impl io::Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Prune for Service {
    fn prune(&mut self) {
        // No update changes the creation time, which decides between two Services with one address.
        let creation_timestamp = self.metadata.creation_timestamp.take();
        let annotations = self.metadata.annotations.take().and_then(|all| only(all, is_for_this_proxy));
        let metadata = kept(std::mem::take(&mut self.metadata), &[LABEL_PROXY_NAME]);
        self.metadata = ObjectMeta { creation_timestamp, annotations, ..metadata };
        if let Some(spec) = &mut self.spec {
            spec.selector = None;
        }
        let load_balancer = self.status.take().and_then(|status| status.load_balancer);
        self.status = load_balancer.map(|l| ServiceStatus { load_balancer: Some(l), conditions: None });
    }

    fn metadata(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Prune for EndpointSlice {
    fn prune(&mut self) {
        let labels = [LABEL_SERVICE_NAME, LABEL_PROXY_NAME, LABEL_HEADLESS];
        self.metadata = kept(std::mem::take(&mut self.metadata), &labels);
        // Protobuf does not tell an empty list from none.
        self.ports = self.ports.take().filter(|ports| !ports.is_empty());
        for endpoint in self.endpoints.iter_mut().flatten() {
            let Endpoint { addresses, conditions, hints, node_name, .. } = std::mem::take(endpoint);
            *endpoint = Endpoint { addresses, conditions, hints, node_name, ..Endpoint::default() };
        }
    }

    fn metadata(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Prune for Node {
    fn prune(&mut self) {
        let deletion_timestamp = self.metadata.deletion_timestamp.take();
        let labels = self.metadata.labels.take();
        // All labels stay: a Node has few, one of them the zone.
        self.metadata = ObjectMeta { labels, deletion_timestamp, ..kept(std::mem::take(&mut self.metadata), &[]) };
        if let Some(NodeSpec { pod_cidr, pod_cidrs, taints, .. }) = self.spec.take() {
            self.spec = Some(NodeSpec { pod_cidr, pod_cidrs, taints, ..NodeSpec::default() });
        }
        let addresses = self.status.take().and_then(|status| status.addresses);
        self.status = addresses.map(|a| NodeStatus { addresses: Some(a), ..NodeStatus::default() });
    }

    fn metadata(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Prune for ServiceCIDR {
    fn prune(&mut self) {
        self.metadata = kept(std::mem::take(&mut self.metadata), &[]);
        self.status = None;
    }

    fn metadata(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Returns identity, version, the given labels and the trigger time.
fn kept(metadata: ObjectMeta, labels: &[&str]) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        resource_version: metadata.resource_version,
        labels: metadata.labels.and_then(|all| only(all, |key| labels.contains(&key))),
        annotations: metadata.annotations.and_then(|all| only(all, |key| key == TRIGGER_TIME)),
        ..ObjectMeta::default()
    }
}

pub(super) fn is_for_this_proxy(annotation: &str) -> bool {
    annotation.starts_with(ANNOTATION_PREFIX)
}

/// Returns the entries with these keys; `None` if there are none.
fn only(mut map: BTreeMap<String, String>, is_kept: impl Fn(&str) -> bool) -> Option<BTreeMap<String, String>> {
    map.retain(|key, _| is_kept(key));
    (!map.is_empty()).then_some(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(version: &str, pod: &str, ready: bool) -> EndpointSlice {
        let slice = json!({
            "metadata": {
                "name": "web-1", "namespace": "default", "resourceVersion": version, "uid": "u",
                "labels": {LABEL_SERVICE_NAME: "web", "endpointslice.kubernetes.io/managed-by": "x"},
                "annotations": {TRIGGER_TIME: version, "other": "x"},
                "managedFields": [{"manager": "m"}],
            },
            "addressType": "IPv4",
            "endpoints": [{
                "addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "nodeName": "n1", "zone": "z",
                "targetRef": {"kind": "Pod", "name": pod},
            }],
        });
        serde_json::from_value(slice).expect("a slice")
    }

    #[test]
    fn fields_that_are_not_read_do_not_change_the_fingerprint() {
        let print = |mut slice: EndpointSlice| {
            slice.prune();
            (slice.fingerprint(), slice)
        };
        let (first, slimmed) = print(slice("1", "a", true));
        assert_eq!(first, print(slice("2", "b", true)).0);
        assert_ne!(first, print(slice("1", "a", false)).0);
        assert_eq!(
            serde_json::to_value(&slimmed).expect("json"),
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {
                    "name": "web-1", "namespace": "default", "resourceVersion": "1",
                    "labels": {LABEL_SERVICE_NAME: "web"}, "annotations": {TRIGGER_TIME: "1"},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n1"}],
            })
        );
    }

    #[test]
    fn a_heartbeat_of_a_node_does_not_change_the_fingerprint() {
        let node = |conditions: &str, zone: &str| {
            let node = json!({
                "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": zone}},
                "spec": {"podCIDR": "10.0.0.0/24", "providerID": "x"},
                "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                           "conditions": [{"type": "Ready", "status": conditions}]},
            });
            let mut node: Node = serde_json::from_value(node).expect("a node");
            node.prune();
            node.fingerprint()
        };
        assert_eq!(node("True", "a"), node("False", "a"));
        assert_ne!(node("True", "a"), node("True", "b"));
    }

    #[test]
    fn a_services_annotations_for_this_proxy_change_the_fingerprint() {
        let print = |annotations: serde_json::Value| {
            let service = json!({"metadata": {"name": "web", "annotations": annotations}});
            let mut service: Service = serde_json::from_value(service).expect("a service");
            service.prune();
            service.fingerprint()
        };
        assert_eq!(print(json!({"other": "x"})), print(json!({})));
        assert_ne!(print(json!({"svcproxy/flow-fate": "reset"})), print(json!({})));
        assert_ne!(print(json!({"svcproxy/flow-fate": "reset"})), print(json!({"svcproxy/flow-fate": "keep"})));
    }

    #[test]
    fn pruning_keeps_a_services_addresses_and_age() {
        let service = json!({
            "metadata": {
                "name": "web", "namespace": "default", "labels": {"app": "web"}, "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"clusterIP": "10.96.0.1", "selector": {"app": "web"}, "ports": [{"port": 80}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}, "conditions": []},
        });
        let mut service: Service = serde_json::from_value(service).expect("a service");
        service.prune();
        assert_eq!(
            serde_json::to_value(&service).expect("json"),
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "web", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]},
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
            })
        );
    }
}
