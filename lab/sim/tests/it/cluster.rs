use std::time::Duration;

use crate::support::{Plan, at, id, ip, outcomes, say, tcp};
use svclab_sim::chance::Chance;
use svclab_sim::fraction::Fraction;
use svclab_sim::network::Flow;
use svclab_sim::render;

#[test]
fn every_caller_and_frontend() {
    let mut report = String::new();
    for (title, plan) in [("bridge", Plan::web()), ("point to point", Plan { point_to_point: true, ..Plan::web() })] {
        let network = plan.build();
        for from in ["pod-a", "pod-c", "node-a", "node-b", "client"] {
            for to in [
                "10.96.0.10:80",
                "172.18.0.2:30080",
                "10.96.0.66:80",
                "10.244.0.2:8080",
                "10.244.0.2:9",
                "172.18.0.2:22",
                "10.96.0.10:81",
            ] {
                report.push_str(&format!("{title}: {from} calls {to}\n"));
                report.push_str(&outcomes(&network, &tcp(&network, from, to)));
            }
        }
    }
    insta::assert_snapshot!(report);
}

#[test]
fn the_shares_are_uniform_to_one_in_a_billion() {
    let network = Plan::web().build();
    let all = network.outcomes(&tcp(&network, "client", "10.96.0.10:80")).unwrap();
    assert_eq!(all.outcomes.len(), 3);
    let third = Fraction::new(1, 3);
    for outcome in &all.outcomes {
        assert!(outcome.probability.within(&third, 1, 1_000_000_000), "{outcome:?}");
    }
    assert_eq!(all.probability(|_| true), Fraction::one());
    // The kernel's probability, 715,827,883 / 2^31, exceeds a third.
    assert_ne!(all.outcomes[0].probability, third);
}

#[test]
fn draws_agree_with_the_exact_shares() {
    let mut network = Plan::web().build();
    let mut chance = Chance::seeded(42);
    let mut seen = std::collections::BTreeMap::new();
    for port in 10_000..13_000 {
        let flow = tcp(&network, "client", "10.96.0.10:80").port(port);
        let journey = network.send(&flow, &mut chance).unwrap();
        *seen.entry(journey.verdict.answered().unwrap().0).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 3);
    assert!(seen.values().all(|count| (900..1100).contains(count)), "{seen:?}");
}

#[test]
fn a_connection_stays_with_its_endpoint() {
    let mut network = Plan::web().build();
    let mut chance = Chance::seeded(1);
    let flow = tcp(&network, "client", "10.96.0.10:80");
    let first = network.send(&flow, &mut chance).unwrap();
    let packet = network.first_packet(&flow).unwrap().later();
    for _ in 0..20 {
        let next = network.send_packet(flow.from, &packet, &mut chance);
        assert_eq!(next.verdict, first.verdict);
    }
    let all = network.packet_outcomes(flow.from, &packet).unwrap();
    assert_eq!(all.certain(), Some(&first.verdict));
    // After five days conntrack's entry expires.
    network.advance(Duration::from_secs(432_001));
    assert_eq!(network.packet_outcomes(flow.from, &packet).unwrap().outcomes.len(), 3);
}

