//! Unknown parts of rules matter only if packets reach them and the answers differ.

use crate::support::{at, ip, net};
use svclab_sim::assume::Assumptions;
use svclab_sim::chance::Chance;
use svclab_sim::host::{Host, HostBuilder, HostInterface, Listener, Route, Sysctls};
use svclab_sim::network::{Flow, HostId, Network, NetworkError, Outcomes, PacketVerdict};
use svclab_sim::nft::Ruleset;
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::render;
use svclab_sim::rules::Rules;
use svclab_sim::set::Sets;

const SETS: &str = "create SEEN hash:ip family inet\ncreate OTHER hash:ip family inet\nadd OTHER 192.0.2.2\n";

/// A node (192.0.2.1, 203.0.113.1) between a client at eth0 and the server 203.0.113.2 at eth1.
struct UnknownSetup {
    network: Network,
    node: HostId,
    client: HostId,
}

fn setup(change: impl FnOnce(HostBuilder) -> HostBuilder, invented: bool) -> UnknownSetup {
    let all = Listener { protocol: Protocol::TCP, address: None, port: None };
    let eth0 = HostInterface::new("eth0").address(ip("192.0.2.1"), 24);
    let node = Host::builder("node")
        .interface(if invented { eth0.invented() } else { eth0 })
        .interface(HostInterface::new("eth1").address(ip("203.0.113.1"), 24))
        .sets(Sets::read(SETS).unwrap())
        .sysctls(Sysctls::node())
        .listener(all);
    let client = Host::builder("client")
        .interface(HostInterface::new("eth0").address(ip("192.0.2.2"), 24))
        .route(Route::via(net("0.0.0.0/0"), ip("192.0.2.1"), "eth0"))
        .listener(all);
    let server = Host::builder("server")
        .interface(HostInterface::new("eth0").address(ip("203.0.113.2"), 24))
        .route(Route::via(net("0.0.0.0/0"), ip("203.0.113.1"), "eth0"))
        .listener(all);
    let mut network = Network::new();
    let node = network.add(change(node).build().unwrap());
    let (client, server) = (network.add(client.build().unwrap()), network.add(server.build().unwrap()));
    network.link(&[(node, "eth0"), (client, "eth0")]).unwrap();
    network.link(&[(node, "eth1"), (server, "eth0")]).unwrap();
    UnknownSetup { network, node, client }
}

fn with_rules(rules: &str) -> impl FnOnce(HostBuilder) -> HostBuilder + use<> {
    let rules = Rules::read_any(Family::V4, rules).unwrap();
    move |host| host.rules(rules)
}

fn assuming(rules: &str, assumptions: &str) -> impl FnOnce(HostBuilder) -> HostBuilder + use<> {
    let assumptions = assumptions.split_terminator(' ');
    let (rules, assumptions) = (with_rules(rules), Assumptions::parse(assumptions).unwrap());
    move |host| rules(host).assume(assumptions)
}

fn filter(rules: &str) -> String {
    format!("*filter\n:A - [0:0]\n{rules}\nCOMMIT\n")
}

fn input(setup: &UnknownSetup) -> Result<Outcomes, NetworkError> {
    setup.network.outcomes(&Flow::tcp(setup.client, at("192.0.2.1:80")))
}

fn say(outcomes: &Outcomes) -> String {
    let word = |verdict: &PacketVerdict| match verdict {
        PacketVerdict::Answered { .. } => "answered",
        PacketVerdict::Dropped { .. } => "dropped",
        _ => "other",
    };
    let all = outcomes.outcomes.iter().map(|one| format!("{} {}", one.probability, word(&one.verdict)));
    all.collect::<Vec<_>>().join(", ")
}

