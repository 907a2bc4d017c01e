//! What a proxy does to packets beside translating their addresses.

use crate::config::Mode;
use crate::model::{Family, Protocol};
use crate::mutants::{Hook, Mutant};
use crate::nftables::Statement;
use crate::ruleset::{Match, Rule, RuleTarget};

/// The modes whose nodes forward packets; a relay receives them and sends others.
const FORWARDING: &[Mode] = &[Mode::Iptables, Mode::Nftables, Mode::Ipvs];
/// The modes that forward without the hook INPUT.
const PAST_INPUT: &[Mode] = &[Mode::Iptables, Mode::Nftables];
const IPTABLES_RULES: &[Mode] = &[Mode::Iptables, Mode::Ipvs];

const fn beside(id: &'static str, does: &'static str, scenario: &'static str, tables: &'static str) -> Mutant {
    Mutant::new(id, does, scenario, Hook::TablesBeside(tables))
}

fn targets(rules: &mut [Rule], of: impl Fn(&RuleTarget) -> bool, to: &RuleTarget) {
    rules.iter_mut().filter(|rule| of(&rule.target)).for_each(|rule| rule.target = to.clone());
}

pub(super) const MUTANTS: &[Mutant] = &[
    beside(
        "packets-large-segments-lost",
        "loses TCP packets of more than 1,000 bytes",
        "large-payloads",
        "table inet mutant { chain out { type filter hook postrouting priority 200;
           oifname != lo meta l4proto tcp meta length > 1000 drop; }; }",
    ),
    beside(
        "packets-large-answers-lost",
        "loses answers of more than 1,000 bytes in one packet",
        "large-payloads",
        "table inet mutant { chain out { type filter hook postrouting priority 200;
           oifname != lo ct direction reply meta length > 1000 drop; }; }",
    ),
    beside(
        "packets-fragments-lost",
        "loses fragments of IPv4",
        "large-payloads",
        "table inet mutant { chain in { type filter hook prerouting priority -450; ip frag-off & 0x3fff != 0 drop; }; }",
    ),
    beside(
        "packets-fragments-lost-ipv6",
        "loses fragments of IPv6",
        "large-payloads",
        "table inet mutant { chain in { type filter hook prerouting priority -450; exthdr frag exists drop; }; }",
    ),
    beside(
        "packets-large-datagrams-lost",
        "loses UDP datagrams of more than 4,096 bytes",
        "large-payloads",
        "table inet mutant { chain in { type filter hook prerouting priority -150;
           udp dport != 8472 udp length > 4096 drop; }; }",
    ),
    beside(
        "packets-fragmentation-needed-lost",
        "loses the ICMP error that names a smaller MTU",
        "large-payloads",
        "table inet mutant { chain out { type filter hook postrouting priority 200;
           icmp type destination-unreachable icmp code frag-needed drop; }; }",
    )
    .only(FORWARDING),
    beside(
        "packets-too-big-lost",
        "loses the ICMPv6 error that names a smaller MTU",
        "large-payloads",
        "table inet mutant { chain out { type filter hook postrouting priority 200;
           icmpv6 type packet-too-big drop; }; }",
    )
    .only(FORWARDING),
    beside(
        "packets-dscp-cleared",
        "clears the DSCP of IPv4 packets",
        "packet-fields",
        "table inet mutant { chain out { type filter hook postrouting priority 200; ip dscp set cs0; }; }",
    )
    .only(FORWARDING),
    beside(
        "packets-dscp-cleared-ipv6",
        "clears the DSCP of IPv6 packets",
        "packet-fields",
        "table inet mutant { chain out { type filter hook postrouting priority 200; ip6 dscp set cs0; }; }",
    )
    .only(FORWARDING),
    beside(
        "packets-dscp-of-datagrams-cleared",
        "clears the DSCP of UDP datagrams",
        "packet-fields",
        "table inet mutant { chain out { type filter hook postrouting priority 200;
           meta l4proto udp ip dscp set cs0; }; }",
    )
    .only(FORWARDING),
    beside(
        "packets-dscp-of-masqueraded-cleared",
        "clears the DSCP of packets that it masquerades",
        "packet-fields",
        "table inet mutant { chain out { type filter hook postrouting priority 90;
           meta mark & 0x4000 != 0 ip dscp set cs0; meta mark & 0x4000 != 0 ip6 dscp set cs0; }; }",
    )
    .only(FORWARDING),
    beside(
        "packets-dscp-given",
        "gives every packet the DSCP of expedited forwarding",
        "packet-fields",
        "table inet mutant { chain out { type filter hook postrouting priority 200; ip dscp set ef; }; }",
    )
    .only(FORWARDING),
    beside(
        "packets-sent-again-dropped",
        "drops a connection's first packet if the client sends it again",
        "microvm/loss-and-delay",
        "table inet mutant {
           set seen { type ipv4_addr . inet_service . ipv4_addr . inet_service; flags dynamic,timeout; timeout 5m; size 65535; }
           chain in { type filter hook prerouting priority -150;
             tcp flags & (syn | ack) == syn add @seen { ip saddr . tcp sport . ip daddr . tcp dport
               limit rate over 1/hour burst 1 packets } drop; }; }",
    ),
    beside(
        "packets-segments-clamped",
        "reduces the segment size of IPv4 connections to 536 bytes",
        "packet-fields",
        "table inet mutant { chain through { type filter hook postrouting priority 100;
           ip version 4 tcp flags & syn == syn tcp option maxseg size set 536; }; }",
    ),
    beside(
        "packets-segments-clamped-ipv6",
        "reduces the segment size of IPv6 connections to 1,220 bytes",
        "packet-fields",
        "table inet mutant { chain through { type filter hook postrouting priority 100;
           ip6 version 6 tcp flags & syn == syn tcp option maxseg size set 1220; }; }",
    ),
    Mutant::new(
        "packets-mark-left",
        "leaves its masquerade mark on packets that it has masqueraded",
        "packet-fields",
        Hook::Rules(|chain, rules| {
            if chain == "KUBE-POSTROUTING" {
                rules.retain(|rule| !matches!(rule.target, RuleTarget::Mark { .. }));
            }
        }),
    )
    .only(IPTABLES_RULES),
    Mutant::new(
        "packets-mark-left-nftables",
        "leaves its masquerade mark on packets that it has masqueraded",
        "packet-fields",
        Hook::NftRules(|_, rules| {
            for rule in rules {
                rule.statements.retain(|statement| !matches!(statement, Statement::Unmark(_)));
            }
        }),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "packets-mark-whole",
        "sets the whole mark instead of its own bit",
        "packet-fields",
        Hook::Rules(|chain, rules| {
            if chain == "KUBE-MARK-MASQ" {
                for rule in rules {
                    if let RuleTarget::Mark { mask, .. } = &mut rule.target {
                        *mask = u32::MAX;
                    }
                }
            }
        }),
    )
    .only(IPTABLES_RULES),
    beside(
        "packets-mark-cleared",
        "clears the whole mark of packets that it has translated",
        "packet-fields",
        "table inet mutant { chain out { type filter hook postrouting priority 140;
           ct status dnat meta mark set 0; }; }",
    )
    .only(FORWARDING),
    beside(
        "packets-any-mark-masqueraded",
        "masquerades packets that another program has marked",
        "packet-fields",
        "table inet mutant { chain nat { type nat hook postrouting priority 90; meta mark != 0 masquerade; }; }",
    )
    .only(FORWARDING),
    beside(
        "packets-one-port-for-all",
        "masquerades every client to one port",
        "same-source-port",
        "table inet mutant { chain nat { type nat hook postrouting priority 90;
           meta mark & 0x4000 != 0 meta l4proto { tcp, udp } masquerade to :33333; }; }",
    )
    .only(FORWARDING),
    Mutant::new(
        "packets-port-kept",
        "masquerades without drawing a port",
        "same-source-port",
        Hook::Rules(|_, rules| {
            let kept = RuleTarget::Masquerade { random_fully: false };
            targets(rules, |target| matches!(target, RuleTarget::Masquerade { .. }), &kept);
        }),
    )
    .only(IPTABLES_RULES),
    beside(
        "packets-port-kept-nftables",
        "masquerades without drawing a port",
        "same-source-port",
        "table inet mutant { chain nat { type nat hook postrouting priority 90;
           meta mark & 0x4000 != 0 masquerade; }; }",
    )
    .only(&[Mode::Nftables]),
    beside(
        "packets-own-untracked",
        "does not track the connections that the node itself opens, but those to Services",
        "strict-firewall",
        "table inet mutant { chain own { type filter hook output priority -300;
           oifname lo accept; ip daddr 10.96.0.0/16 accept; ip6 daddr fd00:10:96::/112 accept;
           tcp flags & (syn | ack) == syn notrack; }; }",
    ),
    Mutant::new(
        "packets-health-check-behind-input",
        "leaves health check node ports to INPUT's policy",
        "strict-firewall",
        Hook::Rules(|_, rules| {
            let is_health =
                |one: &Match| matches!(one, Match::Comment(text) if text.ends_with("health check node port"));
            rules.retain(|rule| !rule.matches.iter().any(is_health));
        }),
    )
    .only(&[Mode::Iptables]),
    Mutant::new(
        "packets-forward-policy",
        "leaves the packets that it masquerades to FORWARD's policy",
        "strict-firewall",
        Hook::Rules(|chain, rules| {
            if chain == "KUBE-FORWARD" {
                rules.retain(|rule| !rule.matches.iter().any(|one| matches!(one, Match::Mark(_))));
            }
        }),
    )
    .only(&[Mode::Iptables]),
    Mutant::new(
        "packets-forward-policy-for-answers",
        "leaves answers to FORWARD's policy",
        "strict-firewall",
        Hook::Rules(|chain, rules| {
            if chain == "KUBE-FORWARD" {
                let is_answer = |rule: &Rule| rule.matches.iter().any(|one| matches!(one, Match::Conntrack(_)));
                rules.retain(|rule| rule.target != RuleTarget::Accept || !is_answer(rule));
            }
        }),
    )
    .only(&[Mode::Iptables]),
    beside(
        "packets-node-port-of-the-uplink",
        "serves node ports only at addresses of the interface that a packet arrives by",
        "uplink-without-address",
        "table inet mutant { chain in { type filter hook prerouting priority -150;
           th dport 30000-32767 fib daddr type local fib daddr . iif type != local drop; }; }",
    ),
    beside(
        "packets-no-refusal-of-datagrams",
        "answers a datagram to a Service without endpoints by nothing",
        "no-endpoints",
        "table inet mutant { chain out { type filter hook postrouting priority 200;
           icmp type destination-unreachable icmp code port-unreachable @th,136,8 17 drop; }; }",
    ),
    Mutant::new(
        "packets-reset-for-datagrams",
        "rejects by a TCP reset, so that datagrams to a Service without endpoints get no answer",
        "no-endpoints",
        Hook::Rules(|_, rules| {
            let of_udp = |rule: &&mut Rule| rule.protocol == Some(Protocol::Udp);
            for rule in rules.iter_mut().filter(of_udp) {
                targets(
                    std::slice::from_mut(rule),
                    |target| matches!(target, RuleTarget::Reject(_)),
                    &RuleTarget::Drop,
                );
            }
        }),
    )
    .only(&[Mode::Iptables]),
    Mutant::new(
        "packets-sctp-ipv4-only",
        "serves SCTP over IPv4 only",
        "sctp",
        Hook::Endpoints(|state, port, endpoints| {
            if port.name.protocol == Protocol::Sctp && state.family() == Family::V6 {
                endpoints.clear();
            }
        }),
    )
    .only(FORWARDING),
    Mutant::new(
        "packets-connections-forgotten",
        "lets connection tracking forget a connection that was silent for two seconds",
        "node-settings",
        Hook::Config(|config| config.conntrack.tcp_established = std::time::Duration::from_secs(2)),
    )
    .only(PAST_INPUT),
    beside(
        "packets-old-connections-dropped",
        "drops connections that are three seconds old",
        "idle",
        "table inet mutant {
           set young { typeof ct id; flags dynamic,timeout; timeout 3s; size 65535; }
           chain in { type filter hook prerouting priority -150;
             ct state new add @young { ct id }; ct state established iifname != lo ct id != @young drop; }; }",
    )
    .only(PAST_INPUT),
];
