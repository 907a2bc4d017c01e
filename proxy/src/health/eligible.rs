//! KEP-3836: a node to be deleted answers 503 on `/healthz`, so that load balancers remove it while it serves existing
//! connections.

use k8s_openapi::api::core::v1::Node;

use crate::mutants;

/// The cluster autoscaler adds this taint before it deletes a node.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

pub fn is_eligible(node: &Node) -> bool {
    if let Some(turned) = mutants::is_eligible(node) {
        return turned;
    }
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    node.metadata.deletion_timestamp.is_none() && taints.all(|taint| taint.key != TO_BE_DELETED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_node_that_will_be_deleted_is_not_eligible() {
        let eligible = |node: Value| is_eligible(&serde_json::from_value(node).unwrap());
        let tainted = |key: &str| json!({ "spec": { "taints": [{ "key": key, "effect": "NoSchedule" }] } });
        assert!(eligible(json!({})));
        assert!(eligible(tainted("node.kubernetes.io/unschedulable")), "a cordoned node serves on");
        assert!(!eligible(tainted(TO_BE_DELETED)));
        assert!(!eligible(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })));
    }
}
