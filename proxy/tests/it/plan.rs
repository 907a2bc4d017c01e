//! Tables of cases: backends, masquerading, verdicts without endpoints.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use svcproxy::config::{Config, DetectLocal, Mode, NodeAddresses, NodePortAddresses};
use svcproxy::model::{Family, Protocol};
use svcproxy::plan::affinity::{AcrossPortsIgnored, AcrossPortsPolicy};
use svcproxy::plan::flow_fate::FatePolicy;
use svcproxy::plan::ignored_annotations::AnnotationIgnored;
use svcproxy::plan::load_balancing::BalancingPolicy;
use svcproxy::plan::node::routes_loopback;
use svcproxy::plan::service_port::PlanContext;
use svcproxy::plan::stale_flows::servers;
use svcproxy::plan::{
    BackendSet, FrontendAction, FrontendVerdict, Masquerade, NodePortScope, PodSource, ServicePortPlan, plan_node,
    plan_service_port, service_ranges,
};
use svcproxy::state::NodeInfo;
use svcproxy::state::endpoints::Endpoint;
use svcproxy::state::service::{ServicePort, TrafficPolicy};
use svcproxy::testing;

const CLUSTER: FrontendVerdict = FrontendVerdict::Deliver(BackendSet::Cluster);
const LOCAL: FrontendVerdict = FrontendVerdict::Deliver(BackendSet::Local);

fn service() -> ServicePort {
    let name = testing::port_name("web", Protocol::Tcp);
    ServicePort { node_port: Some(30080), ..testing::service_port(name, "10.96.0.1") }
}

/// `here:1:ready` is 10.0.0.1 on this node; `there` is another node. The condition is `ready`, `terminating` (and
/// serving), `gone` (terminating and not serving) or `unready`. Hints follow: `z=zone`, `n=node`.
fn endpoint(text: &str) -> Endpoint {
    let parts: Vec<&str> = text.split(':').collect();
    let condition = parts[2];
    let hints = |key: &str| -> BTreeSet<String> {
        parts[3..].iter().filter_map(|p| p.strip_prefix(key)).map(str::to_owned).collect()
    };
    Endpoint {
        local: parts[0] == "here",
        ready: condition == "ready",
        serving: matches!(condition, "ready" | "terminating"),
        terminating: matches!(condition, "terminating" | "gone"),
        zone_hints: hints("z="),
        node_hints: hints("n="),
        ..testing::endpoint(&format!("10.0.0.{}:8080", parts[1]))
    }
}

fn context(node: &NodeInfo, primary: Option<IpAddr>, masquerade_all: bool) -> PlanContext<'_> {
    static NONE: BTreeSet<IpAddr> = BTreeSet::new();
    PlanContext {
        node_name: "me",
        node,
        primary,
        masquerade_all,
        other_machines: &NONE,
        affinity_across_ports: AcrossPortsPolicy::default(),
        fates: FatePolicy::default(),
        local_fallback: true,
        source_ranges: true,
        balancing: BalancingPolicy::default(),
    }
}

fn plan_with(port: &ServicePort, endpoints: &[&str], masquerade_all: bool) -> ServicePortPlan {
    let endpoints: Vec<Endpoint> = endpoints.iter().map(|e| endpoint(e)).collect();
    let node = NodeInfo { zone: Some("a".into()), ..NodeInfo::default() };
    let primary = Some("192.0.2.1".parse().unwrap());
    plan_service_port(port, &endpoints, context(&node, primary, masquerade_all))
}

fn plan(port: &ServicePort, endpoints: &[&str]) -> ServicePortPlan {
    plan_with(port, endpoints, false)
}

fn hosts(backends: &[SocketAddr]) -> Vec<u8> {
    backends.iter().map(|b| b.to_string().split(['.', ':']).nth(3).unwrap().parse().unwrap()).collect()
}

