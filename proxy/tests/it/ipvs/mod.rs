//! After any history the kernel's state is that of a clean start, and other programs' objects are unchanged.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};
use svcproxy::config::{self, Config, DetectLocal, NodeAddresses};
use svcproxy::kernel::dummy::{AddressChange, AddressState};
use svcproxy::kernel::ipset::{IpSets, SetHeader, SetMember};
use svcproxy::kernel::iptables;
use svcproxy::kernel::iptables::Table;
use svcproxy::kernel::ipvs::{IpvsDestination, ServerChange, ServerKey, ServerSpec, VirtualServers};
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::ipvs::kernel::FakeIpvsKernel as Fake;
use svcproxy::mode::iptables_family::ipvs::sets::SetId;
use svcproxy::mode::iptables_family::ipvs::syncer::IpvsSyncer;
use svcproxy::mode::iptables_family::ipvs::teardown::{remove_empty_device, tear_down};
use svcproxy::mode::iptables_family::rules::cleanup::cleanup;
use svcproxy::model::{Change, Family, Protocol};
use svcproxy::testing::{self, key, slice_of_hosts as slice};

mod device;
mod leaving;
mod other_machines;

use crate::support::changes::any_change;

const LIMIT: Duration = Duration::from_secs(900);

type IpvsProxy = FamilyProxy<IpvsSyncer<Fake>>;

fn config() -> Config {
    let exclude = vec!["10.99.0.0/16".parse().unwrap()];
    Config {
        detect_local: DetectLocal::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]),
        ipvs: config::Ipvs { exclude, drain_limit: LIMIT, ..config::Ipvs::default() },
        ..Config::for_node("node-a")
    }
}

