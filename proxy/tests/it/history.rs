//! After any history the tables are those of a clean start, and other programs' rules are unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use svcproxy::config::{Config, DetectLocal, NodeAddresses};
use svcproxy::kernel::iptables::{FakeIptables, Table};
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::iptables::cleanup::cleanup;
use svcproxy::mode::iptables_family::iptables::syncer::IptablesSyncer;
use svcproxy::model::{Change, Family};
use svcproxy::ruleset::RuleCounts;

use crate::support::changes::any_change;
use svcproxy::testing::key;

fn take_guard(tables: &mut BTreeMap<Table, BTreeMap<String, Vec<String>>>) -> bool {
    let filter = tables.get_mut(&Table::Filter).unwrap();
    let guarded = filter.remove("KUBE-FIREWALL").is_some_and(|rules| rules.len() == 1);
    ["INPUT", "OUTPUT"].iter().all(|chain| {
        let rules = filter.get_mut(*chain).unwrap();
        let before = rules.len();
        rules.retain(|rule| rule != "-j KUBE-FIREWALL");
        rules.len() < before
    }) && guarded
}

#[derive(Debug, Clone)]
enum HistoryEvent {
    Change(Box<Change>),
    Sync,
    FailNextRestore,
    /// Kills the restore after this number of committed tables.
    KillNextRestore(usize),
    Restart,
    Flush,
}

fn any_event() -> impl Strategy<Value = HistoryEvent> {
    prop_oneof![
        19 => any_change().prop_map(|change| HistoryEvent::Change(Box::new(change))),
        6 => Just(HistoryEvent::Sync),
        2 => Just(HistoryEvent::FailNextRestore),
        2 => (0usize..3).prop_map(HistoryEvent::KillNextRestore),
        1 => Just(HistoryEvent::Restart),
        1 => Just(HistoryEvent::Flush),
    ]
}

fn proxy(kernel: FakeIptables) -> FamilyProxy<IptablesSyncer<FakeIptables>> {
    let config = Config {
        detect_local: DetectLocal::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]),
        ..Config::for_node("node-a")
    };
    let mut proxy = assemble::iptables(&config, Family::V4, kernel);
    proxy.set_addresses(&NodeAddresses {
        local: vec!["192.0.2.1".parse().unwrap()],
        primary: vec!["192.0.2.1".parse().unwrap()],
        ..NodeAddresses::default()
    });
    proxy
}

fn rules_of_ours(kernel: &FakeIptables) -> RuleCounts {
    let count = |table| {
        let chains = kernel.tables[&table].iter();
        let ours = chains.filter(|(chain, _)| chain.starts_with("KUBE-") && *chain != "KUBE-HOSTPORTS");
        ours.map(|(_, rules)| rules.len()).sum()
    };
    RuleCounts { filter: count(Table::Filter), nat: count(Table::Nat) }
}

fn kernel_with_foreign_rules() -> FakeIptables {
    let mut kernel = FakeIptables::default();
    for (table, chain) in [(Table::Nat, "DOCKER"), (Table::Filter, "ufw-user"), (Table::Nat, "KUBE-HOSTPORTS")] {
        let chains = kernel.tables.get_mut(&table).unwrap();
        chains.insert(chain.into(), vec!["-p tcp -j RETURN".into()]);
        let built_in = if table == Table::Nat { "PREROUTING" } else { "INPUT" };
        chains.get_mut(built_in).unwrap().push(format!("-j {chain}"));
    }
    kernel
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_history_ends_as_a_clean_start(events in prop::collection::vec(any_event(), 0..60)) {
        let mut current = proxy(kernel_with_foreign_rules());
        let mut changes = Vec::new();
        let mut flushed = false;
        for event in events {
            match event {
                HistoryEvent::Change(change) => {
                    current.apply([&*change]);
                    changes.push(*change);
                }
                HistoryEvent::Sync => {
                    if let Ok(report) = current.sync() {
                        prop_assert_eq!(report.total, rules_of_ours(current.mode().kernel()));
                    }
                }
                HistoryEvent::FailNextRestore => current.mode().kernel().fail_restores = 1,
                HistoryEvent::KillNextRestore(tables) => current.mode().kernel().kill_after = vec![tables],
                HistoryEvent::Restart => {
                    let kernel = current.mode().kernel().clone();
                    current = proxy(kernel);
                    current.apply(&changes);
                }
                HistoryEvent::Flush => {
                    current.mode().kernel().flush();
                    current.require_full_sync();
                    flushed = true;
                }
            }
        }
        current.mode().kernel().fail_restores = 0;
        current.mode().kernel().kill_after.clear();
        current.sync().unwrap();

        let mut clean = proxy(if flushed { FakeIptables::default() } else { kernel_with_foreign_rules() });
        clean.apply(&changes);
        clean.sync().unwrap();
        prop_assert_eq!(&current.mode().kernel().tables, &clean.mode().kernel().tables);
        prop_assert_eq!(current.summary(), clean.summary());

        let sent = current.mode().kernel().restored.len();
        prop_assert!(current.sync().unwrap().is_empty());
        current.require_full_sync();
        prop_assert!(current.sync().unwrap().is_empty());
        prop_assert_eq!(current.mode().kernel().restored.len(), sent);

        cleanup(current.mode().kernel()).unwrap();
        let mut left = current.mode().kernel().tables.clone();
        prop_assert!(take_guard(&mut left), "the guard of the loopback range stays");
        let before = if flushed { FakeIptables::default() } else { kernel_with_foreign_rules() };
        prop_assert_eq!(&left, &before.tables);
    }
}

