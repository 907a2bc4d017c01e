//! Connections of a lost endpoint in iptables mode: rules that reset, and conntrack entries to delete.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use svcproxy::config::{Config, NodeAddresses};
use svcproxy::kernel::iptables::{FakeIptables, Table};
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::iptables::syncer::IptablesSyncer;
use svcproxy::model::{Change, Family, Flow, Protocol};
use svcproxy::testing::{self, key};

type IptablesProxy = FamilyProxy<IptablesSyncer<FakeIptables>>;

fn proxy(kernel: FakeIptables) -> IptablesProxy {
    let mut proxy = assemble::iptables(&Config::for_node("node-a"), Family::V4, kernel);
    let own = vec!["192.0.2.1".parse().unwrap()];
    proxy.set_addresses(&NodeAddresses { local: own.clone(), primary: own, ..NodeAddresses::default() });
    proxy
}

fn web(fate: Option<&str>, spec: Value) -> Change {
    let annotations = fate.map_or(json!({}), |fate| json!({ "svcproxy/flow-fate": fate }));
    let service = json!({ "metadata": { "name": "web", "annotations": annotations }, "spec": spec });
    Change::Service(key("web"), Some(testing::object(service)))
}

fn cluster_ip() -> Value {
    json!({ "clusterIP": "10.96.0.1", "ports": [{ "port": 80 }] })
}

fn hosts(hosts: &[&str]) -> Change {
    testing::slice_of_hosts("web", hosts, "TCP")
}

/// Returns the rules of filter about the Service's frontends.
fn refusals(proxy: &mut IptablesProxy) -> Vec<String> {
    let filter = &proxy.mode().kernel().tables[&Table::Filter];
    let chains = ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"].into_iter().filter_map(|chain| filter.get(chain));
    chains.flatten().cloned().collect()
}

const RESET: &str = "-d 10.96.0.1/32 -p tcp -m comment --comment \"default/web resets open connections\" \
                     -m tcp --dport 80 ! --tcp-flags FIN,SYN,RST,ACK SYN -j REJECT --reject-with tcp-reset";

#[test]
fn a_frontend_without_endpoints_resets_open_connections_where_the_service_asks() {
    let rules = |fate, spec: &Value, endpoints: Change| {
        let mut proxy = proxy(FakeIptables::default());
        proxy.apply(&[web(fate, spec.clone()), endpoints]);
        proxy.sync().unwrap();
        refusals(&mut proxy)
    };
    let none = "-d 10.96.0.1/32 -p tcp -m comment --comment \"default/web has no endpoints\" -m tcp --dport 80 \
                -j REJECT --reject-with icmp-port-unreachable";
    assert_eq!(rules(None, &cluster_ip(), hosts(&[])), [none]);
    assert_eq!(rules(Some("keep"), &cluster_ip(), hosts(&[])), [none]);
    assert_eq!(rules(Some("reset"), &cluster_ip(), hosts(&[])), [RESET, none]);
    assert_eq!(rules(Some("drain=5s"), &cluster_ip(), hosts(&[])), [RESET, none]);
    assert_eq!(rules(Some("reset"), &cluster_ip(), hosts(&["10.244.1.1"])), [""; 0]);
    let local = json!({ "type": "NodePort", "clusterIP": "10.96.0.1", "externalTrafficPolicy": "Local",
                        "ports": [{ "port": 80, "nodePort": 30080 }] });
    let of_node = "-p tcp -m comment --comment \"default/web {why}\" -m addrtype --dst-type LOCAL -m tcp --dport 30080{open} -j {target}";
    let of_node = |why, open, target| of_node.replace("{why}", why).replace("{open}", open).replace("{target}", target);
    let dropped = of_node("has no local endpoints", "", "DROP");
    let open = " ! --tcp-flags FIN,SYN,RST,ACK SYN";
    let reset = of_node("resets open connections", open, "REJECT --reject-with tcp-reset");
    assert_eq!(rules(None, &local, hosts(&["10.244.1.1"])), [&*dropped]);
    assert_eq!(rules(Some("reset"), &local, hosts(&["10.244.1.1"])), [reset, dropped]);
}

fn is_stale(proxy: &IptablesProxy, to: &str, server: &str) -> bool {
    let (destination, server): (SocketAddr, SocketAddr) = (to.parse().unwrap(), server.parse().unwrap());
    let client = "10.244.0.9".parse().unwrap();
    let flow = Flow { protocol: Protocol::Tcp, client, destination, server, translated: true, by_ipvs: false };
    proxy.stale_flows().is_some_and(|flows| flows.is_stale(&flow))
}

/// As the daemon does after it has deleted the entries.
fn delete_stale(proxy: &mut IptablesProxy) {
    proxy.conntrack_reconciled();
}

