//! Chains that see frames: families netdev, bridge and arp. The results are those of kernel 6.18.

use crate::support::{Plan, outcomes, tcp};
use svclab_sim::network::Network;
use svclab_sim::nft::Ruleset;
use svclab_sim::render;

fn cluster(nft: &str) -> Network {
    Plan { nft: nft.to_owned(), ..Plan::new("") }.build()
}

fn call(nft: &str, from: &str, to: &str) -> String {
    let network = cluster(nft);
    let flow = tcp(&network, from, to);
    match network.outcomes(&flow) {
        Ok(_) => outcomes(&network, &flow),
        Err(error) => error.to_string(),
    }
}

fn chain(family: &str, hook: &str, rules: &str) -> String {
    format!("table {family} t {{\n\tchain c {{\n\t\ttype filter hook {hook}; policy accept;\n\t\t{rules}\n\t}}\n}}\n")
}

/// pod-a and pod-b are on the bridge cni0 of node-a.
#[test]
fn bridge_chains_see_frames_that_cross_the_bridge() {
    const NODE: (&str, &str) = ("pod-a", "172.18.0.2:22");
    const POD: (&str, &str) = ("pod-a", "10.244.0.3:8080");
    const AWAY: (&str, &str) = ("pod-a", "10.244.1.2:8080");
    const TO_POD: (&str, &str) = ("client", "10.244.0.2:8080");
    const PAST: (&str, &str) = ("client", "172.18.0.2:22");
    for (hook, rule, dropped, passed) in [
        ("input priority 0", "policy drop;", &[NODE, AWAY, TO_POD][..], &[POD, PAST][..]),
        ("output priority 0", "policy drop;", &[NODE, AWAY, TO_POD], &[POD, PAST]),
        ("forward priority 0", "policy drop;", &[POD], &[NODE, AWAY, TO_POD, PAST]),
        ("prerouting priority filter", "policy drop;", &[NODE, POD, AWAY, TO_POD], &[PAST]),
        ("postrouting priority srcnat", "policy drop;", &[NODE, POD, AWAY, TO_POD], &[PAST]),
        ("prerouting priority 0", "ip daddr 10.244.0.3 tcp dport 8080 drop", &[POD], &[NODE, AWAY, TO_POD]),
        ("forward priority 1", "iifname \"veth0\" oifname \"veth1\" tcp dport 8080 drop", &[POD], &[NODE]),
        ("forward priority 0", "iifname \"cni0\" drop", &[], &[POD]),
        ("input priority 0", "iifname \"veth0\" ether type ip tcp dport 22 drop", &[NODE], &[POD, AWAY]),
        ("output priority 0", "oifname \"veth0\" tcp dport 8080 drop", &[TO_POD], &[NODE, POD]),
        ("prerouting priority 0", "ether type ip6 drop", &[], &[NODE, POD]),
    ] {
        let table = chain("bridge", hook, rule);
        for (from, to) in dropped {
            let found = call(&table, from, to);
            assert!(!found.contains("answers, saw"), "{hook} {rule}: {from} to {to}: {found}");
        }
        for (from, to) in passed {
            let found = call(&table, from, to);
            assert!(found.contains("answers, saw"), "{hook} {rule}: {from} to {to}: {found}");
        }
    }
}

#[test]
fn marks_of_bridge_chains_reach_ip_chains() {
    let both = |priority: &str| {
        let ip = chain("ip", "prerouting priority raw", "meta mark 0x7 tcp dport 22 drop");
        format!("{}{ip}", chain("bridge", &format!("prerouting priority {priority}"), "meta mark set 0x7"))
    };
    assert!(call(&both("-1"), "pod-a", "172.18.0.2:22").contains("dropped"));
    // The bridge has called PREROUTING before.
    assert!(call(&both("1"), "pod-a", "172.18.0.2:22").contains("answers, saw"));
}