#[test]
fn a_chain_with_a_foreign_jump_is_flushed_and_kept() {
    let mut proxy = proxy(FakeIptables::default());
    let nat = proxy.mode().kernel().tables.get_mut(&Table::Nat).unwrap();
    nat.insert("KUBE-SVC-AAAAAAAAAAAAAAAA".into(), vec!["-j RETURN".into()]);
    nat.insert("KUBE-SVC-BBBBBBBBBBBBBBBB".into(), vec!["-j KUBE-SVC-AAAAAAAAAAAAAAAA".into()]);
    nat.insert("FOREIGN".into(), vec!["-j KUBE-SVC-AAAAAAAAAAAAAAAA".into()]);
    proxy.sync().unwrap();
    let nat = &proxy.mode().kernel().tables[&Table::Nat];
    assert_eq!(nat["KUBE-SVC-AAAAAAAAAAAAAAAA"], Vec::<String>::new());
    assert!(!nat.contains_key("KUBE-SVC-BBBBBBBBBBBBBBBB"));
    assert_eq!(nat["FOREIGN"], ["-j KUBE-SVC-AAAAAAAAAAAAAAAA"]);
}

#[test]
fn kubelets_rules_in_the_shared_firewall_chain_are_kept() {
    let mut proxy = proxy(FakeIptables::default());
    let kubelets = "-m comment --comment \"kubernetes firewall for dropping marked packets\" -j DROP";
    let filter = proxy.mode().kernel().tables.get_mut(&Table::Filter).unwrap();
    filter.insert("KUBE-FIREWALL".into(), vec![kubelets.into()]);
    filter.get_mut("INPUT").unwrap().push("-j KUBE-FIREWALL".into());
    proxy.sync().unwrap();
    assert_eq!(proxy.mode().kernel().tables[&Table::Filter]["KUBE-FIREWALL"].len(), 2);
    assert_eq!(proxy.mode().kernel().tables[&Table::Filter]["KUBE-FIREWALL"][0], kubelets);
    let synced = proxy.mode().kernel().tables[&Table::Filter].clone();
    cleanup(proxy.mode().kernel()).unwrap();
    // The guard stays, because route_localnet stays set.
    let left = &proxy.mode().kernel().tables[&Table::Filter];
    assert_eq!(left["KUBE-FIREWALL"], synced["KUBE-FIREWALL"]);
    for chain in ["INPUT", "OUTPUT"] {
        assert_eq!(left[chain], ["-j KUBE-FIREWALL"]);
    }
}

