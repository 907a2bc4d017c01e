//! `data/nft.txt` and `data/nft.json` list the same rules (nft 1.0.6).

use std::time::Duration;

use crate::support::{Plan, id, ip, outcomes, say, tcp};
use svclab_sim::chance::Chance;
use svclab_sim::fraction::Fraction;
use svclab_sim::host::{Host, HostInterface};
use svclab_sim::network::{Flow, Network, PacketVerdict};
use svclab_sim::nft::{Ruleset, TableFamily};
use svclab_sim::render;

const TEXT: &str = include_str!("../data/nft.txt");
const JSON: &str = include_str!("../data/nft.json");

fn cluster(nft: &str) -> Network {
    Plan { nft: nft.to_owned(), ..Plan::new("") }.build()
}

fn input(rules: &str) -> Network {
    let chain = "type filter hook input priority 0; policy accept;";
    cluster(&format!("table ip t {{\n\tchain input {{\n\t\t{chain}\n\t\t{rules}\n\t}}\n}}\n"))
}

fn to_node(rules: &str) -> String {
    let network = input(rules);
    match network.outcomes(&tcp(&network, "client", "172.18.0.2:22")) {
        Ok(found) => say(&network, &found.outcomes[0].verdict),
        Err(error) => error.to_string(),
    }
}

fn every_flow(network: &Network) -> String {
    let mut report = String::new();
    for (from, to) in [
        ("pod-a", "10.96.0.10:80"),
        ("pod-b", "10.96.0.10:80"),
        ("client", "10.96.0.10:80"),
        ("node-a", "10.96.0.10:80"),
        ("client", "10.96.0.20:80"),
        ("client", "10.96.0.30:80"),
        ("client", "10.96.0.10:81"),
        ("pod-a", "172.18.0.2:30080"),
        ("client", "172.18.0.2:30080"),
        ("client", "172.18.0.2:30081"),
        ("client", "172.18.0.2:22"),
        ("pod-c", "172.18.0.2:22"),
        ("client", "172.18.0.2:7001"),
        ("client", "172.18.0.2:9000"),
    ] {
        report.push_str(&format!("{from} to {to}:\n{}", outcomes(network, &tcp(network, from, to))));
    }
    let dns = Flow::udp(id(network, "pod-c"), "10.96.0.10:53".parse().unwrap());
    report.push_str(&format!("pod-c to 10.96.0.10:53/UDP:\n{}", outcomes(network, &dns)));
    report
}

#[test]
fn every_caller_and_frontend() {
    insta::assert_snapshot!(every_flow(&cluster(TEXT)));
}

#[test]
fn json_and_text_are_the_same_rules() {
    assert_eq!(every_flow(&cluster(JSON)), every_flow(&cluster(TEXT)));
    insta::assert_snapshot!(Ruleset::read(JSON).unwrap());
}

#[test]
fn printed_rules_read_as_the_same() {
    for text in [TEXT, JSON] {
        let read = Ruleset::read(text).unwrap();
        let again = Ruleset::read(&read.to_string()).unwrap();
        assert_eq!(again.to_string(), read.to_string());
        assert_eq!(every_flow(&cluster(&read.to_string())), every_flow(&cluster(text)));
    }
}

#[test]
fn traces_print_chains_and_draws() {
    let network = cluster(TEXT);
    insta::assert_snapshot!(render::tree(&network.outcomes(&tcp(&network, "client", "10.96.0.10:80")).unwrap()));
}

#[test]
fn affinity_lasts_until_the_timeout() {
    let mut network = cluster(TEXT);
    let flow = |network: &Network, port: u16| tcp(network, "client", "10.96.0.20:80").port(port);
    let met = |network: &mut Network, port: u16| {
        let flow = flow(network, port);
        network.send(&flow, &mut Chance::seeded(u64::from(port))).unwrap().verdict.answered().unwrap().1
    };
    let first = met(&mut network, 1000);
    let seconds = if first == "10.244.0.2:8080".parse().unwrap() { 60 } else { 90 };
    // Each connection restarts the timeout.
    for port in 1001..1004 {
        network.advance(Duration::from_secs(seconds - 1));
        assert_eq!(network.outcomes(&flow(&network, port)).unwrap().outcomes.len(), 1);
        assert_eq!(met(&mut network, port), first);
    }
    network.advance(Duration::from_secs(seconds + 1));
    assert_eq!(network.outcomes(&flow(&network, 2000)).unwrap().outcomes.len(), 2);
}

