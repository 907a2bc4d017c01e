use std::time::Duration;

use crate::support::{Plan, id, outcomes, say, tcp};
use svclab_sim::chance::Chance;
use svclab_sim::ipvs::VirtualServices;
use svclab_sim::network::Network;
use svclab_sim::render;

const SERVERS: [&str; 3] = ["10.244.0.2:8080", "10.244.0.3:8080", "10.244.1.2:8080"];

fn plan(scheduler: &str, weights: &[u32]) -> Plan {
    let mut services = String::new();
    for address in ["10.96.0.10:80", "172.18.0.2:30080"] {
        services.push_str(&format!("-A -t {address} -s {scheduler}\n"));
        // The kernel lists the latest server first.
        for (server, weight) in SERVERS.iter().zip(weights).rev() {
            services.push_str(&format!("-a -t {address} -r {server} -m -w {weight}\n"));
        }
    }
    Plan {
        sets: include_str!("../data/service-ipvs-sets.txt").to_owned(),
        services,
        virtual_addresses: vec!["10.96.0.10"],
        ..Plan::new(include_str!("../data/service-ipvs.txt"))
    }
}

#[test]
fn every_caller_and_frontend() {
    let mut report = String::new();
    for (title, plan) in [
        ("bridge", plan("rr", &[1, 1, 1])),
        ("point to point", Plan { point_to_point: true, ..plan("rr", &[1, 1, 1]) }),
    ] {
        let network = plan.build();
        for from in ["pod-a", "pod-c", "node-a", "client"] {
            for to in ["10.96.0.10:80", "172.18.0.2:30080", "10.96.0.10:81", "10.244.0.2:8080"] {
                report.push_str(&format!("{title}: {from} calls {to}\n"));
                report.push_str(&outcomes(&network, &tcp(&network, from, to)));
            }
        }
    }
    insta::assert_snapshot!(report);
}

#[test]
fn weights_are_shares_and_no_server_is_a_rejection() {
    let network = plan("wrr", &[3, 1, 0]).build();
    insta::assert_snapshot!(outcomes(&network, &tcp(&network, "client", "10.96.0.10:80")), @r"
    3/4 pod-a answers, saw 10.244.0.1
    1/4 pod-b answers, saw 10.244.0.1
    ");
    let network = plan("rr", &[]).build();
    insta::assert_snapshot!(outcomes(&network, &tcp(&network, "client", "10.96.0.10:80")), @"1 rejected by node-a with icmp-port-unreachable, delivered true");
}

fn calls(network: &mut Network, from: &str, ports: std::ops::Range<u16>) -> Vec<String> {
    let mut chance = Chance::seeded(9);
    let flow = tcp(network, from, "10.96.0.10:80");
    let one = |port| {
        let journey = network.send(&flow.port(port), &mut chance).unwrap();
        journey.verdict.answered().map_or("nobody".to_owned(), |(by, _)| network.host(by).name().to_owned())
    };
    ports.map(one).collect()
}

#[test]
fn round_robin_rotates() {
    let mut network = plan("rr", &[1, 1, 1]).build();
    assert_eq!(calls(&mut network, "client", 1..5), ["pod-a", "pod-b", "pod-c", "pod-a"]);
    let flow = tcp(&network, "client", "10.96.0.10:80").port(2);
    let later = network.first_packet(&flow).unwrap().later();
    let journey = network.send_packet(flow.from, &later, &mut Chance::seeded(1));
    assert!(say(&network, &journey.verdict).starts_with("pod-b answers"));
}

#[test]
fn persistence_keeps_the_server_until_the_timeout() {
    let mut network = plan("rr -p 60", &[1, 1, 1]).build();
    assert_eq!(calls(&mut network, "client", 1..4), ["pod-a", "pod-a", "pod-a"]);
    assert_eq!(calls(&mut network, "node-b", 1..3), ["pod-a", "pod-a"]);
    // Half-open connections expire after a minute, then their template.
    network.advance(Duration::from_secs(121));
    assert_eq!(calls(&mut network, "client", 10..12), ["pod-b", "pod-b"]);
}

#[test]
fn hashes_depend_on_the_client() {
    for scheduler in ["sh", "dh", "mh", "sh -b sh-port", "mh -b mh-port"] {
        let network = plan(scheduler, &[1, 1, 1]).build();
        let all = network.outcomes(&tcp(&network, "client", "10.96.0.10:80")).unwrap();
        assert!(all.certain().is_some_and(|verdict| verdict.answered().is_some()), "{scheduler}: {all:?}");
    }
    let mut network = plan("mh -b mh-port", &[1, 1, 1]).build();
    let mut seen = calls(&mut network, "client", 1000..1040);
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["pod-a", "pod-b", "pod-c"]);
}

#[test]
fn a_reused_port_is_rescheduled_after_a_reset() {
    let mut network = plan("rr", &[1, 1, 1]).build();
    let mut chance = Chance::seeded(1);
    let flow = tcp(&network, "client", "10.96.0.10:80");
    let first = network.first_packet(&flow).unwrap();
    let by = |network: &mut Network, packet: &svclab_sim::packet::Packet, chance: &mut Chance| {
        let verdict = network.send_packet(flow.from, packet, chance).verdict;
        say(network, &verdict).split(' ').next().unwrap().to_owned()
    };
    assert_eq!(by(&mut network, &first, &mut chance), "pod-a");
    assert_eq!(by(&mut network, &first.clone().later(), &mut chance), "pod-a");
    // A repeated SYN keeps the server.
    assert_eq!(by(&mut network, &first, &mut chance), "pod-a");
    let mut reset = first.clone().later();
    if let svclab_sim::packet::PacketBody::Tcp { flags, .. } = &mut reset.body {
        *flags = svclab_sim::packet::TcpFlags(svclab_sim::packet::TcpFlags::RST);
    }
    by(&mut network, &reset, &mut chance);
    assert_eq!(by(&mut network, &first, &mut chance), "pod-b");
}

