//! Elements with statements, sets that rules fill, and tables of equal priority.

use std::time::Duration;

use crate::support::{Plan, id, ip, outcomes, tcp};
use svclab_sim::chance::Chance;
use svclab_sim::network::{Network, PacketVerdict};
use svclab_sim::nft::Ruleset;

fn table(sets: &str, rules: &str) -> String {
    format!(
        "table ip t {{\n{sets}\n\tchain input {{\n\t\ttype filter hook input priority 0; policy accept;\n\t\t{rules}\n\t}}\n}}\n"
    )
}

fn set(body: &str) -> String {
    format!("\tset s {{\n\t\ttype ipv4_addr\n\t\tsize 3\n\t\tflags dynamic\n{body}\t}}\n")
}

fn call(network: &Network) -> String {
    let flow = tcp(network, "client", "172.18.0.2:22");
    match network.outcomes(&flow) {
        Ok(_) => outcomes(network, &flow),
        Err(error) => error.to_string(),
    }
}

fn network(nft: &str, iptables: &str) -> Network {
    Plan { nft: nft.to_owned(), ..Plan::new(iptables) }.build()
}

/// The client is 172.18.0.100.
#[test]
fn statements_of_elements_decide_where_they_are_reached() {
    for (body, rule, expected) in [
        ("", "update @s { ip saddr limit rate over 1/minute burst 1 packets } drop", "answers, saw"),
        ("", "update @s { ip saddr limit rate 1/minute burst 1 packets } drop", "dropped"),
        ("", "add @s { ip saddr ct count over 20 } drop", "answers, saw"),
        ("", "add @s { ip saddr ct count over 0 } drop", "dropped"),
        ("", "add @s { ip saddr ct count 20 } drop", "dropped"),
        ("", "add @s { ip saddr counter } drop", "dropped"),
        ("", "add @s { ip saddr quota over 10 mbytes } drop", "quota matches an unknown amount of traffic"),
        ("", "add @s { ip saddr quota over 10 mbytes } tcp dport 23 drop", "answers, saw"),
        ("\t\tlimit rate over 1/second\n", "add @s { ip saddr } drop", "answers, saw"),
        ("\t\telements = { 172.18.0.100 limit rate over 10/second }\n", "ip saddr @s drop", "answers, saw"),
        ("\t\telements = { 172.18.0.100 ct count 20 timeout 5s expires 4s }\n", "ip saddr @s drop", "dropped"),
        ("\t\telements = { 172.18.0.100 limit rate over 10/second }\n", "ip saddr != @s drop", "answers, saw"),
        ("\t\telements = { 172.18.0.100 quota over 10 mbytes used 88 bytes }\n", "ip saddr @s drop", "unknown amount"),
        ("\t\telements = { 172.18.0.101 quota over 10 mbytes used 88 bytes }\n", "ip saddr @s drop", "answers, saw"),
        (
            "\t\telements = { 172.18.0.101 last used 5s counter packets 1 bytes 2 }\n",
            "ip saddr @s drop",
            "answers, saw",
        ),
        (
            "",
            "limit rate over 10 mbytes/second burst 5 mbytes drop",
            "limit rate over 10 mbytes/second burst 5 mbytes matches",
        ),
        ("", "limit rate over 10 mbytes/second accept", "answers, saw"),
        ("", "ct count over 20 drop", "answers, saw"),
        ("", "quota over 10 mbytes used 88 bytes drop", "quota over 10 mbytes used 88 bytes matches"),
    ] {
        let text = table(&set(body), rule);
        let found = call(&network(&text, ""));
        assert!(found.contains(expected), "{body}{rule}: {found}");
        let printed = Ruleset::read(&text).unwrap().to_string();
        assert_eq!(call(&network(&printed, "")), found, "{printed}");
    }
}

#[test]
fn each_element_has_a_limit_of_its_own() {
    let mut network =
        network(&table(&set(""), "update @s { ip saddr limit rate over 1/second burst 2 packets } drop"), "");
    let dropped = |network: &mut Network, last: u8| {
        let flow = tcp(network, "client", "172.18.0.2:22").source(ip(&format!("172.18.0.{last}")));
        let verdict = network.send(&flow, &mut Chance::seeded(1)).unwrap().verdict;
        matches!(verdict, PacketVerdict::Dropped { .. })
    };
    let calls = [100, 100, 100, 101, 101, 101].map(|last| dropped(&mut network, last));
    assert_eq!(calls, [false, false, true, false, false, true]);
    network.advance(Duration::from_secs(1));
    assert_eq!([100, 100].map(|last| dropped(&mut network, last)), [false, true]);
}