#[test]
fn policy_cluster_chooses_backends_by_conditions_and_hints() {
    let table: [(&str, &[&str], &[u8]); 12] = [
        ("ready ones", &["here:1:ready", "there:2:ready", "there:3:unready"], &[1, 2]),
        ("terminating ones only when none is ready", &["here:1:ready", "there:2:terminating"], &[1]),
        ("terminating ones that serve", &["here:1:terminating", "there:2:gone", "there:3:unready"], &[1]),
        ("nobody", &["here:1:gone", "there:2:unready"], &[]),
        ("hints of this zone", &["there:1:ready:z=a", "there:2:ready:z=b"], &[1]),
        ("hints are ignored when one is missing", &["there:1:ready:z=a", "there:2:ready"], &[1, 2]),
        ("hints are ignored when none is for here", &["there:1:ready:z=b", "there:2:ready:z=b"], &[1, 2]),
        (
            "an unready endpoint's missing hint does not count",
            &["there:1:ready:z=a", "there:2:ready:z=b", "there:3:unready"],
            &[1],
        ),
        ("node hints go before zone hints", &["there:1:ready:z=a:n=me", "there:2:ready:z=a:n=you"], &[1]),
        ("node hints of others leave the zone hints", &["there:1:ready:z=a:n=you", "there:2:ready:z=b:n=him"], &[1]),
        ("several zones in one hint", &["there:1:ready:z=a:z=b", "there:2:ready:z=b"], &[1]),
        ("hints do not narrow terminating ones", &["there:1:terminating:z=b", "there:2:terminating:z=a"], &[1, 2]),
    ];
    for (case, endpoints, expected) in table {
        assert_eq!(hosts(&plan(&service(), endpoints).cluster_backends), expected, "{case}");
    }
}

#[test]
fn policy_local_chooses_backends_of_this_node() {
    let port = ServicePort { external_policy: TrafficPolicy::Local, ..service() };
    let table: [(&str, &[&str], &[u8], FrontendVerdict); 6] = [
        ("those of this node", &["here:1:ready", "there:2:ready"], &[1], LOCAL),
        ("hints play no part", &["here:1:ready:z=b", "there:2:ready:z=a"], &[1], LOCAL),
        (
            "terminating ones of this node before ready ones elsewhere",
            &["here:1:terminating", "there:2:ready"],
            &[1],
            LOCAL,
        ),
        ("lost when only others have one", &["there:2:ready"], &[], FrontendVerdict::Drop),
        (
            "lost when only others have a terminating one",
            &["there:2:terminating", "here:1:gone"],
            &[],
            FrontendVerdict::Drop,
        ),
        ("refused without one", &["here:1:gone", "there:2:unready"], &[], FrontendVerdict::Reject),
    ];
    for (case, endpoints, expected, verdict) in table {
        let plan = plan(&port, endpoints);
        assert_eq!(hosts(&plan.local_backends), expected, "{case}");
        assert_eq!(plan.external.unwrap().action.verdict, verdict, "{case}");
        assert_eq!(plan.no_local_endpoints.external, verdict == FrontendVerdict::Drop, "{case}");
    }
}

#[test]
fn masquerade_depends_on_frontend_and_policy() {
    let endpoints = ["here:1:ready", "there:2:ready"];
    let action = |verdict, masquerade| FrontendAction { verdict, masquerade };
    let base = plan(&service(), &endpoints);
    assert_eq!(base.internal.unwrap().action, action(CLUSTER, Masquerade::NotPods));
    let external = base.external.unwrap();
    assert_eq!(external.action, action(CLUSTER, Masquerade::Always));
    assert_eq!(external.short_circuit, None);

    assert_eq!(plan_with(&service(), &endpoints, true).internal.unwrap().action.masquerade, Masquerade::Always);

    let local = ServicePort { external_policy: TrafficPolicy::Local, ..service() };
    let external = plan(&local, &endpoints).external.unwrap();
    assert_eq!(external.action, action(LOCAL, Masquerade::Never), "the client's address is preserved");
    let short = external.short_circuit.unwrap();
    assert_eq!(short.pods, action(CLUSTER, Masquerade::Never));
    assert_eq!(short.node, action(CLUSTER, Masquerade::Always));
    assert_eq!(
        plan(&local, &["here:1:unready"]).external.unwrap().short_circuit,
        None,
        "there is no endpoint to go round to"
    );
}

