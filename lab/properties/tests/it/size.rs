//! Numbers of rules and elements are formulas of services and endpoints.

use serde_json::{Value, json};
use svclab_oracle::{ClusterModel, Cni, DetectLocalMode, Mode, NodeMachine, NodePortAddress, Objects, World};
use svclab_properties::node_states::of_fresh_proxies;

#[derive(Debug, Clone, Copy)]
struct ServiceShape {
    name: &'static str,
    local: bool,
    affinity: bool,
}

/// Puts all endpoints on one node.
fn cluster(mode: Mode, kind: ServiceShape, services: usize, endpoints: usize) -> ClusterModel {
    let node = json!({"metadata": {"name": "node-a"}, "status": {"addresses": [{"type": "InternalIP", "address": "172.18.0.2"}]}});
    let mut objects = Objects { nodes: vec![serde_json::from_value(node).unwrap()], ..Objects::default() };
    for index in 0..services {
        let name = format!("svc-{index}");
        let mut port = json!({"name": "p", "port": 80, "protocol": "TCP"});
        if kind.name != "ClusterIP" {
            port["nodePort"] = json!(30_000 + index);
        }
        let mut spec = json!({
            "type": kind.name, "clusterIP": format!("10.96.0.{}", index + 1), "ports": [port],
            "sessionAffinity": if kind.affinity { "ClientIP" } else { "None" },
        });
        if kind.name != "ClusterIP" {
            spec["externalTrafficPolicy"] = json!(if kind.local { "Local" } else { "Cluster" });
        }
        let ingress =
            if kind.name == "LoadBalancer" { json!([{"ip": format!("203.0.113.{}", index + 1)}]) } else { json!([]) };
        let service = json!({
            "metadata": {"namespace": "default", "name": name}, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}},
        });
        objects.services.push(serde_json::from_value(service).unwrap());
        let all: Vec<Value> = (0..endpoints)
            .map(|number| json!({"addresses": [format!("10.244.{index}.{}", number + 1)], "nodeName": "node-a"}))
            .collect();
        let slice = json!({
            "metadata": {"namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "endpoints": all, "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}],
        });
        objects.slices.push(serde_json::from_value(slice).unwrap());
    }
    let place = NodeMachine {
        name: "node-a".to_owned(),
        addresses: vec!["172.18.0.2".parse().unwrap()],
        gateways: Vec::new(),
        overlay: Vec::new(),
        second: Vec::new(),
    };
    let mut world = World { nodes: vec![place], cni: Cni::Bridge, ..World::default() };
    world.proxy.mode = mode;
    world.proxy.detect_local = DetectLocalMode::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]);
    ClusterModel { objects, world }
}

fn size(mode: Mode, kind: ServiceShape, services: usize, endpoints: usize) -> [usize; 3] {
    size_of(&cluster(mode, kind, services, endpoints))
}

fn size_of(cluster: &ClusterModel) -> [usize; 3] {
    let state = &of_fresh_proxies(cluster).unwrap()["node-a"];
    let members: usize = state.sets.sets.iter().map(|set| set.elements.len()).sum();
    let servers = state.servers.services.iter().map(|server| 1 + server.servers.len()).sum();
    let elements: usize = state.nft.tables.iter().flat_map(|table| &table.sets).map(|set| set.elements.len()).sum();
    [state.v4.len() + state.nft.len(), members + elements, servers]
}

/// Returns a service's rules: one per fixed address and node port, one mark for sources that are not pods, and per
/// endpoint a draw, the hairpin mark and the translation, with affinity also a check.
///
/// The chain of external addresses has mark and jump under policy Cluster; under Local the short circuits of pods and
/// of the node (mark, jump), a jump, and the local draws.
fn formula(kind: ServiceShape, endpoints: usize) -> usize {
    let draws = endpoints * if kind.affinity { 2 } else { 1 };
    let inside = 1 + 1 + draws + 2 * endpoints;
    let lines = match kind.name {
        "NodePort" => 1,
        "LoadBalancer" => 2,
        _ => return inside,
    };
    let outside = if kind.local { 4 + draws } else { 2 };
    inside + lines + outside
}

fn refusals(kind: ServiceShape) -> usize {
    match kind.name {
        "NodePort" => 2,
        "LoadBalancer" => 3,
        _ => 1,
    }
}

fn kinds() -> Vec<ServiceShape> {
    let mut kinds = Vec::new();
    for affinity in [false, true] {
        kinds.push(ServiceShape { name: "ClusterIP", local: false, affinity });
        for name in ["NodePort", "LoadBalancer"] {
            kinds.extend([false, true].map(|local| ServiceShape { name, local, affinity }));
        }
    }
    kinds
}

