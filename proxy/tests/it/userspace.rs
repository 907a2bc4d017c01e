//! Tests with fakes: published rules, and the order of listeners and rules.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use svcproxy::cli::render::render_to_string;
use svcproxy::config::{Config, DetectLocal, Mode, NodeAddresses};
use svcproxy::kernel::iptables::{self, Table};
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::userspace::syncer::UserspaceSyncer;
use svcproxy::model::{Family, Protocol};
use svcproxy::plan::BackendSet;
use svcproxy::relay;
use svcproxy::source::read_directory;

use crate::support::published::{PODS, nginx_cluster, node, rendered, service, slice};

fn rules<'a>(text: &'a str, chain: &str) -> Vec<&'a str> {
    let prefix = format!("-A {chain} ");
    text.lines().filter_map(|line| line.strip_prefix(&prefix)).collect()
}

/// Returns a line of `iptables -L` as published, without counters: `REDIRECT tcp 10.96.98.173 NAME: 80 38023`.
fn published(rule: &str) -> String {
    let after = |option: &str| rule.split_once(option).and_then(|(_, rest)| rest.split(' ').next());
    let to = after("--to-ports ").or(after("--to-destination ")).unwrap();
    let destination = after("-d ").map_or("0.0.0.0/0", |net| net.split('/').next().unwrap());
    let comment = rule.split('"').nth(1).unwrap();
    format!(
        "{} {} {destination} {comment} {} {to}",
        after("-j ").unwrap(),
        after("-p ").unwrap(),
        after("--dport ").unwrap()
    )
}

/// The published lists have one listening port per service, except one service whose lists were taken at different
/// times.
#[test]
fn the_nginx_clusters_chains_have_the_published_rules() {
    let text = rendered("userspace", &nginx_cluster(), "kube01", &["--cluster-cidr=192.167.0.0/16"]);
    let mut ports: BTreeMap<&str, String> = BTreeMap::new();
    for (chain, lines) in [
        (
            "KUBE-PORTALS-CONTAINER",
            &[
                "REDIRECT tcp 10.103.1.234 default/my-nginx-cluster: 80 CLUSTER",
                "REDIRECT tcp 10.96.98.173 default/my-nginx-loadbalancer: 80 LOADBALANCER",
                "REDIRECT tcp 172.35.0.200 default/my-nginx-loadbalancer: 80 LOADBALANCER",
                "REDIRECT tcp 10.97.229.148 default/my-nginx-nodeport: 80 NODEPORT",
            ][..],
        ),
        (
            "KUBE-NODEPORT-CONTAINER",
            &[
                "REDIRECT tcp 0.0.0.0/0 default/my-nginx-loadbalancer: 30781 LOADBALANCER",
                "REDIRECT tcp 0.0.0.0/0 default/my-nginx-nodeport: 30915 NODEPORT",
            ],
        ),
        (
            "KUBE-PORTALS-HOST",
            &[
                "DNAT tcp 10.103.1.234 default/my-nginx-cluster: 80 172.35.0.100:CLUSTER",
                "DNAT tcp 10.96.98.173 default/my-nginx-loadbalancer: 80 172.35.0.100:LOADBALANCER",
                "DNAT tcp 172.35.0.200 default/my-nginx-loadbalancer: 80 172.35.0.100:LOADBALANCER",
                "DNAT tcp 10.97.229.148 default/my-nginx-nodeport: 80 172.35.0.100:NODEPORT",
            ],
        ),
        (
            "KUBE-NODEPORT-HOST",
            &[
                "DNAT tcp 0.0.0.0/0 default/my-nginx-loadbalancer: 30781 172.35.0.100:LOADBALANCER",
                "DNAT tcp 0.0.0.0/0 default/my-nginx-nodeport: 30915 172.35.0.100:NODEPORT",
            ],
        ),
    ] {
        let found: Vec<String> = rules(&text, chain).into_iter().map(published).collect();
        assert_eq!(found.len(), lines.len(), "{chain}: {found:#?}");
        for (found, line) in found.iter().zip(lines) {
            let at = line.rfind([' ', ':']).unwrap() + 1;
            let (known, placeholder) = line.split_at(at);
            let port = found.strip_prefix(known).unwrap_or_else(|| panic!("{chain}: {found} is not {line}"));
            let first = ports.entry(placeholder).or_insert_with(|| port.to_owned());
            assert_eq!(first, port, "one listening port for each service");
        }
    }
    let distinct: std::collections::BTreeSet<&String> = ports.values().collect();
    assert_eq!(distinct.len(), 3, "{ports:?}");
}