#[test]
fn a_full_set_ends_the_rule() {
    let mut network = cluster(TEXT);
    for last in 1..=40 {
        let flow = tcp(&network, "client", "10.96.0.20:80").source(ip(&format!("10.9.0.{last}")));
        let _ = network.send(&flow, &mut Chance::seeded(last)).unwrap();
    }
    let other = tcp(&network, "client", "10.96.0.20:80");
    let report = outcomes(&network, &other);
    assert!(report.contains("answers"), "the rule behind the update translates all the same: {report}");
    assert_eq!(network.outcomes(&other.port(9)).unwrap().outcomes.len(), 2, "and nothing is remembered");
}

#[test]
fn unmodelled_statements_fail_where_a_packet_reaches_them() {
    let reached = to_node("tcp dport 22 meta cpu 0 drop");
    assert_eq!(
        reached,
        "the outcome of the packet depends on unknown facts:\n  node-a: ip t, rule 1 of chain input (line 4), tcp dport 22 meta cpu 0 drop: meta cpu 0 is not modelled"
    );
    let passed = to_node("tcp dport 23 meta cpu 0 accept\n\t\ttcp dport 22 drop\n\t\tqueue to 1");
    assert!(passed.starts_with("dropped by node-a"), "{passed}");
    for rule in [
        "queue to 1",
        "ct helper set \"ftp\"",
        "synproxy mss 1460",
        "tcp option sack exists accept",
        "xt match \"u32\"",
    ] {
        assert!(to_node(rule).ends_with("is not modelled"), "{rule}");
    }
    let ruleset = Ruleset::read("table ip t {\n\tchain c {\n\t\tqueue to 1\n\t}\n}\n").unwrap();
    assert_eq!(
        ruleset.unknown().map(|(_, _, rule, text)| (rule.line, text.to_owned())).collect::<Vec<_>>(),
        [(3, "queue to 1".to_owned())]
    );
}

#[test]
fn every_comparison() {
    for (rule, drops) in [
        ("tcp dport 22 drop", true),
        ("tcp dport != 22 drop", false),
        ("tcp dport 20-23 drop", true),
        ("tcp dport > 22 drop", false),
        ("tcp dport >= 22 drop", true),
        ("tcp dport < 22 drop", false),
        ("tcp dport { 80, 22 } drop", true),
        ("tcp dport != { 80, 22 } drop", false),
        ("udp dport 22 drop", false),
        ("th dport 22 drop", true),
        ("@th,16,16 0x16 drop", true),
        ("meta l4proto { tcp, udp } drop", true),
        ("ip protocol tcp drop", true),
        ("ip6 nexthdr tcp drop", false),
        ("ip saddr 172.18.0.0/16 drop", true),
        ("ip saddr . tcp dport { 172.18.0.0/24 . 20-30 } drop", true),
        ("ip saddr 172.18.0.1-172.18.0.99 drop", false),
        ("ip daddr & 255.255.0.0 == 172.18.0.0 drop", true),
        ("iifname \"eth*\" drop", true),
        ("iifname != \"eth0\" drop", false),
        ("iif \"eth0\" drop", true),
        ("oifname \"eth0\" drop", false),
        ("ct state new drop", true),
        ("ct state established,new drop", true),
        ("ct state != new drop", false),
        ("ct state ! established drop", true),
        ("ct status dnat drop", false),
        ("ct original proto-dst 22 drop", true),
        ("ct original ip daddr 172.18.0.2 drop", true),
        ("tcp flags syn drop", true),
        ("tcp flags syn / syn,ack drop", true),
        ("tcp flags & (syn | ack) == syn | ack drop", false),
        ("fib daddr type local drop", true),
        ("fib saddr . iif oif missing drop", false),
        ("fib saddr . iif oif exists drop", true),
        ("fib saddr type { local, broadcast } drop", false),
        ("meta mark set 0x10 meta mark & 0xf0 == 0x10 drop", true),
        ("meta mark set ip saddr map { 172.18.0.100 : 0x5 } meta mark 0x5 drop", true),
        ("tcp dport vmap { 0-21 : accept, 22 : drop }", true),
        ("tcp dport vmap { 21 : accept, * : drop }", true),
        ("limit rate over 1/minute burst 1 packets drop", false),
        ("counter packets 1 bytes 2 log prefix \"a b\" level warn drop", true),
        ("icmp type echo-request drop", false),
        ("meta nfproto ipv4 drop", true),
        ("numgen random mod 1 0 drop", true),
        ("meta mark set 0xff meta mark set mark & 0xf0 meta mark 0xf0 drop", true),
    ] {
        let found = to_node(rule);
        assert_eq!(found.starts_with("dropped"), drops, "{rule}: {found}");
    }
}