/// As nft 1.0.6 prints it, without the flag `dynamic`.
#[test]
fn sets_that_rules_fill_are_known_from_json() {
    let json = |statement: &str| {
        format!(
            "{{\"nftables\":[{{\"table\":{{\"family\":\"ip\",\"name\":\"t\"}}}},\
             {{\"set\":{{\"family\":\"ip\",\"name\":\"s\",\"table\":\"t\",\"type\":\"ipv4_addr\",\"size\":65535,\"elem\":[{{\"elem\":{{\"val\":\"172.18.0.100\",{statement}}}}}]}}}},\
             {{\"chain\":{{\"family\":\"ip\",\"table\":\"t\",\"name\":\"c\",\"type\":\"filter\",\"hook\":\"input\",\"prio\":0,\"policy\":\"accept\"}}}},\
             {{\"rule\":{{\"family\":\"ip\",\"table\":\"t\",\"chain\":\"c\",\"expr\":[\
             {{\"set\":{{\"op\":\"add\",\"elem\":{{\"payload\":{{\"protocol\":\"ip\",\"field\":\"saddr\"}}}},\"set\":\"@s\",\"stmt\":[{{{statement}}}]}}}},{{\"drop\":null}}]}}}}]}}"
        )
    };
    for (statement, expected) in [
        ("\"ct count\":{\"val\":20,\"inv\":true}", "answers, saw"),
        ("\"ct count\":{\"val\":20}", "dropped"),
        ("\"limit\":{\"rate\":10,\"burst\":5,\"per\":\"second\",\"inv\":true}", "answers, saw"),
        ("\"limit\":{\"rate\":10,\"burst\":5,\"per\":\"second\"}", "dropped"),
        ("\"counter\":{\"packets\":0,\"bytes\":0}", "dropped"),
        ("\"quota\":{\"val\":10,\"val_unit\":\"mbytes\",\"used\":88,\"inv\":true}", "unknown amount of traffic"),
    ] {
        let found = call(&network(&json(statement), ""));
        assert!(found.contains(expected), "{statement}: {found}");
    }
}

#[test]
fn owners_are_known_where_a_packet_has_no_socket() {
    let at = |hook: &str, rule: &str| {
        format!(
            "table ip t {{\n\tchain c {{\n\t\ttype filter hook {hook} priority 0; policy accept;\n\t\t{rule}\n\t}}\n}}\n"
        )
    };
    for (hook, rule, from, to, expected) in [
        ("forward", "meta skuid 0 drop", "client", "10.244.0.2:8080", "answers, saw"),
        ("forward", "meta skuid != 0 drop", "client", "10.244.0.2:8080", "answers, saw"),
        ("postrouting", "meta skgid { 0, 1 } drop", "client", "10.244.0.2:8080", "answers, saw"),
        ("input", "tcp dport 22 meta skuid 0 drop", "client", "172.18.0.2:22", "answers, saw"),
        ("input", "meta skuid 0 drop", "node-a", "172.18.0.100:22", "matches the unknown owner"),
        ("output", "tcp dport 8080 meta skuid 0 drop", "node-a", "10.244.0.2:8080", "matches the unknown owner"),
        ("output", "meta skuid 0 accept", "node-a", "10.244.0.2:8080", "answers, saw"),
        ("output", "meta skuid 0 tcp dport 1 drop", "node-a", "10.244.0.2:8080", "answers, saw"),
        ("prerouting", "socket transparent 1 drop", "client", "10.244.0.2:8080", "matches unknown open sockets"),
        ("prerouting", "socket wildcard 0 accept", "client", "10.244.0.2:8080", "answers, saw"),
    ] {
        let network = network(&at(hook, rule), "");
        let flow = tcp(&network, from, to);
        let found = match network.outcomes(&flow) {
            Ok(_) => outcomes(&network, &flow),
            Err(error) => error.to_string(),
        };
        assert!(found.contains(expected), "{hook} {rule}: {found}");
    }
    // Opposite comparisons are one fact.
    let both = at("output", "meta skuid 0 accept\n\t\tmeta skuid != 0 accept\n\t\tdrop");
    let network = network(&both, "");
    let found = network.outcomes(&tcp(&network, "node-a", "10.244.0.2:8080")).unwrap();
    assert!(found.certain().is_some(), "{:?}", found.outcomes);
}

