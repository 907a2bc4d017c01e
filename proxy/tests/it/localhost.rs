//! Tests with fakes: which ports have listeners.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::changes::{any_node, any_service, any_slice};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use svcproxy::config::{Config, FeatureGates, Mode, NodeAddresses, NodePortAddresses};
use svcproxy::kernel;
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::localhost::{LocalhostNodePorts, relayed};
use svcproxy::mode::nftables::{layout, syncer::NftablesSyncer};
use svcproxy::model::{Change, Family, Protocol};
use svcproxy::plan::node::{node_port_relay, ranges_without_relay};
use svcproxy::relay;
use svcproxy::testing::{self, key};

type NftablesProxy = FamilyProxy<NftablesSyncer<kernel::nftables::FakeNftTable>>;

fn config(node_port_addresses: NodePortAddresses) -> Config {
    Config { mode: Mode::Nftables, node_port_addresses, ..Config::for_node("node-a") }
}

fn localhost() -> Config {
    config(NodePortAddresses::PrimaryAndRanges(vec!["127.0.0.0/8".parse().unwrap()]))
}

fn proxy(config: Config) -> NftablesProxy {
    let table = kernel::nftables::FakeNftTable::new(Family::V4);
    let mut proxy = assemble::nftables(&config, Family::V4, table, |_| relay::FakeRelays::default());
    let own = "172.18.0.2".parse().unwrap();
    proxy.set_addresses(&NodeAddresses { local: vec![own], primary: vec![own], ..NodeAddresses::default() });
    proxy
}

fn relays(proxy: &mut NftablesProxy) -> &mut relay::FakeRelays {
    proxy.companion::<LocalhostNodePorts<relay::FakeRelays>>().unwrap().relays()
}

fn listening(proxy: &mut NftablesProxy) -> BTreeMap<u16, Vec<String>> {
    let relays = relays(proxy);
    let to = |name| relays.active[name].cluster.iter().map(ToString::to_string).collect();
    relays.listening.iter().map(|(listener, port)| (*port, to(&listener.name))).collect()
}