#[test]
fn render_translates_instead_of_redirecting_if_interfaces_have_no_address() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("all.json"), crate::support::every_kind(1, &[2, 3, 4])).unwrap();
    let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}"#;
    std::fs::write(directory.path().join("node.json"), node).unwrap();
    let manifests = format!("--manifests={}", directory.path().display());
    let render = |mode: &str, flags: &[&str]| {
        let fixed =
            ["--hostname-override=node-a", "--cluster-cidr=10.244.0.0/16", "--ip-family=ipv4", &manifests, mode];
        render_to_string(fixed.iter().chain(flags).map(|flag| (*flag).to_owned()))
    };
    let bare = ["--interfaces-without-address"];
    assert!(render("--mode=userspace", &[]).unwrap().contains("-j REDIRECT"));
    assert!(!render("--mode=userspace", &bare).unwrap().contains("-j REDIRECT"));
    let refused = render("--mode=ipvs", &bare).unwrap_err().to_string();
    assert!(refused.contains("--interfaces-without-address") && refused.contains("ipvs"), "{refused}");
}

#[test]
fn every_kind_of_service_renders_in_both_families() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("all.json"), crate::support::every_kind(1, &[2, 3, 4])).unwrap();
    let flags = ["--hostname-override=node-a", "--cluster-cidr=10.244.0.0/16,fd00:244::/64", "--mode=userspace"];
    let manifests = format!("--manifests={}", directory.path().display());
    let text = |family: &str, more: &[&str]| {
        let family = format!("--ip-family={family}");
        let all = flags.iter().copied().chain([manifests.as_str(), family.as_str()]).chain(more.iter().copied());
        render_to_string(all.map(str::to_owned)).unwrap()
    };
    insta::assert_snapshot!("userspace_everything_v4", text("ipv4", &[]));
    insta::assert_snapshot!("userspace_everything_v6", text("ipv6", &["--nodeport-addresses=primary"]));
}

type UserspaceProxy = FamilyProxy<UserspaceSyncer<iptables::FakeIptables, relay::FakeRelays>>;

fn proxy() -> UserspaceProxy {
    let mut config = Config::for_node("kube01");
    config.mode = Mode::Userspace;
    config.detect_local = DetectLocal::ClusterCidr(vec!["192.167.0.0/16".parse().unwrap()]);
    let mut proxy =
        assemble::userspace(&config, Family::V4, iptables::FakeIptables::default(), relay::FakeRelays::default());
    let local = ["127.0.0.1", "172.35.0.100"].iter().map(|text| text.parse().unwrap()).collect();
    proxy.set_addresses(&NodeAddresses { local, ..NodeAddresses::default() });
    proxy
}

fn tell(proxy: &mut UserspaceProxy, objects: &[Value]) {
    let directory = tempfile::tempdir().unwrap();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    std::fs::write(directory.path().join("objects.json"), list.to_string()).unwrap();
    let reading = read_directory(directory.path()).unwrap();
    assert!(reading.problems.is_empty(), "{:?}", reading.problems);
    proxy.apply(&reading.batch.changes);
}

fn chain(proxy: &mut UserspaceProxy, chain: &str) -> Vec<String> {
    proxy.mode().kernel().tables[&Table::Nat][chain].clone()
}

fn listening(proxy: &mut UserspaceProxy) -> BTreeMap<String, u16> {
    let all = proxy.mode().relays().listening.iter();
    all.map(|(listener, port)| (format!("{} {:?}", listener.name, listener.set), *port)).collect()
}

#[test]
fn a_restart_keeps_ports_and_writes_no_rule() {
    let mut before = proxy();
    tell(&mut before, &nginx_cluster());
    before.sync().unwrap();
    let ports = listening(&mut before);
    assert_eq!(ports.len(), 3);
    // The first proxy had other ports because its objects arrived in another order.
    let mut after = proxy();
    *after.mode().kernel() = before.mode().kernel().clone();
    let (first, second) = ("default/my-nginx-cluster Cluster", "default/my-nginx-nodeport Cluster");
    for chains in after.mode().kernel().tables.values_mut() {
        for rule in chains.values_mut().flatten() {
            let (a, b) = (ports[first].to_string(), ports[second].to_string());
            *rule = rule.replace(&a, "@").replace(&b, &a).replace('@', &b);
        }
    }
    tell(&mut after, &nginx_cluster());
    let report = after.sync().unwrap();
    assert!(report.is_empty(), "{report:?}");
    let swapped = listening(&mut after);
    assert_eq!((swapped[first], swapped[second]), (ports[second], ports[first]));
}

