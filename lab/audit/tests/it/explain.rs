use std::net::IpAddr;

use svclab_audit::NodeError;
use svclab_audit::cluster::KnownAddresses;
use svclab_audit::explain::{Bare, Caller, ExplainCall, Explained, Named, NodeFacts, explain};
use svclab_audit::machines::state;
use svclab_sim::assume::Assumptions;
use svclab_sim::cluster::NodeState;
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::render;
use svclab_snapshot::bpf::{AttachedProgram, ProgramHook};
use svclab_snapshot::network::{Address, Forwarding, Hop, Link, Neighbour, Network, Route, Rule};
use svclab_snapshot::{ListeningSocket, Objects, Snapshot};

pub(super) fn call(from: &str, to: &str, assume: &[&str]) -> ExplainCall {
    let from = match from {
        "node" => Caller::Node,
        "outside" => Caller::Outside,
        address => Caller::Address(address.parse().unwrap()),
    };
    let assumptions = Assumptions::parse(assume.iter().copied()).unwrap();
    ExplainCall { from, to: to.parse().unwrap(), protocol: Protocol::TCP, input: None, assumptions }
}

pub(super) fn lines(explained: &Explained) -> Vec<String> {
    let each = explained.outcomes.outcomes.iter();
    each.map(|one| format!("{} {}", one.probability, render::verdict(&explained.machines.network, &one.verdict)))
        .collect()
}

fn bare(rules: &str, own: &[&str], input: Option<&str>, call: &ExplainCall) -> Result<Explained, NodeError> {
    let mut state = NodeState::default();
    state.read_any_rules("iptables-save", Family::V4, rules).unwrap();
    let own = own.iter().map(|own| own.parse().unwrap()).collect();
    let call = ExplainCall { input: input.map(str::to_owned), ..call.clone() };
    explain(NodeFacts::Bare(&Bare { own, has_sets: false }), &state, &call)
}

const NAT: &str = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:SVC - [0:0]\n\
    -A PREROUTING -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j SVC\n-A OUTPUT -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j SVC\n\
    -A POSTROUTING -s 10.1.0.1/32 -d 10.1.0.1/32 -j MASQUERADE\n\
    -A SVC -m statistic --mode random --probability 0.25000000000 -j DNAT --to-destination 10.1.0.1:8080\n\
    -A SVC -p tcp -j DNAT --to-destination 10.1.0.2:8080\nCOMMIT\n";

fn with_filter(rules: &str) -> String {
    format!("{NAT}*filter\n:INPUT ACCEPT [0:0]\n:FORWARD {rules}\nCOMMIT\n")
}

#[test]
fn a_dump_from_anywhere_is_enough() {
    let split = |saw: &str| {
        [("1/4", "10.1.0.1"), ("3/4", "10.1.0.2")]
            .map(|(share, who)| format!("{share} {who} answers at {who}:8080 and sees {saw}"))
    };
    let from = |from: &str| lines(&bare(NAT, &["192.0.2.1/24"], None, &call(from, "10.96.0.10:80", &[])).unwrap());
    assert_eq!(from("198.51.100.7"), split("198.51.100.7"));
    assert_eq!(from("node"), split("192.0.2.1"));
}

#[test]
fn an_endpoint_calls_its_own_service() {
    let found = bare(NAT, &["192.0.2.1/24"], None, &call("10.1.0.1", "10.96.0.10:80", &[])).unwrap();
    let expected = [
        "1/4 10.1.0.1 answers at 10.1.0.1:8080 and sees 192.0.2.1",
        "3/4 10.1.0.2 answers at 10.1.0.2:8080 and sees 10.1.0.1",
    ];
    assert_eq!(lines(&found), expected);
}

#[test]
fn names_of_interfaces_that_a_dump_does_not_tell_decide_nothing() {
    let calico = with_filter("ACCEPT [0:0]\n-A FORWARD -o cali+ -j DROP");
    let refused = bare(&calico, &[], None, &call("198.51.100.7", "10.96.0.10:80", &[]))
        .map(|found| lines(&found))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("-o cali+") && refused.contains("--assume 'output-interface=no'"), "{refused}");
    let assumed =
        |answer: &str| lines(&bare(&calico, &[], None, &call("198.51.100.7", "10.96.0.10:80", &[answer])).unwrap());
    assert_eq!(assumed("output-interface=no").len(), 2);
    let dropped = assumed("output-interface=yes");
    assert!(dropped.len() == 1 && dropped[0].contains("dropped by FORWARD 1"), "{dropped:?}");
    // Docker's rules before the policy accept packets of its own interfaces.
    let docker = with_filter("DROP [0:0]\n-A FORWARD -o docker0 -j ACCEPT\n-A FORWARD -i docker0 -j ACCEPT");
    let refused = bare(&docker, &[], None, &call("198.51.100.7", "10.96.0.10:80", &[]))
        .map(|found| lines(&found))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("-o docker0") && refused.contains("-i docker0"), "both at once: {refused}");
    let named =
        bare(&docker, &[], Some("docker0"), &call("198.51.100.7", "10.96.0.10:80", &[])).map(|found| lines(&found));
    assert_eq!(named.map(|found| found.len()).ok(), Some(2));
}