#[test]
fn a_fallback_makes_policy_local_cluster_where_the_node_has_no_endpoint() {
    let asked = ServicePort {
        external_policy: TrafficPolicy::Local,
        internal_policy: TrafficPolicy::Local,
        health_check_node_port: Some(32000),
        local_fallback: true,
        ..service()
    };
    let without = ServicePort { local_fallback: false, ..asked.clone() };
    let both = ["here:1:ready", "there:2:ready"];
    assert_eq!(plan(&asked, &both), plan(&without, &both), "local endpoints are preferred");
    assert_eq!(plan(&asked, &["here:1:unready"]), plan(&without, &["here:1:unready"]), "nothing to fall back to");

    let fallen = plan(&asked, &["there:2:ready"]);
    assert_eq!(fallen.internal.unwrap().action.verdict, FrontendVerdict::Drop, "external policy only");
    assert!(fallen.no_local_endpoints.internal && !fallen.no_local_endpoints.external);
    assert_eq!(fallen.health_check.unwrap().local_ready, [] as [IpAddr; 0], "load balancers still prefer other nodes");
    let cluster = ServicePort { external_policy: TrafficPolicy::Cluster, ..without.clone() };
    assert_eq!(fallen.external, plan(&cluster, &["there:2:ready"]).external);

    let node = NodeInfo::default();
    let context = PlanContext { local_fallback: false, ..context(&node, None, false) };
    let not_allowed = plan_service_port(&asked, &[endpoint("there:2:ready")], context);
    assert_eq!(not_allowed.annotations_ignored, [AnnotationIgnored::LocalFallback]);
    assert_eq!(not_allowed.external, plan(&without, &["there:2:ready"]).external);
}

#[test]
fn ports_remember_clients_together_where_the_mode_can() {
    let asked = ServicePort { affinity: Some(Duration::from_secs(9)), affinity_across_ports: true, ..service() };
    let two = [endpoint("here:1:ready"), endpoint("there:2:unready")];
    let other_port = Endpoint { address: "10.0.0.2:8081".parse().unwrap(), ..two[1].clone() };
    let same_address = [two[0].clone(), two[1].clone(), other_port];
    let of = |mode| Config { mode, ..Config::for_node("me") };
    let forbidden = Config { annotations: BTreeSet::new(), ..of(Mode::Nftables) };
    let node = NodeInfo::default();
    for (config, port, endpoints, decided) in [
        (of(Mode::Iptables), &asked, &two[..], Ok(())),
        (of(Mode::Nftables), &asked, &two, Ok(())),
        (of(Mode::Userspace), &asked, &two, Ok(())),
        (of(Mode::Ipvs), &asked, &two, Err(AcrossPortsIgnored::Ipvs)),
        (forbidden, &asked, &two, Err(AcrossPortsIgnored::NotAllowed)),
        (
            of(Mode::Nftables),
            &ServicePort { affinity: None, ..asked.clone() },
            &two,
            Err(AcrossPortsIgnored::NoAffinity),
        ),
        (of(Mode::Nftables), &asked, &same_address, Err(AcrossPortsIgnored::SharedAddress)),
    ] {
        let without = ServicePort { affinity_across_ports: false, ..port.clone() };
        let context =
            PlanContext { affinity_across_ports: AcrossPortsPolicy::of(&config), ..context(&node, None, false) };
        let plan = plan_service_port(port, endpoints, context);
        let ignored: Vec<AnnotationIgnored> =
            decided.err().into_iter().map(AnnotationIgnored::AffinityAcrossPorts).collect();
        assert_eq!(plan.annotations_ignored, ignored, "{}", config.mode);
        let expected = ServicePortPlan {
            affinity_across_ports: decided.is_ok(),
            annotations_ignored: ignored,
            ..plan_service_port(&without, endpoints, context)
        };
        assert_eq!(plan, expected, "{}", config.mode);
    }
}

#[test]
fn internal_policy_local_does_not_apply_to_external_frontends() {
    let port = ServicePort { internal_policy: TrafficPolicy::Local, ..service() };
    let plan = plan(&port, &["there:2:ready"]);
    assert_eq!(plan.internal.unwrap().action.verdict, FrontendVerdict::Drop);
    assert!(plan.no_local_endpoints.internal && !plan.no_local_endpoints.external);
    assert_eq!(plan.external.unwrap().action.verdict, CLUSTER);
}

