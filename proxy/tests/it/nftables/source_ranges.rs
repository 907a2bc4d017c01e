//! The annotation `svcproxy/source-ranges`: elements of the firewall's sets.

use serde_json::json;
use svcproxy::kernel::nftables::FakeNftTable;
use svcproxy::model::{Change, Family};
use svcproxy::nftables::text::rule_text;
use svcproxy::testing::{self, key};

use super::{NftablesProxy, content, proxy as proxy_of, settle};

fn web(ranges: Option<&str>) -> Change {
    let annotations = ranges.map(|ranges| json!({ "svcproxy/source-ranges": ranges }));
    let spec = json!({
        "type": "NodePort", "clusterIP": "10.96.0.1", "ports": [{ "port": 80, "nodePort": 30080 }],
        "externalIPs": ["198.51.100.7"],
    });
    let service = json!({ "metadata": { "name": "web", "annotations": annotations }, "spec": spec });
    Change::Service(key("web"), Some(testing::object(service)))
}

fn firewall(proxy: &mut NftablesProxy) -> Vec<String> {
    content(proxy).chains["firewall-check"].rules.iter().map(|rule| rule_text(rule, Family::V4)).collect()
}

/// Returns how many elements each set of the firewall has.
fn counts(proxy: &mut NftablesProxy) -> [usize; 4] {
    let content = content(proxy);
    let count = |name| content.elements.keys().filter(|(set, _)| *set == name).count();
    ["restricted", "allowed", "restricted-nodeports", "allowed-nodeports"].map(|name| count(format!("firewall-{name}")))
}

#[test]
fn node_ports_have_sets_once_a_service_asks() {
    let mut proxy = proxy_of(FakeNftTable::new(Family::V4));
    proxy.apply(&[web(None), testing::slice_of_hosts("web", &["10.244.1.1"], "TCP")]);
    proxy.sync().unwrap();
    let before = firewall(&mut proxy);
    assert_eq!((before.len(), counts(&mut proxy)), (1, [0; 4]));

    // The kernel accepts no overlapping ranges.
    proxy.apply(&[web(Some("192.0.2.0/24,192.0.2.7/32,203.0.113.0/24,2001:db8::/32"))]);
    assert!(proxy.needs_full(), "the sets are new");
    proxy.sync().unwrap();
    let node_ports = "meta l4proto . th dport @firewall-restricted-nodeports ip daddr @nodeport-ips \
                      meta l4proto . th dport . ip saddr != @firewall-allowed-nodeports drop";
    assert_eq!(firewall(&mut proxy), [&before[0], node_ports]);
    assert_eq!(counts(&mut proxy), [1, 2, 1, 2]);
    settle(&mut proxy);

    proxy.apply(&[web(Some("2001:db8::/32"))]);
    proxy.sync().unwrap();
    assert_eq!(counts(&mut proxy), [1, 0, 1, 0], "no source of this family is allowed");
    proxy.apply(&[web(None)]);
    proxy.sync().unwrap();
    assert_eq!(counts(&mut proxy), [0; 4]);
}