#[test]
fn connections_and_rejections_on_bridges_are_unknown() {
    for rule in ["ct state new drop", "tcp dport 8080 reject", "ether saddr 02:00:00:00:00:01 drop"] {
        let found = call(&chain("bridge", "forward priority 0", rule), "pod-a", "10.244.0.3:8080");
        assert!(found.contains("is not modelled"), "{rule}: {found}");
        let past = call(&chain("bridge", "forward priority 0", rule), "client", "172.18.0.2:22");
        assert!(past.contains("answers, saw"), "{rule}: {past}");
    }
}

#[test]
fn a_bridges_own_ingress_chain_sees_only_what_the_bridge_receives() {
    let own = chain("netdev", "ingress device \"cni0\" priority 0", "tcp dport { 22, 8080 } drop");
    assert!(call(&own, "pod-a", "172.18.0.2:22").contains("dropped"));
    assert!(call(&own, "pod-a", "10.244.0.3:8080").contains("answers, saw"));
    for hook in ["ingress", "egress"] {
        let own = chain("netdev", &format!("{hook} device \"lo\" priority 0"), "tcp dport 22 drop");
        assert!(call(&own, "node-a", "172.18.0.2:22").contains("dropped"), "{hook}");
        assert!(call(&own, "client", "172.18.0.2:22").contains("answers, saw"), "{hook}");
    }
    let port = chain("netdev", "egress device \"veth1\" priority 0", "tcp dport 8080 drop");
    for from in ["pod-a", "client"] {
        assert!(call(&port, from, "10.244.0.3:8080").contains("dropped"), "{from}");
    }
}

#[test]
fn arp_chains_see_requests_and_replies() {
    for (hook, rule, received, sent) in [
        ("input", "policy drop;", false, false),
        ("output", "policy drop;", false, false),
        ("input", "arp operation request drop", false, true),
        ("input", "arp operation reply drop", true, false),
        // The node learns the client's address from the client's request.
        ("output", "arp operation request drop", true, false),
        ("output", "arp operation reply drop", false, true),
        ("output", "arp operation reply arp daddr ip 172.18.0.100 drop", false, true),
        ("output", "arp operation 1 arp daddr ip 172.18.0.100 drop", true, false),
        ("output", "arp operation 1 arp saddr ip 172.18.0.3 drop", true, true),
        ("input", "arp saddr ip 172.18.0.100 iifname \"eth0\" drop", false, false),
        ("input", "arp saddr ip 172.18.0.101 drop", true, true),
        ("input", "iifname \"eth1\" drop", true, true),
        ("input", "arp htype != 1 drop", true, true),
        ("input", "arp htype 1 arp hlen 6 arp plen 4 arp operation rrequest drop", true, true),
        ("output", "oifname \"cni0\" drop", true, true),
    ] {
        let table = chain("arp", &format!("{hook} priority 0"), rule);
        let found = call(&table, "client", "172.18.0.2:22");
        assert_eq!(found.contains("answers, saw"), received, "{hook} {rule}: {found}");
        let found = call(&table, "node-a", "172.18.0.100:22");
        assert_eq!(found.contains("refused by client"), sent, "{hook} {rule}: {found}");
    }
    let by_address = chain("arp", "input priority 0", "arp saddr ether 02:00:00:00:00:01 drop");
    let found = call(&by_address, "client", "172.18.0.2:22");
    assert!(found.contains("arp saddr ether 02:00:00:00:00:01 is not modelled"), "{found}");
    // ARP of the pods crosses the bridge, and passes ingress chains.
    for (family, hook) in [("bridge", "forward priority 0"), ("netdev", "ingress device \"veth0\" priority 0")] {
        let found = call(&chain(family, hook, "meta protocol arp drop"), "pod-a", "10.244.0.3:8080");
        assert!(found.contains("dropped by node-a"), "{family}: {found}");
        let found = call(&chain(family, hook, "meta protocol arp drop"), "client", "172.18.0.2:22");
        assert!(found.contains("answers, saw"), "{family}: {found}");
    }
    let network = Plan {
        point_to_point: true,
        nft: chain("arp", "output priority 0", "oifname \"veth0\" drop"),
        ..Plan::new("")
    };
    let network = network.build();
    let found = outcomes(&network, &tcp(&network, "client", "10.244.0.2:8080"));
    assert!(found.contains("answers, saw"), "a permanent neighbour needs no request: {found}");
}