#[test]
fn the_health_check_counts_ready_endpoints_of_this_node() {
    let port = ServicePort { external_policy: TrafficPolicy::Local, health_check_node_port: Some(32000), ..service() };
    let plan = plan(&port, &["here:1:ready", "here:2:terminating", "there:3:ready"]);
    assert_eq!(plan.health_check.unwrap().local_ready, ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
}

#[test]
fn source_ranges_restrict_only_load_balancer_ips() {
    let ranges = |text: &str| vec![text.parse().unwrap()];
    let port = ServicePort { source_ranges: ranges("198.51.100.0/24"), ..service() };
    assert_eq!(plan(&port, &["here:1:ready"]).external.unwrap().allowed_sources, None, "there is no load balancer");
    let port = ServicePort { load_balancer_ips: vec!["203.0.113.1".parse().unwrap()], ..port };
    let allowed = plan(&port, &["here:1:ready"]).external.unwrap().allowed_sources.unwrap();
    assert!(!allowed.own_addresses, "the node is not in the range");
    let port = ServicePort { source_ranges: ranges("192.0.2.0/24"), ..port };
    assert!(plan(&port, &["here:1:ready"]).external.unwrap().allowed_sources.unwrap().own_addresses);
}

#[test]
fn annotated_ranges_restrict_node_ports_and_external_ips() {
    let ranges = |text: &str| Some([text.parse().unwrap()].into());
    let port = ServicePort {
        annotated_ranges: ranges("198.51.100.0/24"),
        load_balancer_ips: vec!["203.0.113.1".parse().unwrap()],
        ..service()
    };
    let annotated = |port: &ServicePort| plan(port, &["here:1:ready"]).external.unwrap().annotated_sources;
    let without = ServicePort { node_port: None, external_ips: Vec::new(), ..port.clone() };
    assert_eq!(annotated(&without), None, "there is only a load balancer");
    let port = ServicePort { node_port: Some(30080), ..port };
    assert_eq!(plan(&port, &["here:1:ready"]).external.unwrap().allowed_sources, None);
    assert!(!annotated(&port).unwrap().own_addresses, "the node is not in the range");
    let listed = ServicePort { annotated_ranges: ranges("192.0.2.0/24"), ..port.clone() };
    assert!(annotated(&listed).unwrap().own_addresses);
    let other_family = ServicePort { annotated_ranges: Some([].into()), ..port.clone() };
    assert_eq!(annotated(&other_family).unwrap().ranges, [], "a list without a range of the family allows none");

    let node = NodeInfo::default();
    let shut = PlanContext { source_ranges: false, ..context(&node, None, false) };
    let shut = plan_service_port(&port, &[endpoint("here:1:ready")], shut);
    assert_eq!(shut.external.unwrap().annotated_sources, None);
    assert_eq!(shut.annotations_ignored, [AnnotationIgnored::SourceRanges]);
}

#[test]
fn node_ports_are_accepted_on_the_configured_addresses() {
    let ips = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<_>>();
    let addresses = NodeAddresses {
        local: ips(&["127.0.0.1", "192.0.2.1", "10.1.0.1", "::1", "fd00::1"]),
        primary: ips(&["192.0.2.1", "fd00::1"]),
        ..NodeAddresses::default()
    };
    let ranges = |texts: &[&str]| NodePortAddresses::Ranges(texts.iter().map(|t| t.parse().unwrap()).collect());
    let every = |loopback| NodePortScope::EveryLocalAddress { loopback };
    let listed = |texts: &[&str]| NodePortScope::Addresses(ips(texts));
    let table = [
        (Family::V4, NodePortAddresses::All, true, every(true)),
        (Family::V4, NodePortAddresses::All, false, every(false)),
        (Family::V6, NodePortAddresses::All, true, every(false)),
        (Family::V4, NodePortAddresses::Primary, true, listed(&["192.0.2.1"])),
        (Family::V6, NodePortAddresses::Primary, true, listed(&["fd00::1"])),
        (Family::V4, ranges(&["10.0.0.0/8"]), true, listed(&["10.1.0.1"])),
        (Family::V4, ranges(&["127.0.0.0/8", "10.0.0.0/8"]), true, listed(&["10.1.0.1", "127.0.0.1"])),
        (Family::V4, ranges(&["127.0.0.0/8"]), false, listed(&[])),
        (Family::V6, ranges(&["10.0.0.0/8"]), true, every(false)),
        (Family::V4, ranges(&["10.0.0.0/8", "0.0.0.0/0"]), true, every(true)),
    ];
    for (family, node_port_addresses, localhost_node_ports, expected) in table {
        let config = Config { node_port_addresses, localhost_node_ports, ..Config::for_node("me") };
        let plan = plan_node(&config, family, &NodeInfo::default(), &addresses);
        assert_eq!(plan.node_ports, expected, "{family} {config:?}");
    }
}

/// Per family the first internal address, else the first external address (upstream's `GetNodeHostIPs`).
#[test]
fn the_primary_address_is_the_first_internal_one() {
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a [&'a str]);
    let table: [Row<'_>; 5] = [
        (
            &[
                ("InternalIP", "192.0.2.1"),
                ("InternalIP", "192.0.2.2"),
                ("InternalIP", "fd00::1"),
                ("InternalIP", "fd00::2"),
            ],
            &["192.0.2.1"],
            &["fd00::1"],
        ),
        (&[("ExternalIP", "198.51.100.1"), ("InternalIP", "192.0.2.1")], &["192.0.2.1"], &["fd00::99"]),
        (
            &[("InternalIP", "fd00::1"), ("ExternalIP", "198.51.100.1"), ("ExternalIP", "198.51.100.2")],
            &["198.51.100.1"],
            &["fd00::1"],
        ),
        (&[("Hostname", "192.0.2.7"), ("ExternalIP", "fd00::1")], &["192.0.2.99"], &["fd00::1"]),
        (&[], &["192.0.2.99"], &["fd00::99"]),
    ];
    let ips = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<std::net::IpAddr>>();
    let shown = NodeAddresses { primary: ips(&["192.0.2.99", "fd00::99"]), ..NodeAddresses::default() };
    for (declared, v4, v6) in table {
        let declared: Vec<_> =
            declared.iter().map(|(kind, address)| serde_json::json!({"type": kind, "address": address})).collect();
        let node = serde_json::json!({"metadata": {"name": "me"}, "status": {"addresses": declared}});
        let change = svcproxy::source::admit_node(serde_json::from_value(node).unwrap()).unwrap();
        let config = Config { node_port_addresses: NodePortAddresses::Primary, ..Config::for_node("me") };
        for (family, expected) in [(Family::V4, v4), (Family::V6, v6)] {
            let mut state = svcproxy::state::State::new(family, "me");
            state.apply(&change);
            let plan = plan_node(&config, family, state.node(), &shown);
            assert_eq!(plan.node_ports, NodePortScope::Addresses(ips(expected)), "{family} {declared:?}");
            assert_eq!(plan.primary, Some(ips(expected)[0]), "{family} {declared:?}");
        }
    }
}

/// As upstream's `NodePortAddresses.ContainsIPv4Loopback`.
#[test]
fn the_loopback_range_is_routed_and_guarded_if_node_ports_need_it() {
    let ranges = |texts: &[&str]| NodePortAddresses::Ranges(texts.iter().map(|t| t.parse().unwrap()).collect());
    let with = |texts: &[&str]| NodePortAddresses::PrimaryAndRanges(texts.iter().map(|t| t.parse().unwrap()).collect());
    let table = [
        (NodePortAddresses::All, true),
        (NodePortAddresses::Primary, false),
        (ranges(&["192.0.2.0/24"]), false),
        (ranges(&["192.0.2.0/24", "::1/128"]), false),
        (ranges(&["fd00::/8"]), true),
        (ranges(&["192.0.2.0/24", "127.0.0.1/32"]), true),
        (ranges(&["64.0.0.0/2"]), true),
        (ranges(&["0.0.0.0/0"]), true),
        (with(&["192.0.2.0/24"]), false),
        (with(&["127.0.0.0/8", "::1/128"]), true),
    ];
    for (node_port_addresses, routed) in table {
        let config = Config { node_port_addresses, ..Config::for_node("me") };
        let node = NodeInfo::default();
        let guarded =
            |config: &Config, family| plan_node(config, family, &node, &NodeAddresses::default()).guard_loopback;
        assert_eq!((routes_loopback(&config), guarded(&config, Family::V4)), (routed, routed), "{config:?}");
        assert!(!guarded(&config, Family::V6));
        let off = Config { localhost_node_ports: false, ..config.clone() };
        assert!(!routes_loopback(&off) && !guarded(&off, Family::V4));
        for mode in [Mode::Ipvs, Mode::Userspace] {
            let other = Config { mode, ..config.clone() };
            assert!(!routes_loopback(&other) && !guarded(&other, Family::V4));
        }
    }
}

#[test]
fn pods_are_detected_as_configured() {
    let node = NodeInfo { pod_cidrs: vec!["10.244.1.0/24".parse().unwrap()], ..NodeInfo::default() };
    let range = |text: &str| Some(PodSource::Range(text.parse().unwrap()));
    let table = [
        (DetectLocal::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]), Family::V4, range("10.244.0.0/16")),
        (DetectLocal::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]), Family::V6, None),
        (DetectLocal::ClusterCidr(Vec::new()), Family::V4, None),
        (DetectLocal::NodeCidr, Family::V4, range("10.244.1.0/24")),
        (DetectLocal::BridgeInterface("cni0".into()), Family::V6, Some(PodSource::Interface("cni0".into()))),
        (DetectLocal::InterfaceNamePrefix("cali".into()), Family::V4, Some(PodSource::InterfacePrefix("cali".into()))),
    ];
    for (detect_local, family, expected) in table {
        let config = Config { detect_local, ..Config::for_node("me") };
        assert_eq!(plan_node(&config, family, &node, &NodeAddresses::default()).pods, expected, "{config:?}");
    }
}

