//! Links, addresses and routes of a node in `svclab explain`.

use svclab_audit::audit::{AuditOptions, audit};
use svclab_oracle::Mode;
use svclab_sim::render;
use svclab_snapshot::Snapshot;
use svclab_snapshot::network::{Link, Network, Route, Rule, UnresolvedNeighbour};

use crate::explain::{address, by, call, lines, link, node, on, route};

fn changed(change: impl FnOnce(&mut Network)) -> Snapshot {
    let mut snapshot = node();
    change(snapshot.network.as_mut().unwrap());
    snapshot
}

fn link_of<'a>(network: &'a mut Network, name: &str) -> &'a mut Link {
    network.links.iter_mut().find(|link| link.name == name).unwrap()
}

fn outcome(snapshot: &Snapshot, from: &str, to: &str) -> Vec<String> {
    lines(&on(snapshot, &call(from, to, &[])).unwrap())
}

/// Nodes of kind, lima and docker have such an uplink.
#[test]
fn a_veth_uplink_leads_to_many_machines() {
    let veth = changed(|network| link_of(network, "eth0").kind = Some("veth".to_owned()));
    for from in ["outside", "172.18.0.3", "172.18.0.9", "10.244.2.7", "10.244.1.6"] {
        for to in ["10.96.0.10:80", "172.18.0.9:22", "10.244.2.7:8080"] {
            assert_eq!(outcome(&veth, from, to), outcome(&node(), from, to), "{from} to {to}");
        }
    }
    let found = outcome(&veth, "172.18.0.9", "10.96.0.10:80");
    assert!(found.iter().all(|line| line.contains("answers at") && line.contains("sees 172.18.0.9")), "{found:?}");
}

/// A CNI without bridge: each pod's veth has a route to one address, and no address of the node.
#[test]
fn a_pods_veth_leads_to_the_pod_alone() {
    let routed = changed(|network| {
        network.links.retain(|link| link.name != "cni0");
        network.addresses.retain(|own| own.interface != "cni0");
        network.routes.retain(|route| route.to.to_string() != "10.244.1.0/24");
        network.links.iter_mut().for_each(|link| link.controller = None);
        network.routes.push(route(254, "10.244.1.5/32", None, "veth1"));
        network.routes.push(route(254, "10.244.1.6/32", None, "veth2"));
    });
    let found = on(&routed, &call("10.244.1.6", "10.96.0.10:80", &[])).unwrap();
    let answer = "1/4 pod/default/web-1 answers at 10.244.1.5:8080 and sees 10.244.1.6";
    assert!(lines(&found).contains(&answer.to_owned()), "{:?}", lines(&found));
    assert!(render::tree(&found.outcomes).contains("node/a, in by veth2"));
}

/// The address of a remote machine on a tunnel without an address of the node, as WireGuard's often is.
#[test]
fn a_tunnel_leads_to_many_machines() {
    let tunnel = changed(|network| {
        network.links.push(link("wg0", Some("wireguard"), None));
        network.routes.push(route(254, "10.244.2.0/24", None, "wg0"));
        network.routes.retain(|route| route.to.to_string() != "10.244.2.0/24" || route.hops[0].via.is_none());
        network.routes.push(route(254, "10.244.3.0/24", None, "wg0"));
    });
    for from in ["10.244.3.9", "10.244.2.8"] {
        let found = outcome(&tunnel, from, "10.96.0.10:80");
        assert!(found.iter().all(|line| line.contains(&format!("sees {from}")) && !line.contains("but")), "{found:?}");
    }
}

/// As on EKS: a pod with an address of a second interface answers by that interface's gateway.
#[test]
fn answers_leave_by_tables_of_other_interfaces() {
    let mut snapshot = changed(|network| {
        network.routes.push(route(2, "0.0.0.0/0", Some("192.0.2.1"), "eth1"));
        network.rules.push(Rule {
            from: Some("10.244.1.5/32".parse().unwrap()),
            priority: 512,
            table: 2,
            unknown: Vec::new(),
            mark: None,
            ..network.rules[1].clone()
        });
        network.rules.push(Rule {
            to: Some("10.244.1.0/24".parse().unwrap()),
            priority: 500,
            table: 254,
            ..network.rules[0].clone()
        });
    });
    for from in ["outside", "172.18.0.9", "10.244.2.7"] {
        let found = on(&snapshot, &call(from, "10.96.0.10:80", &[])).unwrap();
        assert!(lines(&found)[0].contains("web-1 answers") && !lines(&found)[0].contains("but"), "{:?}", lines(&found));
        assert!(render::tree(&found.outcomes).contains("route: out by eth1 to 192.0.2.1"), "{from}");
    }
    // The strict filter of eth1 looks up the route back: of web-1's packets it is eth1, of other packets eth0.
    for (name, value) in [("rp_filter", "1"), ("forwarding", "1")] {
        snapshot.sysctls.insert(format!("net.ipv4.conf.eth1.{name}"), value.to_owned());
    }
    let found = lines(&on(&snapshot, &by("eth1", "172.18.0.9", "10.96.0.10:80")).unwrap());
    assert!(found[0].contains("web-1 answers") && !found[0].contains("but"), "{found:?}");
    assert_eq!(found[1], "3/4 lost on node/a: the route to the source does not use eth1 (rp_filter = 1)");
}