const TO: &str = "10.96.0.1:80";
const ONE: &str = "10.244.1.1:8080";
const TWO: &str = "10.244.1.2:8080";

#[test]
fn entries_of_a_lost_endpoint_are_stale_after_the_sync_that_removes_it() {
    let mut proxy = proxy(FakeIptables::default());
    proxy.apply(&[web(Some("reset"), cluster_ip()), hosts(&["10.244.1.1", "10.244.1.2"])]);
    proxy.sync().unwrap();
    assert!(is_stale(&proxy, TO, "10.244.1.9:8080"), "a previous proxy's endpoint");
    delete_stale(&mut proxy);
    proxy.apply(&[hosts(&["10.244.1.2"])]);
    assert!(!is_stale(&proxy, TO, ONE), "the rules still lead to it");
    proxy.mode().kernel().fail_restores = 9;
    proxy.sync().unwrap_err();
    assert!(!is_stale(&proxy, TO, ONE));
    proxy.mode().kernel().fail_restores = 0;
    proxy.sync().unwrap();
    assert!(is_stale(&proxy, TO, ONE) && !is_stale(&proxy, TO, TWO));
    assert!(!is_stale(&proxy, "10.96.0.2:80", ONE), "another Service's");
    assert!(!is_stale(&proxy, ONE, ONE), "the endpoint's own address");
    assert!(!is_stale(&proxy, TO, "10.244.1.9:8080"));
    delete_stale(&mut proxy);
    assert!(proxy.stale_flows().is_none());
    proxy.apply(&[hosts(&[])]);
    proxy.sync().unwrap();
    proxy.apply(&[hosts(&["10.244.1.2"])]);
    proxy.sync().unwrap();
    assert!(!is_stale(&proxy, TO, TWO), "it serves again before its entries are deleted");
}

#[test]
fn nothing_is_stale_unless_a_service_asks() {
    let mut proxy = proxy(FakeIptables::default());
    proxy.apply(&[web(None, cluster_ip()), hosts(&["10.244.1.1"])]);
    proxy.sync().unwrap();
    proxy.apply(&[hosts(&[])]);
    proxy.sync().unwrap();
    assert!(proxy.stale_flows().is_none());
    proxy.apply(&[Change::Service(key("web"), None)]);
    proxy.sync().unwrap();
    assert!(proxy.stale_flows().is_none());
    assert_eq!(refusals(&mut proxy), [""; 0]);
}

#[test]
fn a_drain_ends_between_syncs() {
    let mut proxy = proxy(FakeIptables::default());
    proxy.apply(&[web(Some("drain=30s"), cluster_ip()), hosts(&["10.244.1.1"])]);
    proxy.sync().unwrap();
    delete_stale(&mut proxy);
    proxy.apply(&[hosts(&[])]);
    proxy.sync().unwrap();
    assert!(!is_stale(&proxy, TO, ONE));
    let next = proxy.follow_up(Instant::now()).unwrap();
    assert!(next.is_some_and(|next| next <= Instant::now() + Duration::from_secs(30)));
    assert!(!proxy.take_ended());
    proxy.follow_up(Instant::now() + Duration::from_secs(31)).unwrap();
    assert!(proxy.take_ended() && is_stale(&proxy, TO, ONE));
}

#[test]
fn a_lost_address_resets_open_connections_until_a_service_has_it() {
    let mut proxy = proxy(FakeIptables::default());
    proxy.apply(&[web(Some("reset"), cluster_ip()), hosts(&["10.244.1.1"])]);
    proxy.sync().unwrap();
    delete_stale(&mut proxy);
    proxy.apply(&[Change::Service(key("web"), None)]);
    assert!(!proxy.sync().unwrap().full);
    assert!(is_stale(&proxy, TO, ONE));
    assert_eq!(refusals(&mut proxy), [RESET]);
    proxy.require_full_sync();
    assert!(proxy.sync().unwrap().is_empty(), "a full sync keeps the rule");
    assert_eq!(refusals(&mut proxy), [RESET]);
    proxy.apply(&[web(Some("reset"), cluster_ip())]);
    proxy.sync().unwrap();
    assert_eq!(refusals(&mut proxy), [""; 0]);
    // A Service that is deleted while the next sync is full.
    proxy.apply(&[Change::Service(key("web"), None)]);
    proxy.require_full_sync();
    proxy.sync().unwrap();
    assert_eq!(refusals(&mut proxy), [RESET]);
    let mut next = self::proxy(proxy.mode().kernel().clone());
    next.sync().unwrap();
    assert_eq!(refusals(&mut next), [""; 0], "the next proxy does not know it");
}
