//! Rules that the kernel refuses affect only their own service port.

use serde_json::json;
use svcproxy::config::Config;
use svcproxy::kernel::iptables::{FakeIptables, Table};
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::iptables::syncer::IptablesSyncer;
use svcproxy::model::{Change, Family};
use svcproxy::testing::{self, key, slice_of_hosts};

/// A service at 10.96.0.`number` and its endpoint.
fn service(name: &str, number: u8, affinity: bool, endpoint: &str) -> [Change; 2] {
    let affinity = if affinity { "ClientIP" } else { "None" };
    let spec = json!({
        "clusterIP": format!("10.96.0.{number}"), "sessionAffinity": affinity, "ports": [{ "port": 80 }],
    });
    [testing::service(name, spec), slice_of_hosts(name, &[endpoint], "TCP")]
}

/// A kernel without `xt_recent`.
fn proxy() -> FamilyProxy<IptablesSyncer<FakeIptables>> {
    let kernel = FakeIptables { refuse: Some("-m recent".to_owned()), ..FakeIptables::default() };
    assemble::iptables(&Config::for_node("node-a"), Family::V4, kernel)
}

fn holds(proxy: &mut FamilyProxy<IptablesSyncer<FakeIptables>>, text: &str) -> bool {
    proxy.mode().kernel().tables[&Table::Nat].values().flatten().any(|rule| rule.contains(text))
}

fn refused(proxy: &FamilyProxy<IptablesSyncer<FakeIptables>>) -> Vec<String> {
    proxy.refused().keys().map(|name| name.service.name.to_string()).collect()
}

#[test]
fn a_full_sync_sets_refused_service_ports_aside_and_retries_changed_ones() {
    let mut proxy = proxy();
    for (number, name) in (1..).zip(["a", "b", "c", "d"]) {
        let endpoint = format!("10.244.0.{number}");
        proxy.apply(&service(name, number, name == "b" || name == "d", &endpoint));
    }
    let report = proxy.sync().unwrap();
    assert!(report.full);
    assert_eq!(refused(&proxy), ["b", "d"]);
    for (number, stands) in [(1, true), (2, false), (3, true), (4, false)] {
        assert_eq!(holds(&mut proxy, &format!("--to-destination 10.244.0.{number}:8080")), stands, "{number}");
        assert_eq!(holds(&mut proxy, &format!("-d 10.96.0.{number}/32")), stands, "{number}");
    }
    proxy.apply(&service("b", 2, false, "10.244.0.2"));
    assert!(!proxy.sync().unwrap().full);
    assert_eq!(refused(&proxy), ["d"]);
    assert!(holds(&mut proxy, "--to-destination 10.244.0.2:8080"));
    proxy.mode().kernel().refuse = None;
    proxy.require_full_sync();
    proxy.sync().unwrap();
    assert_eq!(refused(&proxy), [""; 0]);
    assert!(holds(&mut proxy, "--to-destination 10.244.0.4:8080"));
    proxy.require_full_sync();
    assert!(proxy.sync().unwrap().is_empty());
}

#[test]
fn a_partial_sync_keeps_refused_service_ports_and_sends_the_rest() {
    let mut proxy = proxy();
    proxy.apply(&service("a", 1, false, "10.244.0.1"));
    proxy.apply(&service("b", 2, false, "10.244.0.2"));
    proxy.sync().unwrap();
    proxy.apply(&service("a", 1, true, "10.244.0.9"));
    proxy.apply(&service("b", 2, false, "10.244.0.8"));
    let report = proxy.sync().unwrap();
    assert!(!report.full);
    assert_eq!(refused(&proxy), ["a"]);
    assert!(holds(&mut proxy, "--to-destination 10.244.0.1:8080"), "as it was");
    assert!(holds(&mut proxy, "--to-destination 10.244.0.8:8080"));
    proxy.apply(&[Change::Service(key("a"), None)]);
    proxy.sync().unwrap();
    assert_eq!(refused(&proxy), [""; 0]);
    assert!(!holds(&mut proxy, "10.244.0.1") && !holds(&mut proxy, "10.244.0.9"));
    proxy.require_full_sync();
    assert!(proxy.sync().unwrap().is_empty(), "nothing is left behind");
}

/// The refused rules may have been computed from an outdated state.
#[test]
fn a_refusal_after_chains_were_deleted_is_repaired_by_a_full_sync() {
    let mut proxy = proxy();
    proxy.apply(&service("a", 1, false, "10.244.0.1"));
    proxy.apply(&service("b", 2, false, "10.244.0.2"));
    proxy.sync().unwrap();
    let nat = proxy.mode().kernel().tables.get_mut(&Table::Nat).unwrap();
    nat.retain(|chain, _| !chain.starts_with("KUBE-SEP-"));
    proxy.mode().kernel().refuse = Some("10.244.0.9".to_owned());
    proxy.apply(&service("a", 1, false, "10.244.0.9"));
    assert!(proxy.sync().is_err());
    assert_eq!(refused(&proxy), [""; 0]);
    proxy.mode().kernel().refuse = None;
    proxy.sync().unwrap_or_else(|_| proxy.sync().unwrap());
    assert_eq!(refused(&proxy), [""; 0]);
    assert!(holds(&mut proxy, "--to-destination 10.244.0.9:8080"));
}

/// A shared chain is written as a whole, with rules of unchanged service ports.
#[test]
fn a_refusal_of_unchanged_rules_leads_to_a_full_sync() {
    let mut proxy = proxy();
    proxy.apply(&service("a", 1, false, "10.244.0.1"));
    proxy.apply(&service("b", 2, false, "10.244.0.2"));
    proxy.sync().unwrap();
    proxy.mode().kernel().refuse = Some("-d 10.96.0.1/32".to_owned());
    proxy.apply(&service("c", 3, false, "10.244.0.3"));
    assert!(proxy.sync().is_err());
    assert!(proxy.sync().is_err());
    assert!(proxy.sync().unwrap().full);
    assert_eq!(refused(&proxy), ["a"]);
    assert!(holds(&mut proxy, "--to-destination 10.244.0.3:8080"));
}

#[test]
fn a_kernel_that_refuses_every_service_port_is_an_error() {
    let mut proxy = proxy();
    proxy.mode().kernel().refuse = Some("-m comment".to_owned());
    proxy.apply(&service("a", 1, false, "10.244.0.1"));
    proxy.apply(&service("b", 2, false, "10.244.0.2"));
    let error = proxy.sync().unwrap_err().to_string();
    assert!(error.contains("no such extension") && error.contains("-m comment"), "{error}");
    assert!(proxy.needs_full());
}