fn proxy(kernel: Fake) -> IpvsProxy {
    let mut proxy = assemble::ipvs(&config(), Family::V4, kernel);
    proxy.set_addresses(&NodeAddresses {
        local: vec!["127.0.0.1".parse().unwrap(), "192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()],
        primary: vec!["192.0.2.1".parse().unwrap()],
        ..NodeAddresses::default()
    });
    proxy
}

fn server(protocol: Protocol, address: &str) -> ServerKey {
    ServerKey { protocol, address: address.parse().unwrap() }
}

fn tcp(address: &str) -> ServerKey {
    server(Protocol::Tcp, address)
}

fn kernel_with_foreign_objects() -> Fake {
    let mut kernel = Fake::default();
    let spec = ServerSpec { scheduler: "wlc".into(), flags: 0, persistence: None, netmask: u32::MAX };
    let foreign = tcp("203.0.113.200:80");
    let excluded = tcp("10.99.0.1:80");
    let backend: SocketAddr = "198.51.100.77:80".parse().unwrap();
    for key in [foreign, excluded] {
        let changes = [ServerChange::Add(key, spec.clone()), ServerChange::AddDestination(key, backend, 3)];
        kernel.servers.change_servers(&changes).unwrap();
    }
    let header = SetHeader { name: "BLOCKLIST".into(), ..SetId::IpvsIps.header(Family::V4, 0) };
    kernel.sets.create_set(&header).unwrap();
    let nat = kernel.rules.tables.get_mut(&Table::Nat).unwrap();
    nat.insert("DOCKER".into(), vec!["-p tcp -j RETURN".into()]);
    nat.get_mut("PREROUTING").unwrap().push("-j DOCKER".into());
    kernel
}

fn state(kernel: &Fake) -> Value {
    let servers: BTreeMap<String, Value> = kernel
        .servers
        .servers
        .iter()
        .map(|(key, (spec, destinations))| {
            let serving = destinations.iter().filter(|(_, state)| state.weight > 0);
            let serving: Vec<String> = serving.map(|(address, state)| format!("{address} {}", state.weight)).collect();
            (key.to_string(), json!({ "spec": format!("{spec:?}"), "destinations": serving }))
        })
        .collect();
    let sets: BTreeMap<&String, Vec<String>> = kernel
        .sets
        .sets
        .iter()
        .map(|(name, (_, members))| (name, members.iter().map(ToString::to_string).collect()))
        .collect();
    json!({
        "servers": servers, "sets": sets, "addresses": format!("{:?}", kernel.device.addresses),
        "rules": format!("{:?}", kernel.rules.tables),
    })
}

#[derive(Debug, Clone)]
enum IpvsEvent {
    Change(Box<Change>),
    Sync,
    FollowUp(u64),
    Connections(u64),
    FailNextRestore,
    Restart,
    FlushRules,
    FlushServers,
}

fn any_event() -> impl Strategy<Value = IpvsEvent> {
    prop_oneof![
        19 => any_change().prop_map(|change| IpvsEvent::Change(Box::new(change))),
        6 => Just(IpvsEvent::Sync),
        2 => (0u64..1000).prop_map(IpvsEvent::FollowUp),
        2 => (0u64..3).prop_map(IpvsEvent::Connections),
        1 => Just(IpvsEvent::FailNextRestore),
        1 => Just(IpvsEvent::Restart),
        1 => Just(IpvsEvent::FlushRules),
        1 => Just(IpvsEvent::FlushServers),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_history_ends_as_a_clean_start(events in prop::collection::vec(any_event(), 0..60)) {
        let mut current = proxy(kernel_with_foreign_objects());
        let mut changes = Vec::new();
        let mut now = Instant::now();
        let mut rules_flushed = false;
        let mut servers_flushed = false;
        for event in events {
            match event {
                IpvsEvent::Change(change) => {
                    current.apply([&*change]);
                    changes.push(*change);
                }
                IpvsEvent::Sync => drop(current.sync()),
                IpvsEvent::FollowUp(seconds) => {
                    now += Duration::from_secs(seconds);
                    current.follow_up(now).unwrap();
                }
                IpvsEvent::Connections(connections) => {
                    for (_, destinations) in current.mode().kernel().servers.servers.values_mut() {
                        destinations.values_mut().for_each(|state| state.connections = connections);
                    }
                }
                IpvsEvent::FailNextRestore => current.mode().kernel().rules.fail_restores = 1,
                IpvsEvent::Restart => {
                    let kernel = current.mode().kernel().clone();
                    current = proxy(kernel);
                    current.apply(&changes);
                }
                IpvsEvent::FlushRules => {
                    current.mode().kernel().rules.flush();
                    current.require_full_sync();
                    rules_flushed = true;
                }
                IpvsEvent::FlushServers => {
                    current.mode().kernel().servers.servers.clear();
                    current.require_full_sync();
                    servers_flushed = true;
                }
            }
        }
        let before = || {
            let mut kernel = kernel_with_foreign_objects();
            if rules_flushed {
                kernel.rules = iptables::FakeIptables::default();
            }
            if servers_flushed {
                kernel.servers.servers.clear();
            }
            kernel
        };
        current.mode().kernel().rules.fail_restores = 0;
        current.sync().unwrap();
        let mut clean = proxy(before());
        clean.apply(&changes);
        clean.sync().unwrap();
        prop_assert_eq!(state(current.mode().kernel()), state(clean.mode().kernel()));

        prop_assert!(current.sync().unwrap().is_empty());
        current.require_full_sync();
        let report = current.sync().unwrap();
        prop_assert!(report.full && report.is_empty(), "{:?}", report);
        prop_assert_eq!(current.detect_flush().unwrap(), None);

        // After the drain limit the kernel's state equals that of a clean start.
        now += Duration::from_secs(1);
        let looked = current.follow_up(now).unwrap();
        if looked.is_some() {
            prop_assert_eq!(current.follow_up(now + LIMIT).unwrap(), None);
        }
        for kernel in [current.mode().kernel(), clean.mode().kernel()] {
            for (_, destinations) in kernel.servers.servers.values_mut() {
                destinations.values_mut().for_each(|state| state.connections = 0);
            }
        }
        prop_assert_eq!(&current.mode().kernel().servers.servers, &clean.mode().kernel().servers.servers);

        let kernel = current.mode().kernel();
        cleanup(&mut kernel.rules).unwrap();
        tear_down(kernel, Family::V4, false).unwrap();
        remove_empty_device(kernel).unwrap();
        prop_assert_eq!(state(kernel), state(&before()));
    }
}

fn service(name: &str, ip: &str, ports: &Value) -> Change {
    testing::service(name, json!({ "clusterIP": ip, "ports": ports }))
}

fn web(hosts: &[&str]) -> [Change; 2] {
    [service("web", "10.96.0.1", &json!([{ "port": 80 }])), slice("web", hosts, "TCP")]
}

fn weights(proxy: &mut IpvsProxy, key: &ServerKey) -> Vec<(String, u32)> {
    let (_, destinations) = &proxy.mode().kernel().servers.servers[key];
    destinations.iter().map(|(address, state)| (address.to_string(), state.weight)).collect()
}

#[test]
fn one_changed_endpoint_among_two_thousand_services_is_four_changes() {
    let mut proxy = proxy(Fake::default());
    let ip = |svc: u32| format!("10.{}.{}.{}", 100 + svc / 62_500, svc / 250 % 250, svc % 250 + 1);
    let hosts = |svc: u32| [1, 2, 3].map(|host| format!("10.{}.{}.{}", 200 + host, svc / 250, svc % 250 + 1));
    for svc in 0..2_000 {
        let hosts = hosts(svc);
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let name = format!("s{svc}");
        proxy.apply([&service(&name, &ip(svc), &json!([{ "port": 80 }])), &slice(&name, &hosts, "TCP")]);
    }
    assert!(proxy.sync().unwrap().full);
    let kernel = proxy.mode().kernel();
    assert_eq!(kernel.servers.servers.len(), 2_000);
    kernel.servers.changes.clear();
    kernel.sets.changes.clear();
    kernel.device.changes.clear();
    kernel.rules.restored.clear();
    kernel.servers.asked = 0;
    proxy.apply([&slice("s1777", &["10.201.7.28", "10.202.7.28", "10.99.99.99"], "TCP")]);
    let report = proxy.sync().unwrap();
    assert!(!report.full);
    // A destination is added, one gets weight 0, and one member of KUBE-LOOP-BACK is added and one removed.
    assert_eq!(report.changes, 4);
    let kernel = proxy.mode().kernel();
    assert_eq!((kernel.servers.changes.len(), kernel.sets.changes.len()), (2, 2));
    assert_eq!((kernel.device.changes.len(), kernel.rules.restored.len(), kernel.servers.asked), (0, 0, 0));
    proxy.follow_up(Instant::now()).unwrap();
    assert_eq!(proxy.mode().kernel().servers.asked, 1);
}

/// One virtual server is both the node port on an address of the node and an external IP with that address.
#[test]
fn an_address_takes_precedence_over_a_node_port() {
    let node_port =
        json!({ "type": "NodePort", "clusterIP": "10.96.0.1", "ports": [{ "port": 80, "nodePort": 30_080 }] });
    let external = json!({ "clusterIP": "10.96.0.2", "externalIPs": ["192.0.2.1"], "ports": [{ "port": 30_080 }] });
    let mut proxy = proxy(Fake::default());
    let slices = [slice("a", &["10.244.0.1"], "TCP"), slice("b", &["10.244.0.2"], "TCP")];
    proxy.apply(slices.iter().chain(&[testing::service("a", node_port), testing::service("b", external)]));
    proxy.sync().unwrap();
    let serving = |proxy: &mut IpvsProxy, at: &str| -> Vec<String> {
        weights(proxy, &tcp(at)).into_iter().filter(|(_, weight)| *weight > 0).map(|(address, _)| address).collect()
    };
    assert_eq!(serving(&mut proxy, "192.0.2.1:30080"), ["10.244.0.2:8080"]);
    assert_eq!(serving(&mut proxy, "192.0.2.2:30080"), ["10.244.0.1:8080"]);
    proxy.apply(&[Change::Service(key("b"), None)]);
    assert!(!proxy.sync().unwrap().full);
    assert_eq!(serving(&mut proxy, "192.0.2.1:30080"), ["10.244.0.1:8080"]);
}

/// Corrects an address that another proxy has bound.
#[test]
fn an_address_of_ipv6_is_deprecated() {
    let start = |kernel: Fake| {
        let mut proxy = assemble::ipvs(&config(), Family::V6, kernel);
        proxy.apply(&[service("web", "fd00:96::1", &json!([{ "port": 80 }]))]);
        let report = proxy.sync().unwrap();
        (report, proxy.mode().kernel().clone())
    };
    let address: IpAddr = "fd00:96::1".parse().unwrap();
    let (_, mut kernel) = start(Fake::default());
    let there = kernel.device.addresses.as_mut().unwrap();
    assert_eq!(there.insert(address, AddressState::Preferred), Some(AddressState::Deprecated));
    kernel.device.changes.clear();
    let (report, kernel) = start(kernel);
    assert_eq!((report.changes, &kernel.device.changes[..]), (1, &[AddressChange::Bind(address)][..]));
    assert!(start(kernel).0.is_empty());
}

#[test]
fn a_removed_backend_keeps_its_connections_until_they_end() {
    let mut proxy = proxy(Fake::default());
    let key = tcp("10.96.0.1:80");
    let (stays, leaves): (SocketAddr, SocketAddr) =
        ("10.244.0.1:8080".parse().unwrap(), "10.244.0.2:8080".parse().unwrap());
    proxy.apply(&web(&["10.244.0.1", "10.244.0.2"]));
    proxy.sync().unwrap();
    proxy.mode().kernel().servers.connect(&key, &leaves, 1);
    proxy.apply(&web(&["10.244.0.1"]));
    proxy.sync().unwrap();
    let now = Instant::now();
    let with_both = vec![(stays.to_string(), 1), (leaves.to_string(), 0)];
    assert!(proxy.follow_up(now).unwrap().is_some());
    assert_eq!(weights(&mut proxy, &key), with_both);

    // A restart loses nothing, because the kernel has the state.
    let kernel = proxy.mode().kernel().clone();
    let mut proxy = self::proxy(kernel);
    proxy.apply(&web(&["10.244.0.1"]));
    assert!(proxy.sync().unwrap().is_empty());
    assert!(proxy.follow_up(now).unwrap().is_some());
    assert_eq!(weights(&mut proxy, &key), with_both);

    proxy.mode().kernel().servers.connect(&key, &leaves, 0);
    assert_eq!(proxy.follow_up(now + Duration::from_secs(5)).unwrap(), None);
    assert_eq!(weights(&mut proxy, &key), [(stays.to_string(), 1)]);
}

#[test]
fn a_draining_backend_is_removed_at_the_limit_unless_it_is_added_again() {
    let mut proxy = proxy(Fake::default());
    let key = tcp("10.96.0.1:80");
    let leaves: SocketAddr = "10.244.0.2:8080".parse().unwrap();
    let now = Instant::now();
    for comes_back in [true, false] {
        proxy.apply(&web(&["10.244.0.1", "10.244.0.2"]));
        proxy.sync().unwrap();
        proxy.mode().kernel().servers.connect(&key, &leaves, 5);
        proxy.apply(&web(&["10.244.0.1"]));
        proxy.sync().unwrap();
        proxy.follow_up(now).unwrap();
        if comes_back {
            proxy.apply(&web(&["10.244.0.1", "10.244.0.2"]));
            proxy.sync().unwrap();
        }
        assert_eq!(proxy.follow_up(now + LIMIT).unwrap(), None);
        let kept = weights(&mut proxy, &key).contains(&(leaves.to_string(), 1));
        assert_eq!(kept, comes_back);
    }
}

#[test]
fn udp_backends_are_removed_at_once() {
    let mut proxy = proxy(Fake::default());
    let key = server(Protocol::Udp, "10.96.0.1:53");
    let dns = service("dns", "10.96.0.1", &json!([{ "port": 53, "protocol": "UDP" }]));
    proxy.apply([&dns, &slice("dns", &["10.244.0.1", "10.244.0.2"], "UDP")]);
    proxy.sync().unwrap();
    proxy.mode().kernel().servers.connect(&key, &"10.244.0.2:8080".parse().unwrap(), 9);
    proxy.apply([&slice("dns", &["10.244.0.1"], "UDP")]);
    proxy.sync().unwrap();
    assert_eq!(weights(&mut proxy, &key), [("10.244.0.1:8080".to_owned(), 1)]);
}

/// Weight 0 sends no new connection to the backend (kubernetes/kubernetes#92019).
#[test]
fn a_foreign_weight_of_zero_is_repaired() {
    let mut proxy = proxy(Fake::default());
    proxy.apply(&web(&["10.244.0.1"]));
    proxy.sync().unwrap();
    let key = tcp("10.96.0.1:80");
    let backend: SocketAddr = "10.244.0.1:8080".parse().unwrap();
    let kernel = proxy.mode().kernel();
    kernel.servers.servers.get_mut(&key).unwrap().1.insert(backend, IpvsDestination { weight: 0, connections: 0 });
    proxy.require_full_sync();
    assert_eq!(proxy.sync().unwrap().changes, 1);
    assert_eq!(weights(&mut proxy, &key), [(backend.to_string(), 1)]);
}

#[test]
fn a_set_that_is_too_small_is_replaced_by_a_larger_one() {
    let mut proxy = proxy(Fake::default());
    let name = SetId::ClusterIp.name(Family::V4);
    let small = SetHeader { maxelem: 4, ..SetId::ClusterIp.header(Family::V4, 0) };
    proxy.mode().kernel().sets.create_set(&small).unwrap();
    let services: Vec<Change> =
        (1..20).map(|n| service(&format!("s{n}"), &format!("10.96.0.{n}"), &json!([{ "port": 80 }]))).collect();
    proxy.apply(&services);
    proxy.sync().unwrap();
    let (header, members) = &proxy.mode().kernel().sets.sets[&name];
    assert_eq!(members.len(), 19);
    assert_eq!(header.maxelem, 65_536);
    assert!(!proxy.mode().kernel().sets.sets.contains_key("KUBE-SVCPROXY-LARGER"));
}

#[test]
fn a_set_of_another_type_is_a_clear_error() {
    let mut proxy = proxy(Fake::default());
    let wrong = SetHeader { name: SetId::ClusterIp.name(Family::V4), ..SetId::IpvsIps.header(Family::V4, 0) };
    proxy.mode().kernel().sets.create_set(&wrong).unwrap();
    let error = proxy.sync().unwrap_err().to_string();
    assert_eq!(
        error,
        "the set KUBE-CLUSTER-IP is of type hash:ip, not hash:ip,port: destroy it (ipset destroy KUBE-CLUSTER-IP)"
    );
}

#[test]
fn a_shared_address_keeps_each_services_source_ranges() {
    let shared = |name: &str, ip: &str, port: u16, range: &str| {
        let spec = json!({
            "type": "LoadBalancer", "clusterIP": ip, "ports": [{ "port": port, "nodePort": 30_000 + port }],
            "loadBalancerSourceRanges": [range],
        });
        testing::load_balancer(name, spec, &["198.51.100.7"])
    };
    let mut proxy = proxy(Fake::default());
    proxy.apply([&shared("a", "10.96.0.1", 80, "192.0.2.0/25"), &slice("a", &["10.244.0.1"], "TCP")]);
    proxy.apply([&shared("b", "10.96.0.2", 81, "203.0.113.0/24"), &slice("b", &["10.244.0.2"], "TCP")]);
    proxy.sync().unwrap();
    let members = |proxy: &mut IpvsProxy, set: SetId| {
        let (_, members) = &proxy.mode().kernel().sets.sets[&set.name(Family::V4)];
        members.iter().map(SetMember::to_string).collect::<Vec<_>>()
    };
    let ranges = members(&mut proxy, SetId::LoadBalancerSourceCidr);
    assert_eq!(ranges, ["198.51.100.7,tcp:80,192.0.2.0/25", "198.51.100.7,tcp:81,203.0.113.0/24"]);
    // Only the first range contains the node itself.
    assert_eq!(members(&mut proxy, SetId::LoadBalancerSourceIp), ["198.51.100.7,tcp:80,198.51.100.7"]);
    proxy.apply([&Change::Service(key("a"), None)]);
    proxy.sync().unwrap();
    assert_eq!(members(&mut proxy, SetId::LoadBalancerSourceCidr), ["198.51.100.7,tcp:81,203.0.113.0/24"]);
    assert!(members(&mut proxy, SetId::IpvsIps).contains(&"198.51.100.7".to_owned()));
}

/// An endpoint that is not ready keeps its associations and gets no new ones; a removed endpoint loses them.
#[test]
fn an_sctp_backend_drains_while_its_endpoint_exists() {
    let mut proxy = proxy(Fake::default());
    let gate = server(Protocol::Sctp, "10.96.0.1:80");
    let endpoint =
        |ip: &str, ready: bool| json!({ "addresses": [ip], "conditions": { "ready": ready, "serving": ready } });
    proxy.apply(&[service("web", "10.96.0.1", &json!([{ "port": 80, "protocol": "SCTP" }]))]);
    for (endpoints, expected) in [
        (
            json!([endpoint("10.244.0.1", true), endpoint("10.244.0.2", true)]),
            &[("10.244.0.1:8080", 1), ("10.244.0.2:8080", 1)][..],
        ),
        (
            json!([endpoint("10.244.0.1", false), endpoint("10.244.0.2", true)]),
            &[("10.244.0.1:8080", 0), ("10.244.0.2:8080", 1)],
        ),
        (json!([endpoint("10.244.0.2", true)]), &[("10.244.0.2:8080", 1)]),
    ] {
        proxy.apply(&[testing::slice("web", endpoints, json!([{ "port": 8080, "protocol": "SCTP" }]))]);
        proxy.sync().unwrap();
        let expected: Vec<(String, u32)> = expected.iter().map(|(ip, weight)| ((*ip).to_owned(), *weight)).collect();
        assert_eq!(weights(&mut proxy, &gate), expected);
    }
}