fn with_port(index: u8, node_port: u16, more: Json) -> Change {
    let mut spec = json!({
        "type": "NodePort", "clusterIP": format!("10.96.0.{}", index + 1),
        "ports": [{ "port": 80, "nodePort": node_port }],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    testing::service(&format!("svc-{index}"), spec)
}

fn slice(index: u8, endpoints: &[(u8, &str)]) -> Change {
    let name = format!("svc-{index}");
    let endpoints: Vec<Json> = endpoints
        .iter()
        .map(|(host, node)| json!({ "addresses": [format!("10.244.0.{host}")], "nodeName": node }))
        .collect();
    testing::slice(&name, json!(endpoints), json!([{ "port": 8080 }]))
}

fn of(ports: &[(u16, &[&str])]) -> BTreeMap<u16, Vec<String>> {
    ports.iter().map(|(port, to)| (*port, to.iter().map(|to| (*to).to_owned()).collect())).collect()
}

#[test]
fn relays_listen_if_node_port_addresses_name_a_loopback_range() {
    let ranges = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
    let (only, besides) = (
        |t: &[&str]| NodePortAddresses::Ranges(ranges(t)),
        |t: &[&str]| NodePortAddresses::PrimaryAndRanges(ranges(t)),
    );
    for (addresses, v4, v6) in [
        (NodePortAddresses::Primary, false, false),
        (NodePortAddresses::All, false, false),
        (only(&["127.0.0.0/8", "::1/128"]), true, true),
        (besides(&["127.0.0.0/8", "::1/128"]), true, true),
        (besides(&["10.0.0.0/8", "127.0.0.1/32"]), true, false),
        (only(&["::1/128"]), false, true),
        // A range of all addresses does not count as loopback, and relays listen only on 127.0.0.1 and ::1.
        (only(&["0.0.0.0/0", "::/0"]), false, false),
        (only(&["127.0.0.2/32"]), false, false),
    ] {
        let config = config(addresses.clone());
        let found = Family::ALL.map(|family| node_port_relay(&config, family).map(|address| address.to_string()));
        let expected = [v4.then(|| "127.0.0.1".to_owned()), v6.then(|| "::1".to_owned())];
        assert_eq!(found, expected, "{addresses:?}");
        for mode in [Mode::Iptables, Mode::Ipvs, Mode::Userspace] {
            let other = Config { mode, ..config.clone() };
            assert_eq!(Family::ALL.map(|family| node_port_relay(&other, family)), [None, None], "{mode}");
        }
        let unserved: Vec<String> = ranges_without_relay(&config).iter().map(ToString::to_string).collect();
        assert_eq!(unserved, if addresses == only(&["127.0.0.2/32"]) { vec!["127.0.0.2/32"] } else { Vec::new() });
        let gates = FeatureGates { nftables_localhost_node_ports: false, ..FeatureGates::default() };
        assert_eq!(node_port_relay(&Config { gates, ..config }, Family::V4), None);
    }
}

#[test]
fn listeners_follow_services_and_endpoints() {
    let mut proxy = proxy(localhost());
    proxy.apply([&with_port(0, 30_080, json!({})), &slice(0, &[(1, "node-a"), (2, "node-b")])]);
    proxy.apply([&with_port(1, 30_081, json!({}))]);
    proxy.sync().unwrap();
    assert_eq!(listening(&mut proxy), of(&[(30_080, &["10.244.0.1:8080", "10.244.0.2:8080"])]), "the other has none");
    proxy.apply([&slice(0, &[(3, "node-b")]), &slice(1, &[(4, "node-b")])]);
    proxy.sync().unwrap();
    assert_eq!(listening(&mut proxy), of(&[(30_080, &["10.244.0.3:8080"]), (30_081, &["10.244.0.4:8080"])]));
    proxy.apply([&with_port(0, 30_081, json!({})), &with_port(1, 30_080, json!({}))]);
    proxy.sync().unwrap();
    assert_eq!(listening(&mut proxy), of(&[(30_080, &["10.244.0.4:8080"]), (30_081, &["10.244.0.3:8080"])]));
    proxy.apply([&slice(0, &[]), &Change::Service(key("svc-1"), None)]);
    proxy.sync().unwrap();
    assert_eq!(listening(&mut proxy), of(&[]));
    assert!(relays(&mut proxy).active.is_empty());
}

#[test]
fn source_ranges_without_the_loopback_address_close_the_listener() {
    let mut proxy = proxy(localhost());
    let with_ranges = |ranges: &str| {
        let spec =
            json!({ "type": "NodePort", "clusterIP": "10.96.0.1", "ports": [{ "port": 80, "nodePort": 30_080 }] });
        let metadata = json!({ "name": "svc-0", "annotations": { "svcproxy/source-ranges": ranges } });
        Change::Service(key("svc-0"), Some(testing::object(json!({ "metadata": metadata, "spec": spec }))))
    };
    for (ranges, listens) in [("10.0.0.0/8,127.0.0.1/32", true), ("10.0.0.0/8", false), ("::1/128", false)] {
        proxy.apply([&with_ranges(ranges), &slice(0, &[(1, "node-a")])]);
        proxy.sync().unwrap();
        assert_eq!(listening(&mut proxy).contains_key(&30_080), listens, "{ranges}");
    }
}

#[test]
fn policy_local_does_not_apply_to_the_node_and_relays_keep_affinity() {
    let mut proxy = proxy(localhost());
    let local = json!({ "externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP" });
    proxy.apply([&with_port(0, 30_080, local), &slice(0, &[(1, "node-a"), (2, "node-b")])]);
    proxy.sync().unwrap();
    assert_eq!(listening(&mut proxy), of(&[(30_080, &["10.244.0.1:8080", "10.244.0.2:8080"])]));
    let backends = relays(&mut proxy).active.values().next().unwrap().clone();
    assert_eq!(backends.affinity, Some(Duration::from_secs(10_800)));
    proxy.apply([&slice(0, &[(2, "node-b")])]);
    proxy.sync().unwrap();
    assert_eq!(listening(&mut proxy), of(&[(30_080, &["10.244.0.2:8080"])]), "there is none on this node");
}

#[test]
fn a_port_of_another_program_is_retried() {
    let mut proxy = proxy(localhost());
    relays(&mut proxy).taken.insert((Protocol::Tcp, 30_080));
    proxy.apply([&with_port(0, 30_080, json!({})), &slice(0, &[(1, "node-a")])]);
    proxy.apply([&with_port(1, 30_081, json!({})), &slice(1, &[(2, "node-a")])]);
    proxy.sync().unwrap();
    assert_eq!(listening(&mut proxy).into_keys().collect::<Vec<_>>(), [30_081], "one cannot hold up another");
    let again = proxy.follow_up(Instant::now()).unwrap().unwrap();
    assert!(again > Instant::now());
    let again = proxy.follow_up(again).unwrap().unwrap();
    relays(&mut proxy).taken.clear();
    assert_eq!(listening(&mut proxy).len(), 1);
    assert_eq!(proxy.follow_up(again).unwrap(), None, "nothing is left to do");
    assert_eq!(listening(&mut proxy).into_keys().collect::<Vec<_>>(), [30_080, 30_081]);
    relays(&mut proxy).exhausted = true;
    proxy.apply([&with_port(2, 30_082, json!({})), &slice(2, &[(3, "node-a")])]);
    proxy.sync().unwrap();
    assert!(proxy.follow_up(Instant::now()).unwrap().is_some());
    proxy.apply([&Change::Service(key("svc-2"), None)]);
    proxy.sync().unwrap();
    assert_eq!(proxy.follow_up(Instant::now() + Duration::from_secs(60)).unwrap(), None);
}

#[test]
fn relays_work_while_the_kernel_refuses_the_table() {
    let mut proxy = proxy(localhost());
    proxy.mode().table().refuses = 1;
    proxy.apply([&with_port(0, 30_080, json!({})), &slice(0, &[(1, "node-a")])]);
    proxy.sync().unwrap_err();
    assert_eq!(listening(&mut proxy).len(), 1);
}

#[test]
fn udp_and_sctp_are_rejected_by_rules_if_there_are_relays() {
    let ports = json!({ "ports": [
        { "name": "t", "port": 80, "nodePort": 30_080 },
        { "name": "u", "port": 53, "nodePort": 30_053, "protocol": "UDP" },
        { "name": "s", "port": 99, "nodePort": 30_099, "protocol": "SCTP" },
    ] });
    let refused = |config: Config| {
        let mut proxy = proxy(config);
        proxy.apply([&with_port(0, 1, ports.clone())]);
        proxy.sync().unwrap();
        let content = proxy.mode().table().table.clone().unwrap();
        let elements = content.elements.keys().filter(|(set, _)| *set == layout::LOCALHOST_NODEPORTS);
        let mut elements: Vec<(Protocol, u16)> = elements.map(|(_, key)| key.as_node_port().unwrap()).collect();
        elements.sort_unstable();
        let chains = content.chains.keys().filter(|name| name.contains("localhost")).count();
        (elements, chains)
    };
    let of_both = vec![(Protocol::Udp, 30_053), (Protocol::Sctp, 30_099)];
    assert_eq!(refused(localhost()), (of_both, 3));
    assert_eq!(refused(config(NodePortAddresses::Primary)), (Vec::new(), 0));
}

#[derive(Debug, Clone)]
enum LocalhostStep {
    Apply(Change),
    Sync,
    Refuse,
    Full,
    /// Another program takes one of the ports, or frees all.
    Take(Option<u16>),
    FollowUp,
}

fn any_step() -> impl Strategy<Value = LocalhostStep> {
    let port = (0u16..4).prop_map(|number| 30_000 + number * 10);
    prop_oneof![
        4 => any_service().prop_map(LocalhostStep::Apply),
        4 => any_slice().prop_map(LocalhostStep::Apply),
        1 => any_node().prop_map(LocalhostStep::Apply),
        1 => (0u8..4).prop_map(|index| LocalhostStep::Apply(Change::Service(key(&format!("svc-{index}")), None))),
        4 => Just(LocalhostStep::Sync),
        1 => Just(LocalhostStep::Refuse),
        1 => Just(LocalhostStep::Full),
        1 => prop::option::of(port).prop_map(LocalhostStep::Take),
        1 => Just(LocalhostStep::FollowUp),
    ]
}

proptest! {
    #[test]
    fn every_history_ends_with_the_listeners_of_the_plans(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut now = proxy(localhost());
        for step in steps {
            match step {
                LocalhostStep::Apply(change) => now.apply([&change]),
                LocalhostStep::Sync => drop(now.sync()),
                LocalhostStep::Refuse => now.mode().table().refuses += 1,
                LocalhostStep::Full => now.require_full_sync(),
                LocalhostStep::Take(Some(port)) => {
                    let relays = relays(&mut now);
                    if !relays.listening.values().any(|ours| *ours == port) {
                        relays.taken.insert((Protocol::Tcp, port));
                    }
                }
                LocalhostStep::Take(None) => relays(&mut now).taken.clear(),
                LocalhostStep::FollowUp => drop(now.follow_up(Instant::now() + Duration::from_secs(60))),
            }
        }
        relays(&mut now).taken.clear();
        now.mode().table().refuses = 0;
        while now.is_due() {
            now.sync().unwrap();
        }
        while let Some(again) = now.follow_up(Instant::now() + Duration::from_secs(60)).unwrap() {
            prop_assert!(again > Instant::now());
        }
        let plans = now.plans();
        let expected: BTreeMap<u16, Vec<String>> = plans.iter().filter_map(relayed).map(|(port, to)| {
            (port, to.iter().map(ToString::to_string).collect())
        }).collect();
        prop_assert_eq!(listening(&mut now), expected);
        let active = relays(&mut now).active.len();
        prop_assert_eq!(active, relays(&mut now).listening.len(), "nothing is kept of what is gone");
    }
}