#[test]
fn one_changed_endpoint_sends_only_its_services_chains() {
    let mut proxy = proxy(FakeIptables::default());
    let slice = |svc: u16, hosts: &[u8]| {
        let name = format!("s{svc}-1");
        let endpoints: Vec<Value> =
            hosts.iter().map(|h| json!({ "addresses": [format!("10.244.{}.{h}", svc % 250)] })).collect();
        let object = json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": format!("s{svc}") } },
            "addressType": "IPv4", "endpoints": endpoints, "ports": [{ "port": 80 }],
        });
        Change::EndpointSlice(key(&name), Some(Arc::new(serde_json::from_value(object).unwrap())))
    };
    for svc in 0..200u16 {
        let spec = json!({ "clusterIP": format!("10.96.1.{svc}"), "ports": [{ "port": 80 }] });
        let object = json!({ "metadata": { "name": format!("s{svc}") }, "spec": spec });
        let change = Change::Service(key(&format!("s{svc}")), Some(Arc::new(serde_json::from_value(object).unwrap())));
        proxy.apply([&change, &slice(svc, &[1, 2, 3])]);
    }
    assert!(proxy.sync().unwrap().full);
    proxy.apply([&slice(7, &[1, 2, 4])]);
    let report = proxy.sync().unwrap();
    assert!(!report.full);
    // KUBE-SVC has a masquerade rule and three draws; one KUBE-SEP with two rules is added, one removed.
    assert_eq!((report.rules, report.removed_chains), (6, 1));
    let text = proxy.mode().kernel().restored.last().unwrap().clone();
    assert!(!text.contains("KUBE-SERVICES"), "{text}");
}

/// A full sync of a large cluster takes seconds.
#[test]
fn a_failed_partial_sync_is_repeated_until_it_is_refused_twice() {
    let service = |number: u8, node_port: u16| {
        let spec = json!({ "type": "NodePort", "clusterIP": format!("10.96.1.{number}"),
            "ports": [{ "port": 80, "nodePort": node_port }] });
        crate::support::changes::service(None, number, spec, json!([]))
    };
    let slice = |number: u8, host: u8| {
        let name = format!("svc-{number}");
        let object = json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } }, "addressType": "IPv4",
            "endpoints": [{ "addresses": [format!("10.244.0.{host}")] }], "ports": [{ "port": 80 }],
        });
        Change::EndpointSlice(key(&name), Some(Arc::new(serde_json::from_value(object).unwrap())))
    };
    let mut current = proxy(FakeIptables::default());
    current.apply([&service(1, 30_001), &slice(1, 1), &service(2, 30_002), &slice(2, 2)]);
    assert!(current.sync().unwrap().full);
    // The command is killed before and after each commit.
    for tables in [0, 1, 2] {
        current.apply([&service(1, 30_009), &slice(1, 7)]);
        current.mode().kernel().kill_after = vec![tables];
        current.sync().unwrap_err();
        current.apply([&service(1, 30_001), &slice(1, 1)]);
        assert!(!current.sync().unwrap().full);
        let text = current.mode().kernel().restored.last().unwrap();
        assert!(!text.contains("svc-2 -"), "{text}");
        let mut clean = proxy(FakeIptables::default());
        clean.apply([&service(1, 30_001), &slice(1, 1), &service(2, 30_002), &slice(2, 2)]);
        clean.sync().unwrap();
        assert_eq!(current.mode().kernel().tables, clean.mode().kernel().tables, "killed after {tables} tables");
    }
    // A held lock does not make the tables' state uncertain.
    current.apply([&slice(1, 8)]);
    current.mode().kernel().fail_restores = 4;
    (0..4).for_each(|_| drop(current.sync().unwrap_err()));
    assert!(!current.needs_full());
    assert!(!current.sync().unwrap().full);
    // Another program has removed a chain that the restore jumps to.
    current.apply([&slice(1, 9)]);
    current.mode().kernel().tables.get_mut(&Table::Nat).unwrap().remove("KUBE-MARK-MASQ");
    current.sync().unwrap_err();
    assert!(!current.needs_full(), "it may have been an accident");
    current.sync().unwrap_err();
    assert!(current.needs_full());
    assert!(current.sync().unwrap().full);
}