#[test]
fn a_chain_of_draws_has_one_path_per_rule() {
    let draws = (2..=12).rev().map(|modulus| format!("numgen random mod {modulus} 0 meta mark set {modulus} accept"));
    let rules: Vec<String> = draws.collect();
    let network = input(&rules.join("\n\t\t"));
    let found = network.outcomes(&tcp(&network, "client", "172.18.0.2:22")).unwrap();
    assert_eq!(found.ways.len(), 12);
    assert!(found.ways.iter().all(|(probability, _)| *probability == Fraction::new(1, 12)));

    for (rule, share) in [
        ("numgen random mod 4 0-1 drop", (1, 2)),
        ("numgen random mod 4 != 3 drop", (3, 4)),
        ("numgen random mod 4 offset 8 8-10 drop", (3, 4)),
        ("numgen random mod 4 7 drop", (0, 1)),
        ("numgen random mod 4 0-9 drop", (1, 1)),
        ("numgen inc mod 3 2 drop", (1, 3)),
    ] {
        let network = input(rule);
        let found = network.outcomes(&tcp(&network, "client", "172.18.0.2:22")).unwrap();
        let dropped = found.probability(|verdict| matches!(verdict, PacketVerdict::Dropped { .. }));
        assert_eq!(dropped, Fraction::new(share.0, share.1), "{rule}");
    }
}

#[test]
fn chains_run_by_priority_and_latest_first() {
    let chain = |name: &str, priority: &str, rule: &str| {
        format!("\tchain {name} {{\n\t\ttype filter hook input priority {priority};\n\t\t{rule}\n\t}}\n")
    };
    let table = |chains: &[String]| format!("table ip t {{\n{}}}\n", chains.concat());
    let mark = |mark: u32| format!("meta mark set {mark}");
    let network = |nft: &str, iptables: &str| Plan { nft: nft.to_owned(), ..Plan::new(iptables) }.build();
    let found = |network: &Network| outcomes(network, &tcp(network, "client", "172.18.0.2:22"));
    let drop_if = |mark: u32| format!("meta mark {mark} drop");
    let late = table(&[chain("a", "filter + 1", &drop_if(1)), chain("b", "filter - 1", &mark(1))]);
    assert!(found(&network(&late, "")).contains("dropped"), "the lower priority first");
    let early = table(&[chain("a", "-1", &drop_if(1)), chain("b", "1", &mark(1))]);
    assert!(!found(&network(&early, "")).contains("dropped"));
    let equal = table(&[chain("a", "0", &drop_if(1)), chain("b", "0", &mark(1))]);
    assert!(found(&network(&equal, "")).contains("dropped"), "of equal ones the last that was made");
    let iptables = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m mark --mark 0x1 -j DROP\nCOMMIT\n";
    assert!(found(&network(&table(&[chain("a", "-1", &mark(1))]), iptables)).contains("dropped"));
    assert!(!found(&network(&table(&[chain("a", "1", &mark(1))]), iptables)).contains("dropped"));
}

/// Accept ends only one base chain; a base chain's end and return apply its policy.
#[test]
fn verdicts_and_policies() {
    let two = |first: &str, second: &str| {
        let chain = |name: &str, rules: &str| {
            format!("\tchain {name} {{\n\t\ttype filter hook input priority {name};\n\t\t{rules}\n\t}}\n")
        };
        let network = cluster(&format!("table inet t {{\n{}{}}}\n", chain("1", first), chain("2", second)));
        outcomes(&network, &tcp(&network, "client", "172.18.0.2:22"))
    };
    assert!(two("accept", "drop").contains("dropped"));
    assert!(two("drop", "accept").contains("dropped"));
    assert!(two("policy drop; return", "accept").contains("dropped by node-a: NftPolicy"));
    assert!(two("policy drop; tcp dport 22 accept", "counter").contains("answers"));
    let jumps = |rules: &str| to_node(&format!("{rules}\n\t}}\n\tchain other {{\n\t\ttcp dport 22 return\n\t\tdrop"));
    assert!(jumps("jump other\n\t\tdrop").contains("dropped"));
    assert!(jumps("goto other\n\t\tdrop").contains("answers"), "a goto does not come back");
}