#[test]
fn iptables_rules_grow_by_a_formula() {
    for kind in kinds() {
        let [nothing, ..] = size(Mode::Iptables, kind, 0, 0);
        for (services, endpoints) in [(1, 1), (1, 7), (2, 3), (5, 10)] {
            let [rules, ..] = size(Mode::Iptables, kind, services, endpoints);
            assert_eq!(rules - nothing, services * formula(kind, endpoints), "{kind:?} {services} x {endpoints}");
        }
        let [rules, ..] = size(Mode::Iptables, kind, 3, 0);
        assert_eq!(rules - nothing, 3 * refusals(kind), "{kind:?} without endpoints");
    }
}

#[test]
fn refusals_of_node_ports_grow_with_their_addresses() {
    let kind = ServiceShape { name: "NodePort", local: false, affinity: false };
    let rules = |services, addresses: &[&str], range: &str| {
        let mut cluster = cluster(Mode::Iptables, kind, services, 0);
        let node = &mut cluster.world.nodes[0].addresses;
        node.extend(addresses.iter().map(|address| -> std::net::IpAddr { address.parse().unwrap() }));
        cluster.world.proxy.node_port_addresses = vec![NodePortAddress::Range(range.parse().unwrap())];
        size_of(&cluster)[0]
    };
    for (addresses, range, accepting) in [
        (&[][..], "172.18.0.0/24", 1),
        (&["172.18.0.50", "172.18.0.51"], "172.18.0.0/24", 3),
        (&["172.18.0.50", "172.18.0.51"], "172.18.0.50/32", 1),
    ] {
        let nothing = rules(0, addresses, range);
        assert_eq!(rules(4, addresses, range) - nothing, 4 * (1 + accepting), "{addresses:?} in {range}");
    }
}

#[test]
fn ipvs_rules_do_not_grow() {
    for kind in kinds() {
        let [nothing, ..] = size(Mode::Ipvs, kind, 0, 0);
        for (services, endpoints) in [(1, 1), (1, 7), (2, 3), (5, 10)] {
            let [rules, _, servers] = size(Mode::Ipvs, kind, services, endpoints);
            assert_eq!(rules, nothing, "{kind:?} {services} x {endpoints}");
            let frontends = match kind.name {
                "NodePort" => 2,
                "LoadBalancer" => 3,
                _ => 1,
            };
            assert_eq!(servers, services * frontends * (1 + endpoints), "{kind:?} {services} x {endpoints}");
        }
    }
}

/// Without affinity a service adds only elements: its cluster IP, a hairpin per endpoint, and per frontend one plus one
/// per endpoint; policy Local adds one per external frontend and endpoint.
///
/// Affinity adds rules: four per endpoint (check, draw, remember, translate), a mark for sources that are not pods, and
/// a jump; external addresses add two, or under Local three plus a check and draw per endpoint.
#[test]
fn nftables_elements_grow_by_a_formula() {
    for kind in kinds() {
        let frontends = refusals(kind);
        let [no_rules, none, ..] = size(Mode::Nftables, kind, 0, 0);
        for (services, endpoints) in [(1, 1), (1, 7), (2, 3), (5, 10)] {
            let [rules, elements, _] = size(Mode::Nftables, kind, services, endpoints);
            let own = if kind.affinity { 0 } else { endpoints };
            let local = usize::from(kind.local) * (frontends - 1) * own;
            let each = frontends * (1 + own) + 1 + endpoints + local;
            assert_eq!(elements - none, services * each, "{kind:?} {services} x {endpoints}");
            if kind.affinity {
                let outside = match (frontends, kind.local) {
                    (1, _) => 0,
                    (_, true) => 3 + 2 * endpoints,
                    (_, false) => 2,
                };
                let each = 2 + 4 * endpoints + outside;
                assert_eq!(rules - no_rules, services * each, "{kind:?} {services} x {endpoints}");
            } else {
                let [of_one, ..] = size(Mode::Nftables, kind, 1, endpoints);
                assert_eq!(rules, of_one, "{kind:?} {services} x {endpoints}");
            }
        }
        let [rules, elements, _] = size(Mode::Nftables, kind, 3, 0);
        assert_eq!((rules, elements - none), (no_rules, 3 * (frontends + 1)), "{kind:?} without endpoints");
    }
}

/// A frontend has two rules (forwarded and local packets), an external one under policy Local three. A listening port
/// has two (accept redirected packets, reject others), and policy Local needs a second port.
#[test]
fn userspace_rules_grow_with_services_alone() {
    for kind in kinds() {
        let (outside, local) = (refusals(kind) - 1, usize::from(kind.local));
        let each = 2 + outside * (2 + local) + 2 * (1 + local);
        let [nothing, ..] = size(Mode::Userspace, kind, 0, 0);
        for (services, endpoints) in [(1, 1), (1, 7), (2, 3), (5, 10)] {
            let [rules, ..] = size(Mode::Userspace, kind, services, endpoints);
            assert_eq!(rules - nothing, services * each, "{kind:?} {services} x {endpoints}");
        }
        let [rules, ..] = size(Mode::Userspace, kind, 3, 0);
        assert_eq!(rules - nothing, 3 * refusals(kind), "{kind:?} without endpoints");
    }
}
