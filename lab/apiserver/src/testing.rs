//! A small cluster for this module's tests.

use svclab_spec::{ClusterSpec, Cni, NodeSpec};

use crate::objects::{Store, StoreOptions, parse_manifests};

/// Two IPv4 nodes and nothing else.
pub(super) fn store() -> Store {
    let node = |name: &str, zone: &str, number: u8| NodeSpec {
        name: name.into(),
        zone: Some(zone.into()),
        addresses: vec![format!("172.18.0.{number}").parse().unwrap()],
        extra_addresses: vec![],
        pod_cidrs: vec![format!("10.244.{number}.0/24").parse().unwrap()],
    };
    let spec = ClusterSpec {
        cni: Cni::Bridge,
        node_network: vec!["172.18.0.0/24".parse().unwrap()],
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        nodes: vec![node("node-a", "z1", 2), node("node-b", "z2", 3)],
        ..ClusterSpec::default()
    };
    let vip_ranges = vec!["203.0.113.0/24".parse().unwrap()];
    Store::new(spec, StoreOptions { seed: 0, max_endpoints_per_slice: 100, vip_ranges })
}

/// A service of every type with two pods, an event, a lease.
pub(super) fn fill(store: &mut Store) {
    let text = include_str!("testing.yaml");
    for document in parse_manifests(text).unwrap() {
        store.apply(document.object).unwrap();
    }
    for (kind, value) in [
        (
            crate::objects::ObjectKind::Event,
            serde_json::json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "node-a"}}),
        ),
        (
            crate::objects::ObjectKind::Lease,
            serde_json::json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}),
        ),
    ] {
        let (object, unknown) = crate::objects::Object::from_value(kind, &value).unwrap();
        assert!(unknown.is_empty(), "{unknown:?}");
        store.apply(object).unwrap();
    }
}
