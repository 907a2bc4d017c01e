//! A small cluster for tests.
#![allow(clippy::unwrap_used, reason = "tests")]

use svclab_spec::{ClusterSpec, NodeSpec};

use crate::objects::{Store, StoreOptions, parse_manifests};

/// `node-a` in zone `z1` and `node-b` in `z2`, with IPv4 or with both families.
pub fn spec(dual_stack: bool) -> ClusterSpec {
    fn ranges<T: std::str::FromStr<Err: std::fmt::Debug>>(v4: &str, v6: &str, dual_stack: bool) -> Vec<T> {
        [v4, v6].iter().take(1 + usize::from(dual_stack)).map(|text| text.parse().unwrap()).collect()
    }
    let node = |name: &str, zone: &str, number: u8| NodeSpec {
        name: name.into(),
        zone: Some(zone.into()),
        addresses: ranges(&format!("172.18.0.{number}"), &format!("fd00:172:18::{number}"), dual_stack),
        extra_addresses: vec![],
        pod_cidrs: ranges(&format!("10.244.{number}.0/24"), &format!("fd00:10:244:{number}::/64"), dual_stack),
    };
    ClusterSpec {
        node_network: ranges("172.18.0.0/24", "fd00:172:18::/64", dual_stack),
        service_cidrs: ranges("10.96.0.0/16", "fd00:10:96::/112", dual_stack),
        cluster_cidrs: ranges("10.244.0.0/16", "fd00:10:244::/48", dual_stack),
        nodes: vec![node("node-a", "z1", 2), node("node-b", "z2", 3)],
        ..ClusterSpec::default()
    }
}

/// Returns a store with an IPv4 range of load-balancer addresses.
pub fn store(dual_stack: bool, seed: u64) -> Store {
    let vip_ranges = vec!["203.0.113.0/24".parse().unwrap()];
    Store::new(spec(dual_stack), StoreOptions { seed, max_endpoints_per_slice: 100, vip_ranges })
}

/// Returns an IPv4 store with a Service of each type and two pods.
pub fn filled_store() -> Store {
    let mut store = store(false, 0);
    fill(&mut store);
    store
}

/// Adds a Service of each type and two pods.
pub fn fill(store: &mut Store) {
    for document in parse_manifests(include_str!("testing.yaml")).unwrap() {
        store.apply(document.object).unwrap();
    }
}