/// An endpoint without `nodeName` may be a pod of this node.
#[test]
fn endpoints_without_a_node_may_be_hairpins() {
    let port = service();
    let unplaced = Endpoint { unplaced: true, ..endpoint("there:3:ready") };
    let endpoints = [endpoint("here:1:ready"), endpoint("there:2:ready"), unplaced];
    let node = NodeInfo::default();
    let context = context(&node, None, false);
    let plan = plan_service_port(&port, &endpoints, context);
    assert_eq!(plan.hairpins, ["10.0.0.1", "10.0.0.3"].map(|address| address.parse::<std::net::IpAddr>().unwrap()));
}

/// UDP flows stay with serving endpoints, SCTP associations with every endpoint.
#[test]
fn an_sctp_endpoint_that_is_not_ready_keeps_its_associations() {
    for (protocol, kept) in [(Protocol::Tcp, &[][..]), (Protocol::Udp, &[1, 2]), (Protocol::Sctp, &[1, 2, 3, 4])] {
        let mut port = service();
        port.name.protocol = protocol;
        let endpoints = ["here:1:ready", "here:2:terminating", "here:3:unready", "here:4:gone"];
        let kept: Vec<SocketAddr> = kept.iter().map(|host| SocketAddr::from(([10, 0, 0, *host], 8080))).collect();
        assert_eq!(plan(&port, &endpoints).serving, kept, "{protocol}");
        if protocol != Protocol::Tcp {
            let endpoints: Vec<Endpoint> = endpoints.iter().map(|text| endpoint(text)).collect();
            assert_eq!(servers(protocol, &endpoints, &[], &[]), kept.into_iter().collect(), "{protocol}");
        }
    }
}