#[test]
fn what_is_not_known_and_is_not_met_refuses_nothing() {
    let rules =
        with_filter("ACCEPT [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -m bpf --bytecode \"1,6 0 0 65535\" -j DROP");
    let found = bare(&rules, &["192.0.2.1/24"], None, &call("198.51.100.7", "10.96.0.10:80", &[])).unwrap();
    assert_eq!(lines(&found).len(), 2);
    let met = bare(&rules, &["192.0.2.1/24"], None, &call("198.51.100.7", "192.0.2.1:22", &[]))
        .map(|found| lines(&found))
        .unwrap_err();
    assert!(met.to_string().contains("bpf"), "{met}");
}

#[test]
fn what_was_assumed_is_said() {
    let found = bare(NAT, &[], None, &call("198.51.100.7", "10.96.0.10:80", &[])).unwrap();
    let assumed: Vec<&str> = found.assumed.iter().map(String::as_str).collect();
    for part in [
        "a program waits at 10.1.0.1:8080",
        "addresses: the machine has none",
        "interfaces:",
        "kernel settings:",
        "routes:",
    ] {
        assert!(assumed.iter().any(|line| line.contains(part)), "{part}: {assumed:?}");
    }
}

pub(super) fn address(interface: &str, address: &str) -> Address {
    Address {
        interface: interface.to_owned(),
        address: address.parse().unwrap(),
        scope: "global".to_owned(),
        ..Address::default()
    }
}

pub(super) fn route(table: u32, to: &str, via: Option<&str>, interface: &str) -> Route {
    let via = via.map(|via| via.parse().unwrap());
    let hop = Hop { via, interface: Some(interface.to_owned()), weight: 1, ..Hop::default() };
    Route { table, to: to.parse().unwrap(), kind: "unicast".to_owned(), hops: vec![hop], ..Route::default() }
}

pub(super) fn link(name: &str, kind: Option<&str>, controller: Option<&str>) -> Link {
    Link {
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        up: true,
        controller: controller.map(str::to_owned),
        hairpin: controller.is_some(),
        ..Link::default()
    }
}