#[test]
fn a_change_too_large_for_one_transaction_goes_in_parts() {
    let changes: Vec<Change> = (0..150u16)
        .flat_map(|svc| {
            let name = format!("s{svc}");
            let service = json!({ "metadata": { "name": name }, "spec": { "clusterIP": format!("10.96.2.{svc}"), "ports": [{ "port": 80 }] } });
            let slice = json!({
                "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } }, "addressType": "IPv4",
                "endpoints": [{ "addresses": ["10.244.0.1"] }, { "addresses": ["10.244.0.2"] }], "ports": [{ "port": 80 }],
            });
            [
                Change::Service(key(&name), Some(Arc::new(serde_json::from_value(service).unwrap()))),
                Change::EndpointSlice(key(&name), Some(Arc::new(serde_json::from_value(slice).unwrap()))),
            ]
        })
        .collect();
    let [mut small, mut large] =
        [proxy(FakeIptables { line_limit: 450, ..FakeIptables::default() }), proxy(FakeIptables::default())];
    for proxy in [&mut small, &mut large] {
        proxy.apply(&changes);
        proxy.sync().unwrap();
    }
    let input = &small.mode().kernel().tables[&Table::Filter]["INPUT"];
    assert_eq!(input.iter().collect::<std::collections::BTreeSet<_>>().len(), input.len(), "no jump comes twice");
    assert!(small.mode().kernel().restored.len() > 5);
    assert_eq!(small.mode().kernel().tables, large.mode().kernel().tables);
    // Deletes all services: many chains that jump to each other.
    let removed: Vec<Change> = (0..150u16).map(|svc| Change::Service(key(&format!("s{svc}")), None)).collect();
    for proxy in [&mut small, &mut large] {
        proxy.apply(&removed);
        proxy.sync().unwrap();
    }
    assert_eq!(small.mode().kernel().tables, large.mode().kernel().tables);
    for proxy in [&mut small, &mut large] {
        proxy.apply(&changes);
        proxy.sync().unwrap();
    }
    cleanup(small.mode().kernel()).unwrap();
    assert!(take_guard(&mut small.mode().kernel().tables));
    assert_eq!(small.mode().kernel().tables, FakeIptables::default().tables);
}

/// A comment is almost half of the kernel's memory of an endpoint's rule.
#[test]
fn above_a_thousand_endpoints_their_rules_have_no_comments() {
    let changes: Vec<Change> = (0..101u8)
        .flat_map(|number| {
            let name = format!("svc-{number}");
            let endpoints: Vec<Value> =
                (1..=10).map(|host| json!({ "addresses": [format!("10.244.{number}.{host}")] })).collect();
            let slice = json!({
                "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } }, "addressType": "IPv4",
                "endpoints": endpoints, "ports": [{ "port": 80 }],
            });
            let spec = json!({ "clusterIP": format!("10.96.1.{number}"), "ports": [{ "port": 80 }] });
            let slice = Change::EndpointSlice(key(&name), Some(Arc::new(serde_json::from_value(slice).unwrap())));
            [crate::support::changes::service(None, number, spec, json!([])), slice]
        })
        .collect();
    let commented = |kernel: &FakeIptables| {
        let nat = kernel.tables[&Table::Nat].iter();
        let rules = nat.filter(|(chain, _)| chain.starts_with("KUBE-SEP-")).flat_map(|(_, rules)| rules);
        let with = rules.clone().filter(|rule| rule.contains("--comment")).count();
        (with, rules.count())
    };
    let mut current = proxy(FakeIptables::default());
    current.apply(&changes[..200]);
    current.sync().unwrap();
    assert_eq!(commented(current.mode().kernel()), (2000, 2000), "a thousand are not too many");
    current.apply(&changes[200..]);
    assert!(!current.sync().unwrap().full);
    assert_eq!(commented(current.mode().kernel()), (2020, 2020), "the limit asks for no full sync");
    current.require_full_sync();
    current.sync().unwrap();
    assert_eq!(commented(current.mode().kernel()), (0, 2020));
    current.apply([&Change::Service(key("svc-1"), None)]);
    assert!(!current.sync().unwrap().full);
    assert_eq!(commented(current.mode().kernel()), (0, 2000));
}