#[test]
fn without_hairpin_mode_a_pod_cannot_reach_itself() {
    let network = Plan { hairpin: false, ..Plan::web() }.build();
    insta::assert_snapshot!(outcomes(&network, &tcp(&network, "pod-a", "10.96.0.10:80")), @r"
    ~33.333333% pod-b answers, saw 10.244.0.2
    ~33.333333% pod-c answers, saw 10.244.0.2
    ~33.333333% dropped by node-a: NoHairpin
    ");
}

#[test]
fn without_bridge_netfilter_replies_bypass_the_translation() {
    let mut plan = Plan::web();
    plan.sysctls.bridge_nf_call_iptables = false;
    let network = plan.build();
    insta::assert_snapshot!(outcomes(&network, &tcp(&network, "pod-a", "10.96.0.10:80")), @r"
    ~33.333333% pod-a answers, saw 10.244.0.1
    ~33.333333% pod-c answers, saw 10.244.0.2
    ~33.333333% pod-b answers in vain, saw 10.244.0.2: WrongSource { from: 10.244.0.3:8080 }
    ");
}

#[test]
fn loopback_needs_route_localnet() {
    let network = Plan::web().build();
    let flow = tcp(&network, "node-a", "127.0.0.1:30080");
    insta::assert_snapshot!(outcomes(&network, &flow), @r"
    ~33.333333% pod-a answers, saw 10.244.0.1
    ~33.333333% pod-b answers, saw 10.244.0.1
    ~33.333333% pod-c answers, saw 172.18.0.2
    ");
    let mut plan = Plan::web();
    plan.sysctls.route_localnet = false;
    let network = plan.build();
    insta::assert_snapshot!(outcomes(&network, &flow), @"1 dropped by node-a: Loopback");
}

#[test]
fn traces_print_as_text_and_tree() {
    let mut network = Plan::web().build();
    let flow = tcp(&network, "client", "172.18.0.2:30080");
    let journey = network.send(&flow, &mut Chance::seeded(3)).unwrap();
    insta::assert_snapshot!("one_way", render::journey(&journey));
    let network = Plan::web().build();
    let flow = tcp(&network, "pod-a", "10.96.0.10:80");
    insta::assert_snapshot!("tree", render::tree(&network.outcomes(&flow).unwrap()));
    let flow = tcp(&network, "client", "10.96.0.66:80");
    let rejected = network.outcomes(&flow).unwrap();
    insta::assert_snapshot!("rejected", render::journey(&rejected.ways[0].1));
}

#[test]
fn a_taken_source_port_is_replaced() {
    let mut plan = Plan::web();
    plan.rules = plan.rules.replace("-j MASQUERADE --random-fully", "-j MASQUERADE");
    let mut network = plan.build();
    let mut chance = Chance::seeded(5);
    let to = "172.18.0.2:30080";
    let mut saw = Vec::new();
    for from in ["client", "node-b"] {
        let flow = tcp(&network, from, to);
        let all = network.outcomes(&flow).unwrap();
        let pod_b = all.ways.iter().map(|(_, journey)| &journey.verdict);
        let pod = id(&network, "pod-b");
        saw.push(
            pod_b.filter(|verdict| verdict.answered().is_some_and(|(by, _)| by == pod)).cloned().collect::<Vec<_>>(),
        );
        while network.send(&flow, &mut chance).unwrap().verdict.answered().unwrap().0 != pod {
            network.forget(id(&network, "node-a"), |known| known.original.source == ip("172.18.0.100"));
        }
    }
    assert_ne!(saw[0], saw[1], "{saw:?}");
}

#[test]
fn udp_entries_expire_after_thirty_seconds() {
    let rules = "*nat\n-A PREROUTING -d 10.96.0.53/32 -p udp -m udp --dport 53 -j DNAT --to-destination 10.244.0.2:5353\nCOMMIT\n";
    let mut network = Plan::new(rules).build();
    let mut chance = Chance::seeded(1);
    let flow = Flow::udp(id(&network, "client"), at("10.96.0.53:53"));
    let verdict = network.send(&flow, &mut chance).unwrap().verdict;
    assert_eq!(say(&network, &verdict), "pod-a answers, saw 172.18.0.100");
    let node = id(&network, "node-a");
    assert_eq!(network.connections(node).len(), 1);
    network.advance(Duration::from_secs(31));
    let other = Flow::udp(id(&network, "client"), at("10.96.0.53:53")).port(1);
    network.send(&other, &mut chance).unwrap();
    assert_eq!(network.connections(node).len(), 1);
}

#[test]
fn masquerading_over_loopback_takes_another_interfaces_address() {
    let rules = "*nat\n\
        -A OUTPUT -d 10.96.0.22/32 -p tcp -m tcp --dport 22 -j DNAT --to-destination 172.18.0.2:22\n\
        -A POSTROUTING -p tcp -m tcp --dport 22 -j MASQUERADE\nCOMMIT\n";
    let network = Plan::new(rules).build();
    // 127.0.0.1 has host scope, so inet_select_addr takes an address of the next interface.
    assert_eq!(outcomes(&network, &tcp(&network, "node-a", "10.96.0.22:22")), "1 node-a answers, saw 172.18.0.2\n");
}

#[test]
fn icmp_errors_about_translated_packets_reach_the_sender() {
    // Nothing listens on the pod's port 9.
    let rules = "*nat\n\
        -A PREROUTING -d 10.96.0.9/32 -p udp -m udp --dport 53 -j DNAT --to-destination 10.244.0.2:9\n\
        -A POSTROUTING -d 10.244.0.2/32 -j MASQUERADE\nCOMMIT\n";
    let network = Plan::new(rules).build();
    let flow = Flow::udp(id(&network, "client"), at("10.96.0.9:53"));
    assert_eq!(outcomes(&network, &flow), "1 refused by pod-a at 10.244.0.2:9, delivered true\n");
}
