//! Consistent hashing: tables of slots in the maps of endpoints.

use std::collections::BTreeMap;

use serde_json::json;
use svcproxy::kernel::nftables::FakeNftTable;
use svcproxy::model::{Change, Family};
use svcproxy::nftables::{ElementValue, Name};
use svcproxy::testing::{self, key};

use super::{NftablesProxy, content, proxy as proxy_of, settle};

fn hashed(balancing: &str) -> Change {
    let annotations = json!({ "svcproxy/load-balancing": balancing });
    let spec = json!({ "type": "NodePort", "clusterIP": "10.96.0.1", "ports": [{ "port": 80, "nodePort": 30080 }] });
    let service = json!({ "metadata": { "name": "web", "annotations": annotations }, "spec": spec });
    Change::Service(key("web"), Some(testing::object(service)))
}

/// Returns each slot's endpoint in a map.
fn slots(proxy: &mut NftablesProxy, map: &str) -> Vec<String> {
    let content = content(proxy);
    let of_map = content.elements.iter().filter(|((set, _), _)| *set == map);
    let slots = of_map.map(|((_, key), value)| {
        let ElementValue::Endpoint(endpoint) = value else { panic!("{value:?}") };
        (key.split_number().unwrap().1, endpoint.as_endpoint().unwrap().to_string())
    });
    let slots: BTreeMap<u32, String> = slots.collect();
    assert!(slots.keys().copied().eq(0..u32::try_from(slots.len()).unwrap()));
    slots.into_values().collect()
}

#[test]
fn consistent_hashing_fills_tables_and_sends_changed_slots_only() {
    let mut proxy = proxy_of(FakeNftTable::new(Family::V4));
    let hosts = |hosts: &[&str]| testing::slice_of_hosts("web", hosts, "TCP");
    let [one, two, three, four] = ["10.244.1.1", "10.244.1.2", "10.244.1.3", "10.244.1.4"];
    proxy.apply(&[hashed("maglev"), hosts(&[one])]);
    proxy.sync().unwrap();
    assert!(content(&mut proxy).chains.contains_key("cluster-ip-tcp-1"), "one endpoint needs no table");
    proxy.apply(&[hosts(&[one, two, three])]);
    proxy.sync().unwrap();
    let chain = content(&mut proxy).chains["tcp-maglev-1021"].rules[0].clone();
    let text = svcproxy::nftables::text::rule_text(&chain, Family::V4);
    let key = "ip daddr . meta l4proto . th dport";
    let pick =
        format!("meta l4proto tcp dnat ip to {key} . jhash ip saddr mod 1021 seed 0x73657276 map @service-endpoints");
    assert_eq!(text, pick);
    let before = slots(&mut proxy, "service-endpoints");
    assert_eq!((before.len(), &before), (1021, &slots(&mut proxy, "nodeport-endpoints")));
    // Another history, in another order, leads to the same table.
    let mut other = proxy_of(FakeNftTable::new(Family::V4));
    other.apply(&[hashed("maglev"), hosts(&[four, three, one])]);
    other.sync().unwrap();
    other.apply(&[hosts(&[three, two, one])]);
    other.sync().unwrap();
    assert_eq!(slots(&mut other, "service-endpoints"), before);
    proxy.apply(&[hosts(&[one, two, three, four])]);
    let report = proxy.sync().unwrap();
    let after = slots(&mut proxy, "service-endpoints");
    let changed = before.iter().zip(&after).filter(|(old, new)| old != new).count();
    assert!((250..280).contains(&changed), "{changed}");
    // Each slot of both maps is deleted and added; a new endpoint may be its own client.
    assert_eq!((report.full, report.changes), (false, 2 * 2 * changed + 1));
    let mut next = proxy_of(proxy.mode().table().clone());
    next.apply(&[hashed("maglev"), hosts(&[one, two, three, four])]);
    assert_eq!(next.sync().unwrap().changes, 0, "a restart changes nothing");
    next.apply(&[hashed("maglev-port")]);
    next.sync().unwrap();
    assert_eq!(slots(&mut next, "service-endpoints"), after, "only chains differ");
    settle(&mut next);
    let chains: Vec<Name> = content(&mut next).chains.into_keys().filter(|name| name.contains("maglev")).collect();
    let expected = ["cluster-ip-tcp", "nodeport-external-tcp", "nodeport-tcp", "tcp"];
    assert_eq!(chains, expected.map(|chain| format!("{chain}-maglev-port-1021").into()));
    // A proxy that draws finds the table, and gives endpoints indexes of its own.
    let mut random = proxy_of(next.mode().table().clone());
    random.apply(&[hashed("random"), hosts(&[one, two, three, four])]);
    random.sync().unwrap();
    assert_eq!(slots(&mut random, "service-endpoints").len(), 4);
}