#[test]
fn a_change_of_endpoints_changes_no_rule_and_a_deleted_service_closes_its_listener() {
    let mut proxy = proxy();
    tell(&mut proxy, &nginx_cluster());
    proxy.sync().unwrap();
    let text = proxy.mode().kernel().clone().tables;
    tell(&mut proxy, &[slice("my-nginx-cluster", &PODS[..1], "TCP")]);
    let report = proxy.sync().unwrap();
    assert_eq!((report.full, report.rules), (false, 0));
    assert_eq!(proxy.mode().kernel().tables, text);
    let led = proxy.mode().relays().active.clone();
    let of_cluster = led.iter().find(|(name, _)| name.service.name == "my-nginx-cluster").unwrap().1;
    assert_eq!(of_cluster.cluster.to_vec(), ["192.167.2.231:80".parse().unwrap()]);
    // Without endpoints the service is rejected and has no listener; with endpoints it has the same port again.
    let port = listening(&mut proxy)["default/my-nginx-cluster Cluster"];
    tell(&mut proxy, &[slice("my-nginx-cluster", &[], "TCP")]);
    proxy.sync().unwrap();
    assert!(!listening(&mut proxy).contains_key("default/my-nginx-cluster Cluster"));
    let refused = proxy.mode().kernel().tables[&Table::Filter]["KUBE-SERVICES"].clone();
    assert!(refused[0].contains("default/my-nginx-cluster has no endpoints") && refused[0].contains("REJECT"));
    tell(&mut proxy, &[slice("my-nginx-cluster", &PODS, "TCP")]);
    proxy.sync().unwrap();
    assert_eq!(listening(&mut proxy)["default/my-nginx-cluster Cluster"], port);
}

#[test]
fn a_service_skips_taken_ports_and_is_rejected_without_any() {
    let mut known = proxy();
    tell(&mut known, &nginx_cluster());
    known.sync().unwrap();
    let port = listening(&mut known)["default/my-nginx-cluster Cluster"];
    let mut proxy = proxy();
    proxy.mode().relays().taken.insert((Protocol::Tcp, port));
    tell(&mut proxy, &nginx_cluster());
    proxy.sync().unwrap();
    let other = listening(&mut proxy)["default/my-nginx-cluster Cluster"];
    assert_ne!(other, port);
    assert!(chain(&mut proxy, "KUBE-PORTALS-CONTAINER")[0].ends_with(&format!("--to-ports {other}")));
    // Without descriptors a new service is rejected and retried; the others continue.
    proxy.mode().relays().exhausted = true;
    tell(
        &mut proxy,
        &[service("late", "10.96.0.9", json!({ "ports": [{ "port": 80 }] })), slice("late", &PODS, "TCP")],
    );
    proxy.sync().unwrap();
    let refused = proxy.mode().kernel().tables[&Table::Filter]["KUBE-SERVICES"].clone();
    assert!(refused[0].contains("default/late has no listening port") && refused[0].contains("REJECT"), "{refused:?}");
    let again = proxy.follow_up(std::time::Instant::now()).unwrap().unwrap();
    assert!(!proxy.needs_full());
    proxy.mode().relays().exhausted = false;
    proxy.follow_up(again).unwrap();
    assert!(proxy.needs_full());
    proxy.sync().unwrap();
    assert!(listening(&mut proxy).contains_key("default/late Cluster"));
    assert_eq!(proxy.mode().kernel().tables[&Table::Filter]["KUBE-SERVICES"], Vec::<String>::new());
}

#[test]
fn a_failed_restore_keeps_the_listeners_of_existing_rules() {
    let mut proxy = proxy();
    tell(&mut proxy, &nginx_cluster());
    proxy.sync().unwrap();
    tell(&mut proxy, &[slice("my-nginx-nodeport", &[], "TCP")]);
    proxy.mode().kernel().fail_restores = 1;
    proxy.sync().unwrap_err();
    assert!(listening(&mut proxy).contains_key("default/my-nginx-nodeport Cluster"), "rules lead to it still");
    proxy.sync().unwrap();
    assert!(!listening(&mut proxy).contains_key("default/my-nginx-nodeport Cluster"));
}