#[test]
fn ingress_and_egress_chains_run() {
    let text = |device: &str, hook: &str| {
        format!(
            "table netdev t {{\n\tchain c {{\n\t\ttype filter hook {hook} device \"{device}\" priority 0; policy accept;\n\t\ttcp dport 22 drop\n\t\ttcp sport 22 drop\n\t}}\n}}\n"
        )
    };
    let found = |text: &str| {
        let network = cluster(text);
        outcomes(&network, &tcp(&network, "client", "172.18.0.2:22"))
    };
    assert!(found(&text("eth0", "ingress")).contains("dropped"));
    assert!(found(&text("eth1", "ingress")).contains("answers"));
    assert!(found(&text("eth0", "egress")).contains("in vain"));
}

#[test]
fn tables_of_iptables_nft_count_once() {
    let text = "# Warning: table ip filter is managed by iptables-nft, do not touch!\ntable ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy accept;\n\t\txt match \"comment\" drop\n\t}\n}\n";
    let json = "{\"nftables\":[{\"table\":{\"family\":\"ip\",\"name\":\"filter\",\"handle\":1}},{\"chain\":{\"family\":\"ip\",\"table\":\"filter\",\"name\":\"INPUT\",\"type\":\"filter\",\"hook\":\"input\",\"prio\":0,\"policy\":\"accept\"}},{\"rule\":{\"family\":\"ip\",\"table\":\"filter\",\"chain\":\"INPUT\",\"expr\":[{\"xt\":{\"type\":\"match\",\"name\":\"comment\"}},{\"drop\":null}]}}]}";
    let plain = "table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy accept;\n\t\tqueue to 1\n\t}\n}\n";
    let own = Ruleset::read(&plain.replace("INPUT", "input")).unwrap();
    assert!(!own.table(TableFamily::Ip, "filter").unwrap().by_iptables, "a table of the same name, by another program");
    for listing in [text, json, plain] {
        let ruleset = Ruleset::read(listing).unwrap();
        assert!(ruleset.table(TableFamily::Ip, "filter").unwrap().by_iptables, "{listing}");
        assert!(ruleset.is_empty());
        let beside = Plan { nft: listing.to_owned(), ..Plan::new("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n") }.build();
        assert!(outcomes(&beside, &tcp(&beside, "client", "172.18.0.2:22")).contains("answers"));
        let alone = cluster(listing);
        assert!(alone.outcomes(&tcp(&alone, "client", "172.18.0.2:22")).is_err());
    }
}

#[test]
fn other_texts_are_errors_with_a_reason() {
    for (text, problem) in [
        ("table ip t {\n\tchain c {\n", "line 2: expected }, found \"the end\""),
        ("table ip t {\n\tnonsense\n}\n", "line 2: \"nonsense\" is not part of a table"),
        ("table ip t {\n\tset s {\n\t\tflags interval\n\t}\n}\n", "line 4: expected a set with its type"),
        (
            "table ip t {\n\tchain c {\n\t\ttype filter hook input priority soon;\n\t}\n}\n",
            "line 3: priority \"soon\" is not known here",
        ),
        (
            "table ip t {\n\tset s {\n\t\ttype ipv4_addr\n\t\telements = { , }\n\t}\n}\n",
            "an element of the set s is not understood",
        ),
        ("add rule ip t c drop\n", "line 1: expected `table`, as `nft list ruleset` prints it"),
        ("{\"nftables\": 1}", "expected an object with a list \"nftables\""),
        ("{\"nftables\": [", "not JSON"),
        (
            "{\"nftables\": [{\"rule\":{\"family\":\"ip\",\"table\":\"t\",\"chain\":\"c\",\"expr\":[]}}]}",
            "rule in the unknown table ip t",
        ),
        ("{\"nftables\": [{\"thing\":{}}]}", "\"thing\" is not part of a ruleset"),
    ] {
        let error = Ruleset::read(text).unwrap_err().to_string();
        assert!(error.contains(problem), "{text}: {error}");
    }
    let none = Ruleset::read("table ip t {\n\tchain c {\n\t\tjump gone\n\t}\n}\n").unwrap();
    let error = Host::builder("node").interface(HostInterface::new("eth0")).nft(none).build().unwrap_err();
    assert_eq!(error.to_string(), "host node: nftables, table ip t: unknown chain \"gone\"");
}

