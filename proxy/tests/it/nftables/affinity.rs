//! The annotation `svcproxy/affinity-across-ports`: sets of clients that the ports of a Service share.

use std::collections::BTreeSet;

use serde_json::json;
use svcproxy::kernel::nftables::FakeNftTable;
use svcproxy::model::{Change, Family};
use svcproxy::nftables::Statement;
use svcproxy::testing::{self, key};

use super::{NftablesProxy, content, proxy as proxy_of, settle};

fn web(across_ports: &str) -> Change {
    let spec = json!({
        "clusterIP": "10.96.0.1", "sessionAffinity": "ClientIP",
        "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 53, "protocol": "UDP" }],
    });
    let metadata = json!({ "name": "web", "annotations": { "svcproxy/affinity-across-ports": across_ports } });
    Change::Service(key("web"), Some(testing::object(json!({ "metadata": metadata, "spec": spec }))))
}

/// Returns a slice for one port of the Service.
fn slice(port: &str, hosts: &[u8]) -> Change {
    let endpoints: Vec<_> = hosts.iter().map(|host| json!({ "addresses": [format!("10.244.0.{host}")] })).collect();
    let (number, protocol) = if port == "a" { (8080, "TCP") } else { (5353, "UDP") };
    let ports = json!([{ "name": port, "port": number, "protocol": protocol }]);
    match testing::slice("web", json!(endpoints), ports) {
        Change::EndpointSlice(_, object) => Change::EndpointSlice(key(&format!("web-{port}")), object),
        other => other,
    }
}

/// Returns the sets of clients, without prefix and hash.
fn sets(proxy: &mut NftablesProxy) -> Vec<String> {
    let sets = content(proxy).sets;
    let names = sets.keys().filter_map(|name| name.strip_prefix("affinity-")?.split_once('-'));
    names.map(|(_, name)| name.to_owned()).collect()
}

/// Returns, for a port's chain or the chains of its endpoints, the sets in the order of rules.
fn used(proxy: &mut NftablesProxy, prefix: &str, port: &str) -> Vec<String> {
    let chains = content(proxy).chains;
    let chains = chains.iter().filter(|(name, _)| name.starts_with(prefix) && name.contains(port));
    let rules = chains.flat_map(|(_, chain)| &chain.rules).flat_map(|rule| &rule.statements);
    let sets = rules.filter_map(|statement| match statement {
        Statement::InSet { set, .. } | Statement::Remember { set, .. } => set.split("__").last().map(str::to_owned),
        _ => None,
    });
    sets.collect()
}

#[test]
fn ports_share_the_sets_of_addresses() {
    let mut proxy = proxy_of(FakeNftTable::new(Family::V4));
    proxy.apply(&[web("all"), slice("a", &[1, 2]), slice("b", &[1, 2])]);
    settle(&mut proxy);
    let mut both = sets(&mut proxy);
    both.sort();
    assert_eq!(both, ["default/web__10.244.0.1", "default/web__10.244.0.2"]);
    for port in ["tcp/a", "udp/b"] {
        assert_eq!(used(&mut proxy, "service-", port), ["10.244.0.1", "10.244.0.2"], "{port}");
        let remembered: BTreeSet<String> = used(&mut proxy, "endpoint-", port).into_iter().collect();
        assert_eq!(remembered.into_iter().collect::<Vec<_>>(), ["10.244.0.1", "10.244.0.2"], "{port}");
    }
}

#[test]
fn a_set_stays_as_long_as_a_port_uses_it() {
    let mut proxy = proxy_of(FakeNftTable::new(Family::V4));
    proxy.apply(&[web("all"), slice("a", &[1, 2]), slice("b", &[1, 2])]);
    settle(&mut proxy);
    let count = |proxy: &mut NftablesProxy, change: Change| {
        proxy.apply(&[change]);
        settle(proxy);
        sets(proxy).len()
    };
    assert_eq!(count(&mut proxy, slice("a", &[1])), 2, "the other port uses it");
    assert_eq!(count(&mut proxy, slice("b", &[1])), 1);
    assert_eq!(count(&mut proxy, slice("a", &[1, 3])), 2);
    // The address moves to the other port in one update, so the set stays.
    proxy.apply(&[slice("a", &[1]), slice("b", &[1, 3])]);
    proxy.sync().unwrap();
    let change = proxy.mode().table().changes.last().unwrap();
    assert_eq!((change.add_sets.len(), change.delete_sets.len()), (0, 0));
    settle(&mut proxy);
    assert_eq!(sets(&mut proxy).len(), 2);
    assert_eq!(count(&mut proxy, Change::Service(key("web"), None)), 0);
}

/// The index of an endpoint depends on the history of its port.
#[test]
fn ports_with_other_histories_look_up_clients_in_one_order() {
    let mut proxy = proxy_of(FakeNftTable::new(Family::V4));
    proxy.apply(&[web("all"), slice("a", &[3]), slice("b", &[1])]);
    settle(&mut proxy);
    proxy.apply(&[slice("a", &[1, 2, 3]), slice("b", &[1, 2, 3])]);
    settle(&mut proxy);
    let all = ["10.244.0.1", "10.244.0.2", "10.244.0.3"];
    assert_eq!([used(&mut proxy, "service-", "tcp/a"), used(&mut proxy, "service-", "udp/b")], [all, all]);
}

#[test]
fn a_changed_annotation_ends_as_a_start_with_it() {
    let content_with = |histories: &[&str]| {
        let mut proxy = proxy_of(FakeNftTable::new(Family::V4));
        proxy.apply(&[slice("a", &[1, 2]), slice("b", &[1, 2])]);
        for across_ports in histories {
            proxy.apply(&[web(across_ports)]);
            settle(&mut proxy);
        }
        let content = content(&mut proxy);
        (content.chains, content.sets)
    };
    assert_eq!(content_with(&["all", "none"]), content_with(&["none"]));
    assert_eq!(content_with(&["none", "all"]), content_with(&["all"]));
    assert_ne!(content_with(&["none"]), content_with(&["all"]));
}