#[test]
fn under_policy_local_only_pods_and_the_node_reach_all_backends() {
    let mut proxy = proxy();
    let spec = json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{ "port": 80, "nodePort": 30080 }],
        "loadBalancerSourceRanges": ["192.167.2.0/24", "198.51.100.0/24"], "externalIPs": ["203.0.113.1"] });
    let mut balanced = service("web", "10.96.0.1", spec);
    balanced["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "172.35.0.200" }] } });
    let pods = [("192.167.2.1", "kube01"), ("192.167.1.1", "kube02")];
    tell(&mut proxy, &[balanced, slice("web", &pods, "TCP"), node("kube01", "172.35.0.100")]);
    proxy.sync().unwrap();
    let ports = listening(&mut proxy);
    let (all, own) = (ports["default/web Cluster"], ports["default/web Local"]);
    let container = |matching: &str, dport: u16, port: u16| {
        let space = if matching.is_empty() { "" } else { " " };
        format!(
            "{matching}{space}-p tcp -m comment --comment \"default/web:\" -m tcp --dport {dport} -j REDIRECT --to-ports {port}"
        )
    };
    let wanted = [
        container("-d 10.96.0.1/32", 80, all),
        container("-s 192.167.0.0/16 -d 203.0.113.1/32", 80, all),
        container("-d 203.0.113.1/32", 80, own),
        // First the allowed part of the pods' range, then the other allowed sources.
        container("-s 192.167.2.0/24 -d 172.35.0.200/32", 80, all),
        container("-s 192.167.2.0/24 -d 172.35.0.200/32", 80, own),
        container("-s 198.51.100.0/24 -d 172.35.0.200/32", 80, own),
    ];
    assert_eq!(chain(&mut proxy, "KUBE-PORTALS-CONTAINER"), wanted);
    let wanted = [container("-s 192.167.0.0/16", 30080, all), container("", 30080, own)];
    assert_eq!(chain(&mut proxy, "KUBE-NODEPORT-CONTAINER"), wanted);
    let host = chain(&mut proxy, "KUBE-NODEPORT-HOST");
    assert!(matches!(&host[..], [rule] if rule.ends_with(&format!("--to-destination 172.35.0.100:{all}"))), "{host:?}");
    let led = proxy.mode().relays().active.values().next().unwrap().clone();
    assert_eq!((led.set(BackendSet::Cluster).len(), led.set(BackendSet::Local).len()), (2, 1));
}

/// The kernel would drop packets that are redirected to an interface without an address.
#[test]
fn with_interfaces_without_an_address_rules_translate_to_the_nodes_address() {
    let mut proxy = proxy();
    tell(&mut proxy, &nginx_cluster());
    proxy.sync().unwrap();
    assert!(chain(&mut proxy, "KUBE-PORTALS-CONTAINER").iter().all(|rule| rule.contains("-j REDIRECT")));
    let local: Vec<_> = ["127.0.0.1", "172.35.0.100"].iter().map(|text| text.parse().unwrap()).collect();
    let addresses = |bare: &[Family]| NodeAddresses { local: local.clone(), bare: bare.to_vec(), ..Default::default() };
    proxy.set_addresses(&addresses(&[Family::V6]));
    proxy.sync().unwrap();
    assert!(chain(&mut proxy, "KUBE-PORTALS-CONTAINER")[0].contains("-j REDIRECT"), "the other family's business");
    proxy.set_addresses(&addresses(&[Family::V4]));
    assert!(!proxy.is_due(), "the link may get its address in a moment");
    for bare in [&[Family::V4][..], &[]] {
        proxy.set_addresses(&addresses(bare));
        proxy.sync().unwrap();
        for name in ["KUBE-PORTALS-CONTAINER", "KUBE-NODEPORT-CONTAINER"] {
            let rules = chain(&mut proxy, name);
            assert!(rules.iter().all(|rule| rule.contains("-j DNAT --to-destination 172.35.0.100:")), "{rules:?}");
        }
    }
}

#[test]
fn sctp_service_ports_are_rejected() {
    let mut proxy = proxy();
    let spec = json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30080, "protocol": "SCTP" }] });
    tell(&mut proxy, &[service("web", "10.96.0.1", spec), slice("web", &PODS, "SCTP")]);
    proxy.sync().unwrap();
    assert!(listening(&mut proxy).is_empty());
    let filter = proxy.mode().kernel().tables[&Table::Filter].clone();
    for chain in ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"] {
        assert!(
            filter[chain][0].contains("SCTP, which is not relayed") && filter[chain][0].contains("REJECT"),
            "{chain}"
        );
    }
}