/// The API does not forbid such a range, and a drop would affect pods and nodes.
#[test]
fn a_service_cidr_that_contains_pods_or_nodes_is_not_dropped() {
    let net = |text: &str| text.parse::<IpNet>().unwrap();
    let node = NodeInfo {
        pod_cidrs: vec![net("10.100.1.0/24")],
        addresses: vec!["172.18.0.2".parse().unwrap(), "fd00:172:18::2".parse().unwrap()],
        ..NodeInfo::default()
    };
    let detect_local = DetectLocal::ClusterCidr(vec![net("10.244.0.0/16")]);
    let config = Config { mode: Mode::Nftables, detect_local, ..Config::for_node("me") };
    let ranges = |texts: &[&str]| {
        let found = service_ranges(&config, &node, texts.iter().map(|text| net(text)));
        let spared = found.spared.iter().map(|(range, within)| format!("{range} {within}")).collect::<Vec<_>>();
        (found.dropped.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), spared.join(", "))
    };
    for (texts, dropped, spared) in [
        (&["10.96.0.0/16"][..], "10.96.0.0/16", ""),
        (&["10.96.0.0/16", "10.97.0.0/16"], "10.96.0.0/15", ""),
        (
            &["10.240.0.0/12", "10.96.0.0/16"],
            "10.96.0.0/16 10.240.0.0/14 10.245.0.0/16 10.246.0.0/15 10.248.0.0/13",
            "10.240.0.0/12 10.244.0.0/16",
        ),
        (&["10.244.0.0/16"], "", "10.244.0.0/16 10.244.0.0/16"),
        // The ranges of other nodes' pods are unknown.
        (&["10.100.0.0/16"], "", "10.100.0.0/16 10.100.1.0/24"),
        (&["172.16.0.0/12"], "", "172.16.0.0/12 172.18.0.2/32"),
        (&["fd00:172::/32", "fd00:10:96::/112"], "fd00:10:96::/112", "fd00:172::/32 fd00:172:18::2/128"),
        // Controllers give no pod an address of the range (nodeipam's filterOutServiceRange).
        (&["10.244.128.0/20"], "10.244.128.0/20", ""),
    ] {
        assert_eq!(ranges(texts), (dropped.to_owned(), spared.to_owned()), "{texts:?}");
    }
}