fn in_words(result: Result<Outcomes, NetworkError>) -> String {
    match result {
        Ok(outcomes) => match outcomes.undecided.len() {
            0 => say(&outcomes),
            open => format!("{}; {open} open", say(&outcomes)),
        },
        Err(NetworkError::Undecided(open)) => {
            let names: Vec<String> = open
                .parts
                .iter()
                .map(|part| (part.rule.as_ref().unwrap(), &part.name))
                .map(|(rule, name)| format!("{} {} {name}", rule.chain(), rule.number()).trim().to_owned())
                .collect();
            format!("depends on {}", names.join(", "))
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn unknown_facts_count_only_where_reached_and_decisive() {
    let open = "-m bpf --bytecode \"1,6 0 0 1\"";
    for (rules, expected) in [
        // The unknown match is not reached, or a known one fails.
        (format!("-A INPUT -p tcp -j ACCEPT\n-A INPUT {open} -j DROP"), "1 answered"),
        (format!("-A INPUT -p udp {open} -j DROP"), "1 answered"),
        (format!("-A INPUT {open} -m mark --mark 0x1 -j DROP"), "1 answered"),
        (format!("-A INPUT -m mark --mark 0x1 {open} -j DROP"), "1 answered"),
        (format!("-A A {open} -j DROP"), "1 answered"),
        // Both answers have the same result.
        (format!("-A INPUT {open} -j ACCEPT"), "1 answered; 1 open"),
        (format!("-A INPUT {open} -j LOG"), "1 answered; 1 open"),
        (format!("-A INPUT {open} -j A\n-A A -j RETURN\n-A INPUT -j DROP"), "1 dropped; 1 open"),
        // The error lists all facts.
        (format!("-A INPUT {open} -j DROP"), "depends on INPUT 1 bpf"),
        (format!("-A INPUT {open} -j ACCEPT\n-A INPUT -j DROP"), "depends on INPUT 1 bpf"),
        (
            format!(
                "-A INPUT -m time --timestart 02:00 -j LOG\n-A INPUT {open} -m string --string x --algo bm -j DROP"
            ),
            "depends on INPUT 1 time, INPUT 2 bpf, INPUT 2 string",
        ),
        (
            format!("-A INPUT {open} -j A\n-A A -m ttl --ttl-lt 5 -j DROP\n-A INPUT -m helper --helper ftp -j ACCEPT"),
            "depends on A 1 ttl, INPUT 1 bpf, INPUT 2 helper",
        ),
        // No assumption answers an unknown target.
        ("-A INPUT -j TARPIT".to_owned(), "depends on INPUT 1"),
        ("-A INPUT -p udp -j TARPIT".to_owned(), "1 answered"),
        ("-A INPUT -j NFQUEUE --queue-num 3".to_owned(), "depends on INPUT 1 NFQUEUE"),
        (format!("-A INPUT {open} -j TARPIT\n-A INPUT -j NFQUEUE"), "depends on INPUT 1, INPUT 1 bpf, INPUT 2 NFQUEUE"),
        ("-A INPUT -j SYNPROXY --mss 1460".to_owned(), "depends on INPUT 1"),
        ("-A INPUT -j SET --map-set OTHER src --map-mark".to_owned(), "depends on INPUT 1"),
    ] {
        let setup = setup(with_rules(&filter(&rules)), false);
        assert_eq!(in_words(input(&setup)), expected, "{rules}");
    }
}

#[test]
fn the_error_lists_facts_and_assumptions() {
    let rules = "*mangle\n-A PREROUTING -p tcp -j TPROXY --on-port 15001 --tproxy-mark 0x1\nCOMMIT\n";
    let error = input(&setup(with_rules(rules), false)).unwrap_err().to_string();
    assert_eq!(
        error,
        "the outcome of the packet depends on unknown facts:\n  \
         node: table mangle, rule 1 of chain PREROUTING (line 2), -A PREROUTING -p tcp -j TPROXY --on-port 15001 --tproxy-mark 0x1: \
         -j TPROXY --on-port 15001 --tproxy-mark 0x1 hands the packet to the program that listens at port 15001"
    );
    let rules = filter("-A INPUT -m mac --mac-source 02:00:00:00:00:01 -j DROP");
    let error = input(&setup(with_rules(&rules), false)).unwrap_err().to_string();
    assert_eq!(
        error,
        "the outcome of the packet depends on unknown facts:\n  \
         node: table filter, rule 1 of chain INPUT (line 3), -A INPUT -m mac --mac-source 02:00:00:00:00:01 -j DROP: \
         -m mac --mac-source 02:00:00:00:00:01 matches the sender's unknown Ethernet address\n\
         to decide them: --assume 'mac=no' (or =yes)"
    );
}

#[test]
fn draws_happen_in_the_kernels_order() {
    let half = "-m statistic --mode random --probability 0.5";
    for (rules, expected) in [
        (format!("-A INPUT {half} -m bpf -j DROP"), "depends on INPUT 1 bpf"),
        (format!("-A INPUT -m bpf {half} -j DROP"), "depends on INPUT 1 bpf"),
        // The draw happens with either answer, or has no effect.
        (format!("-A INPUT {half} -j DROP\n-A INPUT -m bpf -j ACCEPT"), "1/2 answered, 1/2 dropped; 1 open"),
        (format!("-A INPUT -m bpf -j LOG\n-A INPUT {half} -j DROP"), "1/2 answered, 1/2 dropped; 1 open"),
        (
            format!(
                ":D - [0:0]\n-A INPUT -m bpf -j A\n-A INPUT {half} -j D\n-A A {half} -j D\n-A A -j ACCEPT\n-A D -j DROP"
            ),
            "1/2 answered, 1/2 dropped; 1 open",
        ),
        (format!("-A INPUT -m bpf {half} -j ACCEPT\n-A INPUT {half} -j DROP"), "depends on INPUT 1 bpf"),
    ] {
        let setup = setup(with_rules(&filter(&rules)), false);
        assert_eq!(in_words(input(&setup)), expected, "{rules}");
    }
}

#[test]
fn assumptions_decide_unknown_facts() {
    for (rules, assumptions, expected) in [
        ("-A INPUT -m bpf -j DROP", "bpf=no", "1 answered"),
        ("-A INPUT -m bpf -j DROP", "bpf=yes", "1 dropped"),
        ("-A INPUT -m bpf -j DROP", "owner=yes", "depends on INPUT 1 bpf"),
        ("-A INPUT -j NFQUEUE", "NFQUEUE=yes", "1 answered"),
        ("-A INPUT -j NFQUEUE", "NFQUEUE=no", "1 dropped"),
        ("-A INPUT -p tcp -m socket --restore-skmark -j ACCEPT", "socket=no", "1 answered"),
        ("-A INPUT -p tcp -m socket --restore-skmark -j ACCEPT", "socket=yes", "depends on INPUT 1 socket"),
        // Known facts take precedence over assumptions.
        ("-A INPUT -m length --length 40:60 -j DROP", "length=no", "1 dropped"),
    ] {
        let setup = setup(assuming(&filter(rules), assumptions), false);
        assert_eq!(in_words(input(&setup)), expected, "{rules} {assumptions}");
    }
    let setup = setup(assuming(&filter("-A INPUT -m bpf -j DROP"), "bpf=no"), false);
    let outcomes = input(&setup).unwrap();
    assert!(render::journey(&outcomes.ways[0].1).contains("bpf: assumed no"));
}

#[test]
fn traces_show_the_answers() {
    let setup = setup(with_rules(&filter("-A INPUT -m bpf -j ACCEPT")), false);
    let outcomes = input(&setup).unwrap();
    assert_eq!(outcomes.ways.len(), 1);
    let text = render::tree(&outcomes);
    assert!(text.contains("bpf: unknown, taken as no in INPUT 1"), "{text}");
}

#[test]
fn a_seeded_walk_fails_at_an_unknown_fact() {
    let mut one = setup(with_rules(&filter("-A INPUT -m bpf -j ACCEPT\n-A INPUT -m time -j LOG")), false);
    let flow = Flow::tcp(one.client, at("192.0.2.1:80"));
    let error = one.network.send(&flow, &mut Chance::seeded(1)).unwrap_err();
    assert!(matches!(&error, NetworkError::NotModelled(part) if &*part.name == "bpf"), "{error}");
    // Unused assumptions are no errors.
    let mut one = setup(with_rules(&filter("-A INPUT -m time -j LOG")), false);
    let flow = Flow::tcp(one.client, at("192.0.2.1:80"));
    assert!(one.network.send(&flow, &mut Chance::seeded(1)).unwrap().verdict.answered().is_some());
}

#[test]
fn matches_are_known_for_some_packets() {
    for (rule, expected) in [
        ("-p tcp -m socket", "depends on INPUT 1 socket"),
        ("-m mac ! --mac-source 02:00:00:00:00:01", "depends on INPUT 1 mac"),
        ("-m length --length 40:60", "1 dropped"),
        ("-m length --length 0:39", "1 answered"),
        ("-m length ! --length 61:100", "1 dropped"),
        ("-m length --length 52", "depends on INPUT 1 length"),
        ("-p tcp -m tcpmss --mss 1:536", "depends on INPUT 1 tcpmss"),
        ("-m ipvs --vport 80", "1 answered"),
        ("-m ipvs --vdir REPLY --vmethod GATE ! --vaddr 10.0.0.0/8", "1 answered"),
        ("-m ipvs ! --ipvs", "1 dropped"),
        ("-m policy --dir in --pol ipsec", "1 answered"),
        ("-m policy --dir in --pol none", "1 dropped"),
        ("-m pkttype --pkt-type broadcast", "1 answered"),
        ("-m pkttype ! --pkt-type multicast", "1 dropped"),
        ("-m hashlimit --hashlimit-upto 1/day --hashlimit-burst 1 --hashlimit-name x", "1 dropped"),
        ("-m hashlimit --hashlimit-above 1/day --hashlimit-burst 1 --hashlimit-name x", "1 answered"),
        ("-m connlimit --connlimit-upto 1", "1 dropped"),
        ("-m connlimit --connlimit-above 1", "1 answered"),
        ("-m connlimit --connlimit-above 0", "1 dropped"),
    ] {
        let setup = setup(with_rules(&filter(&format!("-A INPUT {rule} -j DROP"))), false);
        assert_eq!(in_words(input(&setup)), expected, "{rule}");
    }
}

#[test]
fn owner_is_unknown_only_for_sockets() {
    let from_node = |setup: &UnknownSetup| setup.network.outcomes(&Flow::tcp(setup.node, at("203.0.113.2:80")));
    let through = |setup: &UnknownSetup| setup.network.outcomes(&Flow::tcp(setup.client, at("203.0.113.2:80")));
    for (rule, local, forwarded) in [
        ("-m owner --uid-owner 0", "depends on POSTROUTING 1 owner", "1 answered"),
        ("-m owner ! --uid-owner 0", "depends on POSTROUTING 1 owner", "1 dropped"),
        ("-m owner --socket-exists", "1 dropped", "1 answered"),
        ("-m owner ! --socket-exists", "1 answered", "1 dropped"),
        ("-m owner --socket-exists ! --gid-owner 5", "depends on POSTROUTING 1 owner", "1 answered"),
        ("-m owner --uid-owner 0 --suppl-groups", "depends on POSTROUTING 1 owner", "1 answered"),
    ] {
        let rules = format!("*mangle\n-A POSTROUTING -p tcp -m tcp --dport 80 {rule} -j DROP\nCOMMIT\n");
        let setup = setup(with_rules(&rules), false);
        assert_eq!(in_words(from_node(&setup)), local, "{rule}");
        assert_eq!(in_words(through(&setup)), forwarded, "{rule}");
    }
}

#[test]
fn every_type_of_set_is_read_and_matters_only_where_reached() {
    const SETS: &str = "\
create MAC hash:mac hashsize 1024 maxelem 65536 bucketsize 12 initval 0x1
add MAC 02:00:00:00:00:01
create IPMAC hash:ip,mac family inet hashsize 1024
add IPMAC 192.0.2.2,02:00:00:00:00:01
create BITMAC bitmap:ip,mac range 192.0.2.0-192.0.2.255
add BITMAC 192.0.2.2
create MARK hash:ip,mark family inet markmask 0x0000ff00
add MARK 192.0.2.2,0x00000100
create BIT bitmap:ip range 192.0.0.0-192.0.255.255 netmask 24
add BIT 192.0.2.0
create BITPORT bitmap:port range 0-1000 timeout 0 counters comment skbinfo
add BITPORT 80 timeout 0 packets 0 bytes 0 comment \"a nomatch timeout x\" skbmark 0x1/0xff skbprio 1:10 skbqueue 2
create IFACE hash:net,iface family inet hashsize 1024
add IFACE 192.0.2.0/24,eth0
add IFACE 198.51.100.0/24,eth0
create WILD hash:net,iface family inet
add WILD 0.0.0.0/0,eth wildcard
add WILD 192.0.2.0/24,eth nomatch wildcard
create PORT hash:net,iface family inet
add PORT 192.0.2.0/24,physdev:eth9
create MASKED hash:ip,port family inet bitmask 255.255.0.255
add MASKED 192.0.0.1,tcp:80
add MASKED 192.0.0.1,icmp:echo-request
create NETS hash:net family inet
add NETS 192.0.2.0/24 nomatch
create LIST list:set size 8 comment
add LIST NETS comment \"x y\"
add LIST BIT
create MACS list:set size 8
add MACS MAC
create NEW hash:of,tomorrow family inet
add NEW anything
create ODD hash:ip family inet
add ODD 192.0.2.2-192.0.2.9
";
    let in_sets = |rule: &str, invented: bool| {
        let (rules, sets) = (filter(rule), Sets::read(SETS).unwrap());
        let with_rules = with_rules(&rules);
        in_words(input(&setup(|host| with_rules(host.sets(sets)), invented)))
    };
    for (set, expected) in [
        ("MAC src", "depends on INPUT 1 set"),
        ("IPMAC src,src", "depends on INPUT 1 set"),
        ("IPMAC dst,src", "1 answered"),
        ("BITMAC src,src", "1 dropped"),
        ("MARK src,src", "1 answered"),
        ("BIT src", "1 dropped"),
        ("BITPORT dst", "1 dropped"),
        ("IFACE src,src", "1 dropped"),
        ("IFACE src,dst", "1 answered"),
        ("WILD src,src", "1 answered"),
        ("WILD src,src --return-nomatch", "1 dropped"),
        ("PORT src,src", "depends on INPUT 1 set"),
        ("PORT dst,src", "depends on INPUT 1 set"),
        ("MASKED dst,dst", "1 dropped"),
        // The exception does not matter to a list, its other member does.
        ("NETS src", "1 answered"),
        ("LIST src", "1 dropped"),
        ("MACS src", "depends on INPUT 1 set"),
        // As in the kernel, only sets of networks have exceptions.
        ("BIT src --return-nomatch", "1 dropped"),
        ("NEW src", "depends on INPUT 1 set"),
        ("ODD src", "depends on INPUT 1 set"),
    ] {
        assert_eq!(in_sets(&format!("-A INPUT -m set --match-set {set} -j DROP"), false), expected, "{set}");
    }
    assert_eq!(in_sets("-A INPUT -m set --match-set IFACE src,src -j DROP", true), "depends on INPUT 1 set");
    let marked = "-A INPUT -j MARK --set-xmark 0x1ff/0xffffffff\n-A INPUT -m set --match-set MARK src,src -j DROP";
    assert_eq!(in_sets(marked, false), "1 dropped");
    let changed = "-A INPUT -j SET --add-set BIT src\n-A INPUT -m set --match-set LIST src -j DROP";
    assert_eq!(in_sets(changed, false), "depends on INPUT 2 set");
    assert_eq!(in_sets("-A INPUT -p udp -m set --match-set NEW src -j DROP", false), "1 answered");
    // No Ethernet header: the packet starts here.
    let rules = with_rules("*mangle\n-A OUTPUT -m set --match-set MAC src -j DROP\nCOMMIT\n");
    let setup = setup(|host| rules(host.sets(Sets::read(SETS).unwrap())), false);
    assert_eq!(in_words(setup.network.outcomes(&Flow::tcp(setup.node, at("203.0.113.2:80")))), "1 answered");
}

#[test]
fn protocols_have_the_names_of_any_distribution() {
    for (protocol, expected) in [
        ("ipv4", "1 answered"),
        ("! -p ipv4", "1 dropped"),
        ("ipencap", "1 answered"),
        ("hopopt", "1 answered"),
        ("mobility-header", "1 answered"),
        ("compaq-peer", "1 answered"),
        ("TCP", "1 dropped"),
        ("253", "1 answered"),
        ("moonbeam", "depends on INPUT 1"),
        ("moonbeam -m mark --mark 0x1", "1 answered"),
        ("udp -p moonbeam", "1 answered"),
    ] {
        let option = if protocol.starts_with('!') { "" } else { "-p " };
        let setup = setup(with_rules(&filter(&format!("-A INPUT {option}{protocol} -j DROP"))), false);
        assert_eq!(in_words(input(&setup)), expected, "{protocol}");
    }
    let rules = filter("-A INPUT ! -p moonbeam -j DROP");
    assert!(Rules::read_any(Family::V4, &rules).unwrap().to_string().contains("-A INPUT ! -p moonbeam -j DROP\n"));
    assert!(Rules::read(Family::V4, &rules).is_err());
}

#[test]
fn the_hop_limit_is_known_once_a_rule_sets_it() {
    let mangle = |rules: &str| format!("*mangle\n{rules}\nCOMMIT\n");
    for (rules, through, itself) in [
        ("-A PREROUTING -j TTL --ttl-set 1", "1 dropped", "1 answered"),
        ("-A PREROUTING -j TTL --ttl-set 2", "1 answered", "1 answered"),
        ("-A PREROUTING -j TTL --ttl-set 4\n-A PREROUTING -j TTL --ttl-dec 4", "1 dropped", "1 answered"),
        ("-A PREROUTING -j TTL --ttl-dec 4", "1 answered", "1 answered"),
        ("-A PREROUTING -j TTL --ttl-set 1\n-A PREROUTING -m ttl --ttl-lt 5 -j DROP", "1 dropped", "1 dropped"),
        ("-A PREROUTING -j TTL --ttl-set 5\n-A PREROUTING -m ttl --ttl-lt 5 -j DROP", "1 answered", "1 answered"),
        ("-A PREROUTING -j TTL --ttl-set 5\n-A PREROUTING -m ttl ! --ttl-eq 5 -j DROP", "1 answered", "1 answered"),
        ("-A PREROUTING -m ttl --ttl-gt 200 -j DROP", "depends on PREROUTING 1 ttl", "depends on PREROUTING 1 ttl"),
        ("-A POSTROUTING -d 203.0.113.2 -j TTL --ttl-set 0", "1 answered", "1 answered"),
    ] {
        let setup = setup(with_rules(&mangle(rules)), false);
        let forwarded = setup.network.outcomes(&Flow::tcp(setup.client, at("203.0.113.2:80")));
        assert_eq!(in_words(forwarded).replace("other", "dropped"), through, "{rules}");
        assert_eq!(in_words(input(&setup)), itself, "{rules}");
    }
    let setup = setup(with_rules(&mangle("-A PREROUTING -j TTL --ttl-set 1")), false);
    let outcomes = setup.network.outcomes(&Flow::tcp(setup.client, at("203.0.113.2:80"))).unwrap();
    let verdict = render::verdict(&setup.network, outcomes.certain().unwrap());
    assert_eq!(
        verdict,
        "lost on node: the hop limit ends here, set by PREROUTING 1 (line 2): -A PREROUTING -j TTL --ttl-set 1"
    );
}

#[test]
fn a_changed_set_is_unknown() {
    for (rules, expected) in [
        ("-A INPUT -j SET --add-set SEEN src\n-A INPUT -m set --match-set SEEN src -j DROP", "depends on INPUT 2 set"),
        ("-A INPUT -m set --match-set SEEN src -j DROP\n-A INPUT -j SET --add-set SEEN src", "1 answered"),
        ("-A INPUT -j SET --del-set SEEN src\n-A INPUT -m set --match-set OTHER src -j DROP", "1 dropped"),
        ("-A INPUT -p udp -j SET --add-set OTHER src\n-A INPUT -m set --match-set OTHER src -j DROP", "1 dropped"),
    ] {
        let setup = setup(with_rules(&filter(rules)), false);
        assert_eq!(in_words(input(&setup)), expected, "{rules}");
    }
}

#[test]
fn too_many_unknown_facts_are_listed() {
    let rules: Vec<String> =
        (0..16).map(|bit| format!("-A INPUT -m time -j MARK --set-xmark 0x{:x}/0x0", 1 << bit)).collect();
    let setup = setup(with_rules(&filter(&rules.join("\n"))), false);
    let Err(NetworkError::Undecided(open)) = input(&setup) else { panic!() };
    assert_eq!(open.parts.len(), 16);
}

#[test]
fn missing_sets_are_errors_or_unknown() {
    let rules = filter("-A INPUT -m set --match-set NOBODY src -j DROP");
    let host = Host::builder("node").rules(Rules::read_any(Family::V4, &rules).unwrap());
    assert!(host.build().unwrap_err().to_string().contains("unknown set \"NOBODY\""));
    let with_rules = with_rules(&rules);
    let setup = setup(|host| with_rules(host).other_sets(), false);
    assert_eq!(in_words(input(&setup)), "depends on INPUT 1 set");
}

#[test]
fn a_fact_about_a_packet_has_one_answer() {
    for rules in [
        "-A OUTPUT -m owner --uid-owner 5 -j A\n-A A -m owner ! --uid-owner 5 -j DROP",
        "-A OUTPUT -m bpf --bytecode \"1,6 0 0 1\" -j RETURN\n-A OUTPUT -m bpf --bytecode \"1,6 0 0 1\" -j DROP",
    ] {
        let setup = setup(with_rules(&filter(rules)), false);
        let outcomes = setup.network.outcomes(&Flow::tcp(setup.node, at("203.0.113.2:80")));
        assert_eq!(in_words(outcomes), "1 answered; 1 open", "{rules}");
    }
}

#[test]
fn placeholder_interface_names_are_unknown() {
    for (rules, assumptions, expected) in [
        ("-A INPUT -i + -j DROP", "", "1 dropped"),
        ("-A INPUT ! -i lo -j DROP", "", "1 dropped"),
        ("-A INPUT -i lo -j DROP", "", "1 answered"),
        ("-A INPUT -i eth1 -j DROP", "", "1 answered"),
        ("-A INPUT -i ens3 -j DROP", "", "depends on INPUT 1 input-interface"),
        ("-A INPUT -i eth0 -j DROP", "", "depends on INPUT 1 input-interface"),
        ("-A INPUT -i cali+ -j DROP", "input-interface=no", "1 answered"),
        ("-A INPUT -i cali+ -j DROP", "input-interface=yes", "1 dropped"),
        ("-A OUTPUT -o ens3 -j DROP", "", "depends on OUTPUT 1 output-interface"),
        ("-A OUTPUT -o ens3 -j DROP", "output-interface=no", "1 answered"),
        ("-A INPUT -i ens3 -j A\n-A A ! -i ens3 -j DROP", "", "1 answered; 1 open"),
        ("-A INPUT -i ens3 -j A\n-A A -i ens4 -j DROP", "", "1 answered; 1 open"),
        ("-A INPUT -i ens+ -j A\n-A A -i cali+ -j DROP", "", "1 answered; 1 open"),
        ("-A INPUT -m physdev --physdev-in ens3 -j DROP", "", "1 answered"),
    ] {
        let setup = setup(assuming(&filter(rules), assumptions), true);
        assert_eq!(in_words(input(&setup)), expected, "{rules} {assumptions}");
    }
}

#[test]
fn unknown_nftables_rules_are_listed_together() {
    let nft = |rules: &str| {
        format!(
            "table ip t {{\n\tchain in {{\n\t\ttype filter hook input priority 0; policy accept;\n\t\t{rules}\n\t}}\n}}\n"
        )
    };
    for (rules, expected) in [
        ("numgen random mod 2 0 queue to 1\n\t\tmeta cpu 0 accept", "depends on in 1, in 2"),
        ("meta cpu 0 drop\n\t\tmeta cpu 1 ip protocol udp drop", "depends on in 1"),
        ("meta cpu 0 accept", "1 answered; 1 open"),
        ("meta cpu 0 counter\n\t\tdrop", "1 dropped; 1 open"),
        ("tcp dport 81 queue to 1", "1 answered"),
        ("iifname \"lo\" drop", "1 answered"),
        ("iif != \"lo\" accept", "1 answered"),
        ("iifname \"eth1\" drop", "1 answered"),
        ("iifname \"ens3\" drop", "depends on in 1 input-interface"),
        ("iifname . ip saddr { \"ens3\" . 192.0.2.2 } drop", "depends on in 1"),
    ] {
        let ruleset = Ruleset::read(&nft(rules)).unwrap();
        let setup = setup(|host| host.nft(ruleset), true);
        assert_eq!(in_words(input(&setup)), expected, "{rules}");
    }
    let ruleset = Ruleset::read(&nft("iifname \"ens3\" drop")).unwrap();
    let assumed = setup(|host| host.nft(ruleset).assume("input-interface=yes".parse().unwrap()), true);
    assert_eq!(in_words(input(&assumed)), "1 dropped");
}

#[test]
fn connections_are_looked_up_in_their_zone() {
    let states = "*filter\n-A INPUT -m conntrack --ctstate ESTABLISHED -j DROP\nCOMMIT\n";
    for (raw, established) in [
        ("", true),
        // The default zone is 0.
        ("-A PREROUTING -j CT --zone 5\n-A OUTPUT -j CT --zone 5\n", true),
        ("-A PREROUTING -j CT --zone-orig 5\n", true),
        ("-A PREROUTING -j CT --zone 5\n", false),
        ("-A PREROUTING -j CT --zone-reply 5\n", false),
        ("-A PREROUTING -j CT --zone-reply 5\n-A OUTPUT -j CT --zone 5\n", true),
        ("-A PREROUTING -j CT --helper ftp\n-A PREROUTING -j CT --zone 5\n", true),
        ("-A PREROUTING -j CT --zone 5\n-A PREROUTING -j CT --notrack\n-A OUTPUT -j CT --zone 5\n", true),
        ("-A PREROUTING -j CT --notrack\n-A PREROUTING -j CT --zone 5\n", false),
    ] {
        let rules = format!("*raw\n{raw}COMMIT\n{states}");
        let mut one = setup(with_rules(&rules), false);
        let first = one.network.first_packet(&Flow::tcp(one.client, at("192.0.2.1:80"))).unwrap();
        let mut send = |packet| one.network.send_packet(one.client, &packet, &mut Chance::seeded(1)).verdict;
        assert!(send(first.clone()).answered().is_some(), "{raw}");
        assert_eq!(matches!(send(first.later()), PacketVerdict::Dropped { .. }), established, "{raw}");
    }
}

#[test]
fn netmap_keeps_the_host_part() {
    let rules = "*nat\n-A PREROUTING -d 198.51.100.0/24 -j NETMAP --to 203.0.113.0/24\n\
                 -A POSTROUTING -s 192.0.2.0/24 -j NETMAP --to 203.0.113.128/25\nCOMMIT\n";
    let setup = setup(with_rules(rules), false);
    let outcomes = setup.network.outcomes(&Flow::tcp(setup.client, at("198.51.100.2:80"))).unwrap();
    let PacketVerdict::Unanswered { at: reached, saw, .. } = outcomes.certain().unwrap() else {
        panic!("{outcomes:?}");
    };
    assert_eq!((*reached, saw.ip()), (at("203.0.113.2:80"), ip("203.0.113.130")));
}

#[test]
fn connmark_shifts_marks() {
    for (rules, drops) in [
        ("-A PREROUTING -j CONNMARK --set-xmark 0x3/0xff --left-shift-mark 8\n", 0x300),
        (
            "-A PREROUTING -j MARK --set-xmark 0xff00/0xffffffff\n\
             -A PREROUTING -j CONNMARK --save-mark --nfmask 0xf000 --ctmask 0xffffffff --right-shift-mark 4\n",
            0xf00,
        ),
    ] {
        let all = |mark: u32| {
            format!("*mangle\n{rules}COMMIT\n*filter\n-A INPUT -m connmark --mark 0x{mark:x} -j DROP\nCOMMIT\n")
        };
        assert_eq!(in_words(input(&setup(with_rules(&all(drops)), false))), "1 dropped", "{rules}");
        assert_eq!(in_words(input(&setup(with_rules(&all(1)), false))), "1 answered", "{rules}");
    }
    let restore = "*mangle\n-A PREROUTING -j CONNMARK --set-xmark 0x3/0xffffffff\n\
                   -A PREROUTING -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xff --left-shift-mark 4\nCOMMIT\n\
                   *filter\n-A INPUT -m mark --mark 0x30 -j DROP\nCOMMIT\n";
    assert_eq!(in_words(input(&setup(with_rules(restore), false))), "1 dropped");
}