/// The network programming duration starts when the controller saw the change.
#[test]
fn trigger_times_wait_for_the_sync_that_applies_them() {
    let slice = |name: &str, host: u8, time: &str| {
        let annotations = json!({ "endpoints.kubernetes.io/last-change-trigger-time": time });
        let metadata =
            json!({ "name": name, "labels": { "kubernetes.io/service-name": "web" }, "annotations": annotations });
        let object = json!({
            "metadata": metadata, "addressType": "IPv4", "ports": [{ "name": "a", "port": 80 }],
            "endpoints": [{ "addresses": [format!("10.244.0.{host}")] }],
        });
        Change::EndpointSlice(key(name), Some(Arc::new(serde_json::from_value(object).unwrap())))
    };
    let spec = json!({ "clusterIP": "10.96.0.1", "ports": [{ "name": "a", "port": 80 }] });
    let object = json!({ "metadata": { "name": "web" }, "spec": spec });
    let service = Change::Service(key("web"), Some(Arc::new(serde_json::from_value(object).unwrap())));
    let mut proxy = proxy(FakeIptables::default());
    proxy.apply([&service, &slice("web-1", 1, "2026-01-01T00:00:00Z")]);
    proxy.count_triggers_since("2026-01-01T00:01:00Z".parse().unwrap());
    proxy.sync().unwrap();
    proxy.apply([
        &slice("web-1", 1, "2026-01-01T00:02:00Z"),
        &slice("web-2", 2, "2026-01-01T00:00:30Z"),
        &slice("web-3", 3, "2026-01-01T00:03:00Z"),
        &slice("web-3", 4, "2026-01-01T00:04:00.5Z"),
        &slice("web-4", 5, "2026-01-01T00:05:00Z"),
        &slice("web-5", 6, "yesterday"),
        &Change::EndpointSlice(key("web-4"), None),
    ]);
    proxy.mode().kernel().fail_restores = 1;
    proxy.sync().unwrap_err();
    proxy.sync().unwrap();
    let times: Vec<String> = proxy.take_triggers().map(|time| time.to_string()).collect();
    assert_eq!(
        times,
        ["2026-01-01T00:03:00Z", "2026-01-01T00:04:00.5Z"],
        "not: what changed nothing, from before the start, of a slice that is gone, or unreadable"
    );
    assert_eq!(proxy.take_triggers().count(), 0);
}

/// A partial sync plans one port of a Service, but the health check counts over all ports.
#[test]
fn health_checks_count_over_all_ports_after_partial_syncs() {
    let service = |name: &str, policy: &str| {
        let object = json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "type": "LoadBalancer", "clusterIP": "10.96.0.1", "externalTrafficPolicy": policy,
                "healthCheckNodePort": 32000,
                "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 81 }],
            },
        });
        Change::Service(key(name), Some(Arc::new(serde_json::from_value(object).unwrap())))
    };
    let slice = |service: &str, port: &str, ready: &[&str]| {
        let name = format!("{service}-{port}");
        let endpoints: Vec<Value> =
            ready.iter().map(|address| json!({ "addresses": [address], "nodeName": "node-a" })).collect();
        let object = json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4", "endpoints": endpoints, "ports": [{ "name": port, "port": 8080 }],
        });
        Change::EndpointSlice(key(&name), Some(Arc::new(serde_json::from_value(object).unwrap())))
    };
    let mut proxy = proxy(FakeIptables::default());
    let mut reported = |changes: &[Change]| {
        proxy.apply(changes);
        proxy.sync().unwrap();
        let changed = proxy.take_health_changes().into_iter();
        changed
            .map(|(service, check)| (service.name.to_string(), check.map(|check| check.local_endpoints)))
            .collect::<Vec<_>>()
    };
    let web = || "web".to_owned();
    let start = [
        service("web", "Local"),
        slice("web", "a", &["10.244.0.1", "10.244.0.2"]),
        slice("web", "b", &["10.244.0.2", "10.244.0.3"]),
        service("other", "Cluster"),
    ];
    assert_eq!(reported(&start), [(web(), Some(3))]);
    assert_eq!(reported(&[slice("other", "a", &["10.244.0.9"])]), []);
    assert_eq!(reported(&[slice("web", "a", &["10.244.0.2"])]), [(web(), Some(2))]);
    assert_eq!(reported(&[slice("web", "b", &[])]), [(web(), Some(1))]);
    assert_eq!(reported(&[slice("web", "a", &[])]), [(web(), Some(0))]);
    assert_eq!(reported(&[service("web", "Cluster")]), [(web(), None)]);
    assert_eq!(reported(&[service("web", "Local")]), [(web(), Some(0))]);
    assert_eq!(reported(&[Change::Service(key("web"), None)]), [(web(), None)]);
}