#[test]
fn an_unmodelled_statement_reaches_to_the_end_of_its_rule() {
    for (rule, unknown) in [
        ("ip saddr 10.0.0.1 queue to 1", "queue to 1"),
        (
            "ct state vmap { new : drop, related : queue to 1 } accept",
            "ct state vmap { new : drop, related : queue to 1 } accept",
        ),
        ("tcp dport { 80, { 81 } } drop", "tcp dport { 80, { 81 } } drop"),
        ("limit rate", "limit rate"),
    ] {
        let text = format!("table ip t {{\n\tchain c {{\n\t\t{rule}\n\t\tdrop\n\t}}\n}}\n");
        let ruleset = Ruleset::read(&text).unwrap();
        let found: Vec<&str> = ruleset.unknown().map(|(.., text)| text).collect();
        assert_eq!((found, ruleset.len()), (vec![unknown], 2), "{rule}");
    }
}

/// From nft 1.0.6, without handles.
#[test]
fn a_counter_of_a_map_ends_the_rule_without_an_element() {
    let text = |port: u16| {
        format!(
            "table ip t {{\n\tcounter in-default/web/tcp {{\n\t\tcomment \"x\"\n\t\tpackets 3 bytes 180\n\t}}\n\n\tmap m {{\n\
             \t\ttype inet_service . ct_dir : counter\n\t\telements = {{ {port} . original : \"in-default/web/tcp\" }}\n\t}}\n\n\
             \tchain input {{\n\t\ttype filter hook input priority filter; policy accept;\n\
             \t\tmeta l4proto tcp counter name ct original proto-dst . ct direction map @m drop\n\t}}\n}}\n"
        )
    };
    let json = r#"{"nftables": [{"table": {"family": "ip", "name": "t"}},
        {"counter": {"family": "ip", "name": "in-default/web/tcp", "table": "t", "comment": "x", "packets": 3, "bytes": 180}},
        {"map": {"family": "ip", "name": "m", "table": "t", "type": ["inet_service", "ct_dir"], "map": "counter",
                 "elem": [[{"concat": [22, "original"]}, "in-default/web/tcp"]]}},
        {"chain": {"family": "ip", "table": "t", "name": "input", "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}},
        {"rule": {"family": "ip", "table": "t", "chain": "input", "expr": [
            {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"}},
            {"counter": {"map": {"key": {"concat": [{"ct": {"key": "proto-dst", "dir": "original"}}, {"ct": {"key": "direction"}}]}, "data": "@m"}}},
            {"drop": null}]}}]}"#;
    let read = Ruleset::read(&text(22)).unwrap();
    let listed = read.to_string();
    assert_eq!(Ruleset::read(json).unwrap().to_string().replace("l4proto == tcp", "l4proto tcp"), listed);
    assert!(listed.contains("packets 3 bytes 180") && listed.contains(": \"in-default/web/tcp\" }"), "{listed}");
    assert_eq!(Ruleset::read(&listed).unwrap().to_string(), listed);
    assert_eq!(read.unknown().count(), 0);
    let verdict = |text: String| {
        let network = cluster(&text);
        let found = network.outcomes(&tcp(&network, "client", "172.18.0.2:22")).unwrap();
        say(&network, &found.outcomes[0].verdict)
    };
    assert_eq!(verdict(text(23)), to_node("meta mark 1 drop"));
    assert!(verdict(text(22)).starts_with("dropped by node-a"));
    let gone = Ruleset::read(&text(22).replacen("counter in-default", "counter of-default", 1)).unwrap();
    let error = Host::builder("node").interface(HostInterface::new("eth0")).nft(gone).build().unwrap_err();
    assert_eq!(error.to_string(), "host node: nftables, table ip t: unknown counter \"in-default/web/tcp\"");
}