#[test]
fn an_own_address_is_no_gateway() {
    let own = changed(|network| network.routes.push(route(254, "172.20.0.0/16", Some("172.18.0.2"), "eth0")));
    let found = on(&own, &call("172.20.0.9", "10.96.0.10:80", &[])).unwrap();
    assert!(lines(&found)[0].contains("sees 172.20.0.9") && !lines(&found)[0].contains("but"), "{:?}", lines(&found));
}

#[test]
fn interfaces_that_are_down_are_named() {
    let port = changed(|network| link_of(network, "veth1").up = false);
    let found = outcome(&port, "10.244.1.6", "10.96.0.10:80");
    assert!(found.contains(&"1/4 lost on node/a: interface veth1 is down".to_owned()), "{found:?}");
    // The kernel has removed the bridge's routes.
    let bridge = changed(|network| {
        link_of(network, "cni0").up = false;
        network.routes.retain(|route| route.to.to_string() != "10.244.1.0/24");
    });
    assert_eq!(outcome(&bridge, "10.244.1.6", "10.96.0.10:80"), ["1 lost on node/a: interface cni0 is down"]);
    let found = outcome(&bridge, "outside", "10.96.0.10:80");
    assert!(found.iter().any(|line| line.contains("lost on gateway 172.18.0.1")), "{found:?}");
    let dangling = changed(|network| link_of(network, "veth1").carrier = Some(false));
    let found = outcome(&dangling, "outside", "10.96.0.10:80");
    assert!(found.contains(&"1/4 lost on node/a: interface veth1 has no carrier".to_owned()), "{found:?}");
    let isolated =
        changed(|network| ["veth1", "veth2"].map(|name| link_of(network, name).isolated = true).iter().for_each(drop));
    let found = outcome(&isolated, "10.244.1.6", "10.96.0.10:80");
    assert!(
        found.contains(&"1/4 lost on node/a: the bridge ports veth2 and veth1 are isolated".to_owned()),
        "{found:?}"
    );
}

#[test]
fn a_caller_without_a_route_comes_in_by_the_named_interface() {
    let mut snapshot = changed(|network| {
        network.rules.retain(|rule| rule.mark.is_none());
        network.routes.push(Route {
            kind: "unreachable".to_owned(),
            hops: Vec::new(),
            ..route(254, "203.0.113.0/24", None, "")
        });
    });
    let refused =
        on(&snapshot, &call("outside", "10.96.0.10:80", &[])).map(|found| lines(&found)).unwrap_err().to_string();
    assert!(refused.contains("no route to 203.0.113.77") && refused.contains("--in"), "{refused}");
    let found = lines(&on(&snapshot, &by("eth0", "outside", "10.96.0.10:80")).unwrap());
    assert!(found.iter().all(|line| line.contains("answers at") && line.contains("but")), "{found:?}");
    for (name, value) in [("rp_filter", "2"), ("forwarding", "1")] {
        snapshot.sysctls.insert(format!("net.ipv4.conf.eth0.{name}"), value.to_owned());
    }
    let found = lines(&on(&snapshot, &by("eth0", "outside", "10.96.0.10:80")).unwrap());
    let expected = "lost on node/a: there is no route to the source (rp_filter of eth0 = 2)";
    assert!(found.iter().all(|line| line.contains(expected)), "{found:?}");
}

#[test]
fn a_next_hop_that_did_not_answer_is_named() {
    let silent = changed(|network| {
        let unresolved = |text: &str| UnresolvedNeighbour {
            interface: "eth0".to_owned(),
            address: text.parse().unwrap(),
            state: "failed".to_owned(),
        };
        network.unresolved = vec![unresolved("172.18.0.3"), unresolved("172.18.0.77")];
    });
    let found = on(&silent, &call("10.244.1.6", "10.96.0.10:80", &[])).unwrap();
    let said: Vec<&String> = found.assumed.iter().filter(|line| line.contains("did not answer")).collect();
    assert_eq!(said, ["172.18.0.3 on eth0 answers, although it did not answer the node (failed)"]);
}

#[test]
fn a_global_address_of_loopback_is_a_source() {
    let calico = changed(|network| {
        network.addresses.insert(1, address("lo", "198.18.0.1/32"));
        network.links.push(link("cali1", Some("veth"), None));
        network.routes.push(route(254, "10.244.9.5/32", None, "cali1"));
    });
    assert_eq!(
        outcome(&calico, "node", "10.244.9.5:80"),
        ["1 10.244.9.5 answers at 10.244.9.5:80 and sees 198.18.0.1"]
    );
}

/// The kernel refuses the node's own calls before any rule; what goes to no Service is no fault.
#[test]
fn a_node_without_a_default_route_is_one_finding_with_this_cause() {
    let mut snapshot = node();
    let network = snapshot.network.as_mut().unwrap();
    network.routes.retain(|route| route.to.to_string() != "0.0.0.0/0");
    let report = audit(&snapshot, &AuditOptions { mode: Some(Mode::Iptables), ..AuditOptions::default() }).unwrap();
    let of_node = |call: &String| call.starts_with("the node → 10.96.");
    let of_node: Vec<_> = report.findings.iter().filter(|one| one.calls.iter().any(of_node)).collect();
    assert_eq!(of_node.len(), 1, "{of_node:#?}");
    assert_eq!(of_node[0].calls, ["the node → 10.96.0.10:80/TCP"]);
    assert!(of_node[0].cause.starts_with("the caller has no route"), "{of_node:#?}");
}
