//! Dumps of nodes with other software, such as docker or Calico.

use svclab_sim::cluster::NodeState;
use svclab_sim::protocol::Family;
use svclab_sim::rules::matches::Match;
use svclab_sim::rules::{Rule, RuleTarget, Rules};

const NODES: [(&str, &str); 4] = [
    ("calico", include_str!("../data/nodes/calico.txt")),
    ("docker", include_str!("../data/nodes/docker.txt")),
    ("firewalld", include_str!("../data/nodes/firewalld.txt")),
    ("k3s", include_str!("../data/nodes/k3s.txt")),
];

fn rules(all: &Rules) -> impl Iterator<Item = &Rule> {
    all.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn node_dumps_print_as_they_were_read() {
    for (name, text) in NODES {
        let read = Rules::read_any(Family::V4, text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let printed = read.to_string();
        assert_eq!(sorted(&printed), sorted(text), "{name}");
        assert_eq!(Rules::read_any(Family::V4, &printed).unwrap().to_string(), printed, "{name}");
        let mut node = NodeState::default();
        node.read_any_rules(name, Family::V4, text).unwrap();
        assert_eq!(node.rules(Family::V4).to_string(), printed);
    }
}

#[test]
fn node_dumps_have_few_unknown_parts() {
    for (name, expected) in [("calico", "bpf TARPIT"), ("docker", "cgroup string time"), ("firewalld", ""), ("k3s", "")]
    {
        let text = NODES.iter().find(|(known, _)| *known == name).unwrap().1;
        let read = Rules::read_any(Family::V4, text).unwrap();
        let mut found = Vec::new();
        for rule in rules(&read) {
            found.extend(rule.matches.iter().filter(|one| matches!(one, Match::Unknown { .. })).map(Match::name));
            if let RuleTarget::Unknown { name, .. } = &rule.target {
                found.push(name);
            }
        }
        assert_eq!(found.join(" "), expected, "{name}");
        // The strict reader refuses dumps with unmodelled parts; for all others it has the same result.
        match Rules::read(Family::V4, text) {
            Ok(strict) => assert_eq!(strict, read, "{name}"),
            Err(error) => assert!(!expected.is_empty(), "{name}: {error}"),
        }
    }
}

fn one(table: &str, line: &str) -> String {
    format!("*{table}\n:C - [0:0]\n{line}\nCOMMIT\n")
}

#[test]
fn matches_and_targets_are_printed_as_iptables_save_does() {
    for (table, rule) in [
        ("filter", "-m owner --uid-owner 1337"),
        ("filter", "-m owner ! --socket-exists ! --uid-owner 0-99 --gid-owner 5 --suppl-groups"),
        ("mangle", "-p tcp -m socket --transparent --nowildcard --restore-skmark"),
        ("mangle", "-p tcp -m socket"),
        (
            "filter",
            "-m hashlimit --hashlimit-upto 10/sec --hashlimit-burst 20 --hashlimit-mode srcip --hashlimit-name x",
        ),
        (
            "filter",
            "-m hashlimit --hashlimit-above 512kb/s --hashlimit-mode srcip --hashlimit-name y --hashlimit-srcmask 24",
        ),
        ("filter", "-m connlimit --connlimit-above 3 --connlimit-mask 32 --connlimit-saddr"),
        ("filter", "-m connlimit --connlimit-upto 3 --connlimit-mask 24 --connlimit-daddr"),
        ("filter", "-m mac ! --mac-source 02:00:00:00:00:0a"),
        ("filter", "-m length ! --length 100"),
        ("filter", "-m length --length 100:65535"),
        ("filter", "-p tcp -m tcpmss ! --mss 1:536"),
        ("filter", "-m pkttype ! --pkt-type broadcast"),
        ("filter", "-m policy --dir in --pol ipsec --reqid 1 --proto esp"),
        ("filter", "-m policy --dir out --pol none"),
        ("filter", "-m ipvs ! --ipvs"),
        ("filter", "-m ipvs --vaddr 10.0.0.1/32 ! --vport 80 --vdir REPLY"),
        ("mangle", "-j CONNMARK --set-xmark 0x1/0x2 --left-shift-mark 3"),
        ("mangle", "-j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff --right-shift-mark 3"),
        ("mangle", "-p tcp -j TPROXY --on-port 15001 --on-ip 127.0.0.1 --tproxy-mark 0x1/0x1"),
        ("mangle", "-j TOS --set-tos 0x10/0x3f"),
        ("mangle", "-j CLASSIFY --set-class 0001:0010"),
        ("mangle", "-j DSCP --set-dscp 0x0a"),
        ("mangle", "-p tcp -j ECN --ecn-tcp-remove"),
        ("mangle", "-p tcp -j TCPOPTSTRIP --strip-options 4,5"),
        ("mangle", "-j TTL --ttl-inc 1"),
        ("mangle", "-j CHECKSUM --checksum-fill"),
        ("mangle", "-j IDLETIMER --timeout 5 --label foo"),
        ("mangle", "-j RATEEST --rateest-name x --rateest-interval 250.0ms --rateest-ewmalog 500.0ms"),
        ("mangle", "-j NFLOG --nflog-prefix \"a b.\" --nflog-group 3"),
        ("mangle", "-j LOG --log-prefix \"a.b\""),
        ("filter", "-j NFQUEUE --queue-num 3 --queue-bypass"),
        ("filter", "-j NFQUEUE --queue-balance 0:3"),
        ("filter", "-j AUDIT --type accept"),
        ("filter", "-p tcp -j SYNPROXY --sack-perm --timestamp --wscale 9 --mss 1460"),
        ("filter", "-j SET --add-set x src,dst --exist --timeout 30"),
        ("mangle", "-j SET --map-set x src --map-mark"),
        ("raw", "-j CT --zone 5"),
        ("raw", "-j CT --zone-orig mark"),
        ("raw", "-j CT --ctevents new --expevents new --zone-reply 4"),
        ("raw", "-j CT --helper ftp"),
        ("raw", "-j CT --notrack"),
        ("raw", "-j TRACE"),
        ("nat", "-d 10.1.0.0/16 -j NETMAP --to 10.2.0.0/16"),
    ] {
        let line =
            format!("-A C {rule}{}", if rule.contains(" -j ") || rule.starts_with("-j") { "" } else { " -j RETURN" });
        let read = Rules::read(Family::V4, &one(table, &line)).unwrap_or_else(|error| panic!("{error}"));
        assert!(read.to_string().contains(&format!("{line}\n")), "{line}: {read}");
        assert_eq!(Rules::read(Family::V4, &read.to_string()).unwrap().to_string(), read.to_string());
    }
}

#[test]
fn unmodelled_parts_are_kept_as_text() {
    for rule in [
        "-m bpf --bytecode \"1,6 0 0 1\" -j DROP",
        "-m string --string \"-j or \\\"so\\\"\" --algo bm -m mark --mark 0x1 -j DROP",
        "-m u32 ! --u32 \"0x6&0xff=0x1\" -j ACCEPT",
        "-m rpfilter --strict -j DROP",
        "-p tcp -m tcp --dport eighty -j DROP",
        "-p tcp -m tcp --dport 80 --tcp-option 7 -j DROP",
        "-m conntrack --ctstate NEW --ctexpire 5 -j DROP",
        "-m limit --limit 5/week -m mark --mark 0x1 -j DROP",
        "-p udplite -m multiport --dports 5 -j DROP",
        "-p icmp -m icmp --icmp-type 300 -j DROP",
        "-p \"a b\" -j DROP",
        "-j TARPIT",
        "-j TARPIT --honeypot",
        "-j LOG --log-loud 5",
        "-j REJECT --reject-with icmp6-no-route",
        "-j DNAT --to-destination 10.0.0.1",
        "-p icmp -j NFLOG --nflog-loud",
    ] {
        let read = Rules::read_any(Family::V4, &one("filter", &format!("-A C {rule}"))).unwrap();
        assert!(read.to_string().contains(&format!("-A C {rule}\n")), "{rule}: {read}");
        let unknown = rules(&read).any(|rule| {
            matches!(rule.target, RuleTarget::Unknown { .. })
                || rule.matches.iter().any(|one| matches!(one, Match::Unknown { .. }))
        });
        assert!(unknown, "{rule}");
        assert!(Rules::read(Family::V4, &one("filter", &format!("-A C {rule}"))).is_err(), "{rule}");
    }
}

#[test]
fn broken_dumps_are_errors_for_read_any() {
    for text in [
        "*filter\n-A INPUT -m bpf -j DROP\n",
        "*filter\n-A NOWHERE -j DROP\nCOMMIT\n",
        "*filter\n-A INPUT -g NOWHERE\nCOMMIT\n",
        "*filter\n-A INPUT -j OUTPUT\nCOMMIT\n",
        "*filter\n-A INPUT -s 10.0.0.0/33 -j DROP\nCOMMIT\n",
        "*filter\n-A INPUT --loud -j DROP\nCOMMIT\n",
        "*filter\n-A INPUT -m comment --comment \"open -j ACCEPT\nCOMMIT\n",
        "*filter\n-A INPUT -p tcp -m tcp --dport\nCOMMIT\n",
        "*filter\n-A INPUT -j ACCEPT -j DROP\nCOMMIT\n",
        "*broute\nCOMMIT\n",
        "-A INPUT -j ACCEPT\n",
    ] {
        assert!(Rules::read_any(Family::V4, text).is_err(), "{text}");
    }
}