#[test]
fn a_lost_request_is_a_step_of_the_path() {
    let network = cluster(&chain("arp", "input priority 0", "arp operation request drop"));
    let found = network.outcomes(&tcp(&network, "client", "172.18.0.2:22")).unwrap();
    let tree = render::tree(&found);
    assert!(tree.contains("node-a: ARP request from 172.18.0.100 to 172.18.0.2"), "{tree}");
}

/// nft 1.0.6 prints no `dev`.
#[test]
fn a_chain_without_known_devices_decides_nothing_silently() {
    let json = |family: &str, hook: &str, device: &str, rule: &str| {
        format!(
            "{{\"nftables\":[{{\"table\":{{\"family\":\"{family}\",\"name\":\"t\"}}}},\
             {{\"chain\":{{\"family\":\"{family}\",\"table\":\"t\",\"name\":\"c\",\"type\":\"filter\",\"hook\":\"{hook}\",\"prio\":0,\"policy\":\"accept\"{device}}}}},\
             {{\"rule\":{{\"family\":\"{family}\",\"table\":\"t\",\"chain\":\"c\",\"expr\":[{rule}]}}}}]}}"
        )
    };
    let port = |port: u16| {
        format!(
            "{{\"match\":{{\"op\":\"==\",\"left\":{{\"payload\":{{\"protocol\":\"tcp\",\"field\":\"dport\"}}}},\"right\":{port}}}}},{{\"drop\":null}}"
        )
    };
    for family in ["netdev", "inet"] {
        let found = call(&json(family, "ingress", "", &port(22)), "client", "172.18.0.2:22");
        let expected = format!(
            "node-a: {family} t, chain c, c: whether this chain is on eth0 is not known: the listing does not have its devices"
        );
        assert!(found.contains(&expected), "{found}");
        let found = call(&json(family, "ingress", "", &port(23)), "client", "172.18.0.2:22");
        assert!(found.contains("answers, saw"), "{found}");
    }
    for (device, drops) in [
        (",\"dev\":\"eth0\"", true),
        (",\"dev\":[\"cni0\",\"eth0\"]", true),
        (",\"dev\":\"eth1\"", false),
        (",\"dev\":[]", false),
    ] {
        let found = call(&json("netdev", "ingress", device, &port(22)), "client", "172.18.0.2:22");
        assert_eq!(found.contains("dropped"), drops, "{device}: {found}");
    }
}

#[test]
fn flow_tables_are_read() {
    let text = "table inet t {\n\tflowtable f {\n\t\thook ingress priority filter\n\t\tdevices = { eth0, cni0 }\n\t\tflags offload\n\t\tcounter\n\t}\n\n\tchain c {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\tct state established flow add @f\n\t}\n}\n";
    let json = "{\"nftables\":[{\"table\":{\"family\":\"inet\",\"name\":\"t\"}},{\"flowtable\":{\"family\":\"inet\",\"name\":\"f\",\"table\":\"t\",\"handle\":1,\"hook\":\"ingress\",\"prio\":0,\"dev\":[\"eth0\",\"cni0\"]}},{\"chain\":{\"family\":\"inet\",\"table\":\"t\",\"name\":\"c\",\"type\":\"filter\",\"hook\":\"forward\",\"prio\":0,\"policy\":\"accept\"}},{\"rule\":{\"family\":\"inet\",\"table\":\"t\",\"chain\":\"c\",\"expr\":[{\"flow\":{\"op\":\"add\",\"flowtable\":\"@f\"}}]}}]}";
    for listing in [text, json] {
        assert_eq!(Ruleset::read(listing).unwrap().unknown().count(), 0);
        assert!(call(listing, "client", "10.244.0.2:8080").contains("answers, saw"));
    }
}