/// A node with a bridge and two pods, another node beyond eth0, and a second uplink in a table of its own.
pub(super) fn node() -> Snapshot {
    let neighbour = |at: &str, mac: &str| Neighbour {
        interface: "cni0".to_owned(),
        address: at.parse().unwrap(),
        mac: mac.to_owned(),
        permanent: false,
    };
    let learned = |port: &str, mac: &str| Forwarding { port: port.to_owned(), mac: mac.to_owned() };
    let rule = |priority: u32, table: u32| Rule {
        family: "ipv4".to_owned(),
        priority,
        from: None,
        to: None,
        input: None,
        output: None,
        mark: None,
        invert: false,
        action: "lookup".to_owned(),
        table,
        suppress_prefix: None,
        unknown: Vec::new(),
    };
    let network = Network {
        links: vec![
            link("lo", None, None),
            link("eth0", None, None),
            link("eth1", None, None),
            link("cni0", Some("bridge"), None),
            link("veth1", Some("veth"), Some("cni0")),
            link("veth2", Some("veth"), Some("cni0")),
        ],
        addresses: vec![
            address("lo", "127.0.0.1/8"),
            address("eth0", "172.18.0.2/16"),
            address("eth1", "192.0.2.2/24"),
            address("cni0", "10.244.1.1/24"),
        ],
        routes: vec![
            route(254, "172.18.0.0/16", None, "eth0"),
            route(254, "10.244.1.0/24", None, "cni0"),
            route(254, "10.244.2.0/24", Some("172.18.0.3"), "eth0"),
            route(254, "0.0.0.0/0", Some("172.18.0.1"), "eth0"),
            route(100, "0.0.0.0/0", Some("192.0.2.1"), "eth1"),
        ],
        rules: vec![
            rule(0, 255),
            Rule { mark: Some((0x10, 0x10)), ..rule(100, 100) },
            Rule { from: Some("192.0.2.2/32".parse().unwrap()), unknown: vec!["dport".to_owned()], ..rule(200, 100) },
            rule(32766, 254),
        ],
        neighbours: vec![neighbour("10.244.1.5", "02:00:00:00:00:05"), neighbour("10.244.1.6", "02:00:00:00:00:06")],
        forwarding: vec![learned("veth1", "02:00:00:00:00:05"), learned("veth2", "02:00:00:00:00:06")],
        ..Network::default()
    };
    let node = |name: &str, own: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"status":{{"addresses":[{{"type":"InternalIP","address":"{own}"}}]}}}}"#
        )
    };
    let service = r#"{"metadata":{"namespace":"default","name":"web"},"spec":{"clusterIP":"10.96.0.10","clusterIPs":["10.96.0.10"],
        "type":"NodePort","ports":[{"name":"http","port":80,"nodePort":30080}]}}"#;
    let endpoint = |at: &str, pod: &str, on: &str| {
        format!(
            r#"{{"addresses":["{at}"],"nodeName":"{on}","targetRef":{{"kind":"Pod","namespace":"default","name":"{pod}"}}}}"#
        )
    };
    let slice = format!(
        r#"{{"metadata":{{"namespace":"default","name":"web-1","labels":{{"kubernetes.io/service-name":"web"}}}},"addressType":"IPv4",
        "ports":[{{"name":"http","port":8080}}],"endpoints":[{},{}]}}"#,
        endpoint("10.244.1.5", "web-1", "node-a"),
        endpoint("10.244.2.7", "web-2", "node-b")
    );
    let rules = NAT.replace("10.1.0.1", "10.244.1.5").replace("10.1.0.2", "10.244.2.7");
    Snapshot {
        host: "a".to_owned(),
        network: Some(network),
        nft_v4: Some(rules),
        sockets: Some(vec![ListeningSocket {
            protocol: "tcp".to_owned(),
            address: IpAddr::from([0, 0, 0, 0]),
            port: 22,
        }]),
        sysctls: [("net.ipv4.ip_forward", "1"), ("net.bridge.bridge-nf-call-iptables", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        objects: Some(Objects {
            services: vec![serde_json::from_str(service).unwrap()],
            slices: vec![serde_json::from_str(&slice).unwrap()],
            nodes: ["node-a", "node-b"]
                .into_iter()
                .zip(["172.18.0.2", "172.18.0.3"])
                .map(|(name, own)| serde_json::from_str(&node(name, own)).unwrap())
                .collect(),
            ..Objects::default()
        }),
        ..Snapshot::default()
    }
}

pub(super) fn on(snapshot: &Snapshot, call: &ExplainCall) -> Result<Explained, NodeError> {
    let state = state(snapshot).unwrap();
    explain(NodeFacts::Snapshot(snapshot, &KnownAddresses::of(snapshot)), &state, call)
}

#[test]
fn programs_on_the_way_are_named() {
    let program = |hook, interface: Option<&str>, cgroup: Option<&str>, name: &str| AttachedProgram {
        hook,
        interface: interface.map(str::to_owned),
        cgroup: cgroup.map(str::to_owned),
        id: Some(7),
        kind: String::new(),
        name: name.to_owned(),
        filter: None,
        actions: Vec::new(),
    };
    let programs = vec![
        program(ProgramHook::TcEgress, Some("eth0"), None, "cil_to_netdev"),
        program(ProgramHook::Xdp, Some("eth0"), None, "firewall"),
        program(ProgramHook::TcIngress, Some("docker0"), None, "elsewhere"),
        program(ProgramHook::Connect4, None, Some("/"), "cil_sock4_conne"),
        program(ProgramHook::Connect6, None, Some("/"), "cil_sock6_conne"),
    ];
    let node = Snapshot { programs: Some(programs), ..node() };
    let passed = |from: &str| on(&node, &call(from, "10.96.0.10:80", &[])).unwrap().programs;
    let (outgoing, answers) =
        ("tc egress of eth0 runs the program cil_to_netdev (Cilium)", "XDP of eth0 runs the program firewall");
    let connect = "connect4 of cgroup / runs the program cil_sock4_conne (Cilium)";
    assert_eq!(passed("10.244.1.5"), [answers, outgoing, connect], "a pod of the node");
    assert_eq!(passed("172.18.0.3"), [answers, outgoing], "another node");
}

#[test]
fn a_nodes_own_links_and_names_are_used() {
    let found = on(&node(), &call("10.244.1.6", "10.96.0.10:80", &[])).unwrap();
    let expected = [
        "1/4 pod/default/web-1 answers at 10.244.1.5:8080 and sees 10.244.1.6",
        "3/4 pod/default/web-2 answers at 10.244.2.7:8080 and sees 10.244.1.6",
    ];
    assert_eq!(lines(&found), expected);
    let way = render::tree(&found.outcomes);
    for part in
        ["node/a, in by cni0 (port veth2)", "bridge: stays, towards port veth1", "route: out by eth0 to 172.18.0.3"]
    {
        assert!(way.contains(part), "{part}: {way}");
    }
    let hairpin = lines(&on(&node(), &call("10.244.1.5", "10.96.0.10:80", &[])).unwrap());
    assert!(hairpin[0].contains("pod/default/web-1 answers") && hairpin[0].contains("sees 10.244.1.1"), "{hairpin:?}");
}

pub(super) fn by(interface: &str, from: &str, to: &str) -> ExplainCall {
    ExplainCall { input: Some(interface.to_owned()), ..call(from, to, &[]) }
}

#[test]
fn a_packet_comes_in_by_the_interface_that_is_named() {
    let mut snapshot = node();
    let only = NAT.replace("-A PREROUTING -d", "-A PREROUTING -i eth1 -d");
    snapshot.nft_v4 = Some(only.replace("10.1.0.1", "10.244.1.5").replace("10.1.0.2", "10.244.2.7"));
    let answers = |found: &Explained| lines(found).iter().filter(|line| line.contains("answers at")).count();
    let plain = on(&snapshot, &call("outside", "10.96.0.10:80", &[])).unwrap();
    assert_eq!(answers(&plain), 0, "{:?}", lines(&plain));
    let found = on(&snapshot, &by("eth1", "outside", "10.96.0.10:80")).unwrap();
    assert_eq!(answers(&found), 2, "{:?}", lines(&found));
    let way = render::tree(&found.outcomes);
    assert!(way.contains("node/a, in by eth1") && way.contains("route: out by eth0 to 172.18.0.1"), "{way}");
    assert!(found.assumed.iter().any(|line| line.contains("come in by eth1")), "{:?}", found.assumed);
    let same = on(&snapshot, &by("eth0", "outside", "10.96.0.10:80")).unwrap();
    assert_eq!(lines(&same), lines(&plain));
    for from in ["172.18.0.9", "10.244.1.6"] {
        let found = on(&snapshot, &by("eth1", from, "10.96.0.10:80")).unwrap();
        assert_eq!(answers(&found), 2, "{from}: {:?}", lines(&found));
    }
    let way = render::tree(&on(&snapshot, &by("cni0", "outside", "10.96.0.10:80")).unwrap().outcomes);
    assert!(way.contains("node/a, in by cni0 (port veth1)"), "{way}");
}

#[test]
fn a_strict_reverse_path_filter_drops_what_comes_in_elsewhere() {
    let mut snapshot = node();
    for (name, value) in [("rp_filter", "1"), ("forwarding", "1")] {
        snapshot.sysctls.insert(format!("net.ipv4.conf.eth1.{name}"), value.to_owned());
    }
    let found = lines(&on(&snapshot, &by("eth1", "outside", "10.96.0.10:80")).unwrap());
    assert!(found.iter().all(|line| line.contains("lost on node/a")), "{found:?}");
}

#[test]
fn an_interface_that_cannot_be_is_told() {
    let wrong = |interface: &str, from: &str| {
        on(&node(), &by(interface, from, "10.96.0.10:80")).map(|found| lines(&found)).unwrap_err().to_string()
    };
    assert_eq!(
        wrong("eth9", "outside"),
        "--in eth9: the node has no interface of that name (it has: eth0, eth1, cni0, veth1, veth2)"
    );
    assert!(wrong("lo", "outside").contains("use --from node"));
    assert!(wrong("eth0", "node").contains("comes in by no interface"));
}

/// No machine has the load balancer's address: the node accepts it.
#[test]
fn what_is_for_an_address_of_nobodys_in_the_nodes_network_comes_here() {
    let mut snapshot = node();
    let rules = NAT.replace("10.96.0.10", "172.18.0.200");
    snapshot.nft_v4 = Some(rules.replace("10.1.0.1", "10.244.1.5").replace("10.1.0.2", "10.244.2.7"));
    let elsewhere = lines(&on(&snapshot, &call("outside", "172.18.0.200:80", &[])).unwrap());
    assert!(elsewhere[0].contains("172.18.0.200 answers"), "{elsewhere:?}");
    let service = &mut snapshot.objects.as_mut().unwrap().services[0];
    service.status = serde_json::from_str(r#"{"loadBalancer":{"ingress":[{"ip":"172.18.0.200"}]}}"#).unwrap();
    let found = on(&snapshot, &call("outside", "172.18.0.200:80", &[])).unwrap();
    assert!(
        lines(&found).iter().all(|line| line.contains("answers at")) && lines(&found).len() == 2,
        "{:?}",
        lines(&found)
    );
    let said = "neighbours send packets for 172.18.0.200 to this node: no machine is known to have them";
    assert!(found.assumed.contains(said), "{:?}", found.assumed);
}

#[test]
fn sockets_of_the_node_are_those_of_the_snapshot() {
    assert_eq!(
        lines(&on(&node(), &call("outside", "172.18.0.2:22", &[])).unwrap()),
        ["1 node/a answers at 172.18.0.2:22 and sees 203.0.113.77"]
    );
    assert_eq!(
        lines(&on(&node(), &call("outside", "172.18.0.2:23", &[])).unwrap()),
        ["1 refused by node/a at 172.18.0.2:23"]
    );
}

#[test]
fn marks_choose_the_way_and_what_is_not_modelled_is_said() {
    let mut snapshot = node();
    let mark = "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -i cni0 -d 8.8.8.8/32 -j MARK --set-xmark 0x10/0x10\nCOMMIT\n";
    snapshot.nft_v4 = Some(mark.to_owned() + NAT);
    let found = on(&snapshot, &call("10.244.1.6", "8.8.8.8:53", &[])).unwrap();
    let way = render::tree(&found.outcomes);
    assert!(way.contains("route: out by eth1 to 192.0.2.1"), "{way}");
    assert!(
        found.assumed.iter().any(|line| line.contains("priority 200") && line.contains("dport")),
        "{:?}",
        found.assumed
    );
}

#[test]
fn a_setting_of_the_node_decides() {
    let mut snapshot = node();
    snapshot.sysctls.insert("net.ipv4.ip_forward".to_owned(), "0".to_owned());
    let found = lines(&on(&snapshot, &call("outside", "10.96.0.10:80", &[])).unwrap());
    assert!(found.iter().all(|line| line.contains("forwarding is disabled")), "{found:?}");
}

#[test]
fn an_address_that_nobody_is_known_to_have_does_not_answer() {
    let on_node = on(&node(), &call("10.244.1.6", "10.96.0.99:80", &[])).unwrap();
    let of_dump = bare(NAT, &["192.0.2.1/24"], None, &call("10.1.0.9", "10.96.0.99:80", &[])).unwrap();
    for found in [on_node, of_dump] {
        assert!(lines(&found)[0].contains("lost on"), "{:?}", lines(&found));
        assert!(
            found.assumed.iter().any(|line| line.contains("no machine is known to have 10.96.0.99")),
            "{:?}",
            found.assumed
        );
    }
}

#[test]
fn names_are_resolved_and_wrong_ones_named() {
    let snapshot = node();
    let known = KnownAddresses::of(&snapshot);
    let names = Named { snapshot: &snapshot, known: &known };
    let called = |text: &str| names.called(text).map(|(to, _)| to.to_string()).map_err(|error| error.to_string());
    assert_eq!(called("service/web"), Ok("10.96.0.10:80".to_owned()));
    assert_eq!(called("service/default/web:http"), Ok("10.96.0.10:80".to_owned()));
    assert_eq!(called("nodePort/web"), Ok("172.18.0.2:30080".to_owned()));
    assert_eq!(called("pod/web-2:8080"), Ok("10.244.2.7:8080".to_owned()));
    assert!(called("service/web:https").unwrap_err().contains("near: default/web"));
    assert!(called("service").unwrap_err().contains("expected ADDRESS:PORT"));
    let to = IpAddr::from([10, 96, 0, 10]);
    assert_eq!(names.caller("pod/web-1", to), Ok(Caller::Address(IpAddr::from([10, 244, 1, 5]))));
    assert_eq!(names.caller("node/node-b", to), Ok(Caller::Address(IpAddr::from([172, 18, 0, 3]))));
    assert_eq!(names.caller("node/node-a", to), Ok(Caller::Node));
    assert!(names.caller("pod/web-9", to).unwrap_err().to_string().contains("no endpoint of that name"));
    assert!(names.caller("client/laptop", to).unwrap_err().to_string().contains("expected node, outside"));
}