#[test]
fn connections_to_a_removed_server_are_dropped() {
    let mut network = plan("rr", &[1, 1, 1]).build();
    assert_eq!(calls(&mut network, "client", 1..2), ["pod-a"]);
    let flow = tcp(&network, "client", "10.96.0.10:80").port(1);
    let later = network.first_packet(&flow).unwrap().later();
    let mut without = plan("rr", &[1, 1, 1]);
    without.services = without
        .services
        .lines()
        .filter(|line| !line.contains("-r 10.244.0.2:"))
        .map(|line| format!("{line}\n"))
        .collect();
    let node = without.build();
    let node_a = id(&network, "node-a");
    network.replace(node_a, node.host(node_a).clone());
    let journey = network.send_packet(flow.from, &later, &mut Chance::seeded(1));
    assert_eq!(say(&network, &journey.verdict), "dropped by node-a: ServerGone");
}

/// Adds virtual services that the simulator does not model to node-a, and says what becomes of a call.
fn beside(services: &str, rules: &str, to: &str) -> String {
    let mut plan = plan("rr", &[1, 1, 1]);
    plan.services.push_str(services);
    plan.rules.push_str(rules);
    plan.virtual_addresses.push("10.96.0.20");
    let network = plan.build();
    match network.outcomes(&tcp(&network, "pod-a", to)) {
        Ok(found) => say(&network, &found.outcomes[0].verdict),
        Err(error) => error.to_string(),
    }
}

#[test]
fn services_that_are_not_modelled_matter_only_where_reached() {
    let routed = "-A -t 10.96.0.20:443 -s rr\n-a -t 10.96.0.20:443 -r 10.244.0.3:443 -g -w 1\n";
    let undecided = |service: &str, what: &str| {
        format!("the outcome of the packet depends on unknown facts:\n  node-a: IPVS, {service}: {what}")
    };
    let marked = "*mangle\n-A PREROUTING -p tcp -m tcp --dport 443 -j MARK --set-xmark 0x5/0xffffffff\nCOMMIT\n";
    for (services, rules, to, expected) in [
        (
            routed,
            "",
            "10.96.0.20:443",
            undecided(
                "-t 10.96.0.20:443",
                "-r 10.244.0.3:443 -g forwards by routing or a tunnel, which is not modelled",
            ),
        ),
        (
            "-A -t 10.96.0.20:443 -s rr\n-a -t 10.96.0.20:443 -r 10.244.0.3:443 -m -w 1 -x 5 -y 2\n",
            "",
            "10.96.0.20:443",
            undecided("-t 10.96.0.20:443", "-y 2 is a lower threshold, which is not modelled"),
        ),
        (
            "-A -t 10.96.0.20:443 -s best --pe sip\n-a -t 10.96.0.20:443 -r 10.244.0.3:443 -m -w 1 --loud 3\n",
            "",
            "10.96.0.20:443",
            undecided("-t 10.96.0.20:443", "-s best --pe sip --loud 3 is not modelled"),
        ),
        (
            "-A -t 10.96.0.20:0 -s rr -p 60\n-a -t 10.96.0.20:0 -r 10.244.0.3:0 -m -w 1\n",
            "",
            "10.96.0.20:443",
            undecided("-t 10.96.0.20:0", "port 0 serves every port, which is not modelled"),
        ),
        (
            "-A -f 5 -s rr\n-a -f 5 -r 10.244.0.3:0 -i -w 1 --tun-type ipip\n",
            marked,
            "10.96.0.20:443",
            undecided("-f 5", "-f 5 serves marked packets, which is not modelled"),
        ),
    ] {
        assert_eq!(beside(services, rules, to), expected);
        assert_eq!(beside(services, rules, "10.96.0.10:80"), "pod-a answers, saw 10.244.0.1", "{services}");
        let read = VirtualServices::read(services).unwrap();
        assert_eq!(VirtualServices::read(&read.to_string()).unwrap(), read);
    }
}

#[test]
fn the_match_ipvs_finds_forwarded_requests() {
    for (rule, drops) in [
        ("--ipvs", true),
        ("! --ipvs", false),
        ("--vaddr 10.96.0.0/16 --vport 80 --vproto 6 --vmethod MASQ --vdir ORIGINAL", true),
        ("--vaddr 10.96.0.11/32", false),
        ("! --vaddr 10.96.0.10/32", false),
        ("--vport 81", false),
        ("! --vport 81", true),
        ("--vdir REPLY", false),
        ("--vmethod GATE", false),
        ("--vportctl 80", false),
        ("--vproto 17", false),
    ] {
        let rules = format!("*mangle\n-A POSTROUTING -m ipvs {rule} -j DROP\nCOMMIT\n");
        let found = beside("", &rules, "10.96.0.10:80");
        assert_eq!(found.starts_with("dropped by node-a"), drops, "{rule}: {found}");
    }
    // Answers carry the mark of IPVS, but are found in the other direction only.
    let answers = "*mangle\n-A POSTROUTING -s 10.96.0.10/32 -m ipvs --vaddr 10.96.0.10/32 -j DROP\nCOMMIT\n";
    assert_eq!(beside("", answers, "10.96.0.10:80"), "pod-a answers, saw 10.244.0.1");
}

#[test]
fn traces_print_the_scheduling() {
    let mut network = plan("rr", &[1, 1, 1]).build();
    let flow = tcp(&network, "node-a", "10.96.0.10:80");
    insta::assert_snapshot!(render::journey(&network.send(&flow, &mut Chance::seeded(1)).unwrap()));
}