/// REJECT and drop at the same priority: the kernel's order decides. iptables-nft's tables are listed among the others
/// in the order in which they were made.
#[test]
fn tables_of_equal_priority_run_latest_first() {
    let own = "table ip t {\n\tchain c {\n\t\ttype filter hook input priority filter; policy accept;\n\t\ttcp dport 22 drop\n\t}\n}\n";
    let listed = "table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy accept;\n\t\ttcp dport 22 reject\n\t}\n}\n";
    let iptables = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j REJECT\nCOMMIT\n";
    assert!(call(&network(&format!("{listed}{own}"), iptables)).contains("dropped"));
    assert!(call(&network(&format!("{own}{listed}"), iptables)).contains("rejected"));
    let unknown = call(&network(own, iptables));
    assert!(
        unknown.contains(
            "node-a: ip t, chain c, c: the order of this chain and chain INPUT of table filter of iptables is not known"
        ),
        "{unknown}"
    );
    for rule in ["tcp dport 23 drop", "tcp dport 22 accept", "counter"] {
        let found = call(&network(&own.replace("tcp dport 22 drop", rule), iptables));
        assert!(found.contains("rejected"), "{rule}: {found}");
    }
    let without = call(&network(own, "*filter\n:INPUT ACCEPT [0:0]\n-A OUTPUT -j REJECT\nCOMMIT\n"));
    assert!(without.contains("dropped"), "{without}");
}

/// As `nft -j` lists them: handles grow with time within a table.
#[test]
fn a_chain_that_is_younger_than_its_tables_rules_has_no_known_order() {
    let iptables = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j REJECT\nCOMMIT\n";
    let table = |name: &str, chain: &str, chain_handle: u32, rule_handle: u32| {
        format!(
            "{{\"table\":{{\"family\":\"ip\",\"name\":\"{name}\"}}}},\
             {{\"chain\":{{\"family\":\"ip\",\"table\":\"{name}\",\"name\":\"{chain}\",\"handle\":{chain_handle},\"type\":\"filter\",\"hook\":\"input\",\"prio\":0,\"policy\":\"accept\"}}}},\
             {{\"rule\":{{\"family\":\"ip\",\"table\":\"{name}\",\"chain\":\"{chain}\",\"handle\":{rule_handle},\"expr\":[{{\"drop\":null}}]}}}}"
        )
    };
    for (first, second, expected) in [
        (table("filter", "INPUT", 1, 2), table("t", "c", 1, 2), "dropped"),
        (table("filter", "INPUT", 1, 2), table("t", "c", 3, 2), "dropped"),
        (table("filter", "INPUT", 3, 2), table("t", "c", 1, 2), "is not known"),
        (table("t", "c", 1, 2), table("filter", "INPUT", 3, 2), "rejected"),
        (table("t", "c", 3, 2), table("filter", "INPUT", 1, 2), "is not known"),
    ] {
        let found = call(&network(&format!("{{\"nftables\":[{first},{second}]}}"), iptables));
        assert!(found.contains(expected), "{first},{second}: {found}");
    }
}

#[test]
fn translations_of_equal_priority_run_latest_first() {
    let own = "table ip t {\n\tchain c {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\tip daddr 10.96.0.10 dnat to 10.244.0.2:8080\n\t}\n}\n";
    let listed =
        "table ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t}\n}\n";
    let iptables = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 10.96.0.10 -p tcp -j DNAT --to-destination 10.244.0.3:8080\nCOMMIT\n";
    for (nft, expected) in [(format!("{listed}{own}"), "pod-a"), (format!("{own}{listed}"), "pod-b")] {
        let network = network(&nft, iptables);
        let found = network.outcomes(&tcp(&network, "client", "10.96.0.10:80")).unwrap();
        let by = found.certain().and_then(PacketVerdict::answered).unwrap().0;
        assert_eq!(by, id(&network, expected), "{nft}");
    }
    let network = network(own, iptables);
    let error = network.outcomes(&tcp(&network, "client", "10.96.0.10:80")).unwrap_err().to_string();
    assert!(error.contains("chain PREROUTING of table nat of iptables"), "{error}");
}
