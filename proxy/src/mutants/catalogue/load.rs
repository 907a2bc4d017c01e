//! What costs: work while nothing happens, growth, limits of rates and numbers, large clusters.

use std::fmt::Write as _;
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tracing::info;

use crate::config::Mode;
use crate::kernel::command;
use crate::mutants::{Hook, Mutant};
use crate::ruleset::Match;

const IPTABLES: &[Mode] = &[Mode::Iptables];
/// Relays answer ICMP errors and resets themselves.
const FORWARDING: &[Mode] = &[Mode::Iptables, Mode::Nftables, Mode::Ipvs];

const SECOND: Duration = Duration::from_secs(1);

/// A mutant that does `work` beside everything else, from its first sync on.
const fn idle(id: &'static str, does: &'static str, hook: fn(bool) -> Duration) -> Mutant {
    Mutant::new(id, does, "idle", Hook::Delay(hook))
}

/// Calls `work` again and again on a thread of its own.
fn again(pause: Duration, mut work: impl FnMut() + Send + 'static) -> Duration {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        thread::spawn(move || {
            loop {
                thread::sleep(pause);
                work();
            }
        });
    });
    Duration::ZERO
}

const fn limit(id: &'static str, does: &'static str, tables: &'static str) -> Mutant {
    Mutant::new(id, does, "many-connections", Hook::TablesBeside(tables))
}

const fn silent(id: &'static str, does: &'static str, tables: &'static str) -> Mutant {
    Mutant::new(id, does, "endpoint-refuses", Hook::TablesBeside(tables)).only(FORWARDING)
}

/// A table with 20,000 elements whose timeouts the kernel checks again and again.
fn costly_set() -> Duration {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let mut elements = String::new();
        for number in 0..20_000 {
            let _ = write!(elements, "10.{}.{}.1,", 100 + number / 250, number % 250);
        }
        let text = format!(
            "table ip mutant {{ set clients {{ type ipv4_addr; flags timeout; timeout 10h; gc-interval 10ms; \
             elements = {{ {elements} }}; }}; }}"
        );
        let written = command::run("nft", &["-f", "-"], Some(&text), Duration::from_secs(60));
        info!(?written, "a set whose elements expire");
    });
    Duration::ZERO
}

pub(super) const MUTANTS: &[Mutant] = &[
    idle("load-computes", "computes for a part of every second while nothing happens", |_| {
        again(Duration::from_millis(50), || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(4) {
                std::hint::spin_loop();
            }
        })
    }),
    idle("load-runs-commands", "lists all rules by a command several times a second while nothing happens", |_| {
        again(Duration::from_millis(50), || drop(Command::new("iptables-save").output()))
    }),
    idle("load-logs", "writes a log line every second while nothing happens", |_| {
        again(SECOND, || info!("nothing has changed"))
    }),
    idle("load-memory-grows", "takes a megabyte every second while nothing happens, and gives none back", |_| {
        again(SECOND, || std::mem::forget(vec![1_u8; 1 << 20]))
    }),
    idle("load-files-grow", "opens a file every second while nothing happens, and closes none", |_| {
        again(SECOND, || std::mem::forget(std::fs::File::open("/proc/self/stat")))
    }),
    idle("load-threads-grow", "starts a thread every second while nothing happens, which never ends", |_| {
        again(SECOND, || {
            thread::spawn(|| {
                loop {
                    thread::park();
                }
            });
        })
    }),
    idle("load-ends", "ends when nothing has happened for a while", |_| {
        static SYNCS: AtomicU64 = AtomicU64::new(0);
        let own = SYNCS.fetch_add(1, Ordering::Relaxed) + 1;
        thread::spawn(move || {
            thread::sleep(Duration::from_secs(8));
            if SYNCS.load(Ordering::Relaxed) == own {
                std::process::exit(0);
            }
        });
        Duration::ZERO
    }),
    Mutant::new(
        "load-kernel-collects",
        "has the kernel check the timeouts of thousands of elements all the time, which costs the proxy nothing",
        "microvm/idle-minute",
        Hook::Delay(|_| costly_set()),
    ),
    limit(
        "load-flows-limited",
        "admits no more than a hundred new UDP flows a second",
        "table inet mutant { chain in { type filter hook prerouting priority -150;
           ct state new meta l4proto udp limit rate over 100/second burst 50 packets drop; }; }",
    ),
    limit(
        "load-flows-limited-per-client",
        "admits no more than a hundred new UDP flows a second of each client",
        "table inet mutant {
           set clients { type ipv4_addr; flags dynamic,timeout; timeout 1m; size 65535; }
           chain in { type filter hook prerouting priority -150;
             ct state new meta l4proto udp add @clients { ip saddr limit rate over 100/second burst 50 packets } drop; }; }",
    ),
    limit(
        "load-flows-limited-outside",
        "admits no more than a hundred new UDP flows a second from outside",
        "table inet mutant { chain in { type filter hook prerouting priority -150;
           ct state new meta l4proto udp ip saddr 172.18.0.0/24 limit rate over 100/second burst 50 packets drop; }; }",
    ),
    limit(
        "load-flows-limited-over-ipv6",
        "admits no more than a hundred new UDP flows a second over IPv6",
        "table inet mutant { chain in { type filter hook prerouting priority -150;
           ct state new meta nfproto ipv6 meta l4proto udp limit rate over 100/second burst 50 packets drop; }; }",
    ),
    limit(
        "load-connections-limited",
        "admits no more than twenty new TCP connections a second",
        "table inet mutant { chain in { type filter hook prerouting priority -150;
           ct state new meta l4proto tcp ip daddr != 127.0.0.0/8 limit rate over 20/second burst 50 packets drop; }; }",
    ),
    limit(
        "load-connections-limited-outside",
        "admits no more than twenty new TCP connections a second from outside",
        "table inet mutant { chain in { type filter hook prerouting priority -150;
           ct state new meta l4proto tcp ip saddr 172.18.0.0/24 limit rate over 20/second burst 50 packets drop; }; }",
    ),
    limit(
        "load-own-connections-limited",
        "admits no more than twenty new TCP connections a second of the node itself",
        "table inet mutant { chain out { type filter hook output priority -150;
           ct state new meta l4proto tcp ip daddr 10.96.0.0/16 limit rate over 20/second burst 50 packets drop; }; }",
    ),
    limit(
        "load-few-source-ports",
        "masquerades clients outside with a few hundred source ports",
        "table inet mutant { chain post { type nat hook postrouting priority 90;
           ct status dnat ip saddr 172.18.0.0/24 meta l4proto { tcp, udp } masquerade to :61000-61249; }; }",
    ),
    limit(
        "load-few-source-ports-for-connections",
        "masquerades TCP connections from outside with sixteen source ports",
        "table inet mutant { chain post { type nat hook postrouting priority 90;
           ct status dnat ip saddr 172.18.0.0/24 meta l4proto tcp masquerade to :61000-61015; }; }",
    ),
    limit(
        "load-few-source-ports-over-ipv6",
        "masquerades clients outside over IPv6 with a few hundred source ports",
        "table inet mutant { chain post { type nat hook postrouting priority 90;
           ct status dnat ip6 saddr fd00:172:18::/64 meta l4proto { tcp, udp } masquerade to :61000-61249; }; }",
    ),
    silent(
        "load-no-port-unreachable",
        "drops the ICMP errors of endpoints on whose port nothing listens",
        "table inet mutant { chain forward { type filter hook forward priority 0;
           icmp type destination-unreachable icmp code port-unreachable drop; }; }",
    ),
    silent(
        "load-no-port-unreachable-over-ipv6",
        "drops the ICMPv6 errors of endpoints on whose port nothing listens",
        "table inet mutant { chain forward { type filter hook forward priority 0;
           icmpv6 type destination-unreachable drop; }; }",
    ),
    silent(
        "load-no-port-unreachable-for-clients-outside",
        "drops ICMP errors of endpoints to clients outside",
        "table inet mutant { chain post { type filter hook postrouting priority 200;
           ip daddr 172.18.0.100-172.18.0.199 icmp type destination-unreachable drop; }; }",
    ),
    silent(
        "load-no-port-unreachable-for-the-node",
        "drops ICMP errors of endpoints to the node itself",
        "table inet mutant { chain in { type filter hook input priority 0;
           icmp type destination-unreachable ct state related drop; }; }",
    ),
    silent(
        "load-no-resets",
        "drops resets of endpoints on whose port nothing listens",
        "table inet mutant { chain forward { type filter hook forward priority 0;
           tcp flags & rst == rst tcp sport 9 drop; }; }",
    ),
    Mutant::new(
        "load-large-cluster-is-slow",
        "takes fifteen seconds more for each change where there are hundreds of Services",
        "microvm/many-services",
        Hook::Pending(|state, _| {
            if state.service_ports().count() > 300 {
                thread::sleep(Duration::from_secs(15));
            }
        }),
    ),
    Mutant::new(
        "load-at-most-256-services",
        "serves no more than 256 Services",
        "microvm/many-services",
        Hook::Plan(|input, plan| {
            if input.state.service_ports().take(256).all(|port| port.name != plan.name) {
                plan.cluster_backends.clear();
            }
        }),
    ),
    Mutant::new(
        "load-55-to-45",
        "gives one of two endpoints 55 of 100 connections",
        "udp",
        Hook::Rules(|chain, rules| {
            let is_jump = |index: usize| rules.get(index).is_some_and(|rule| rule.matches.contains(&Match::OneIn(2)));
            let Some(first) = (0..rules.len()).find(|index| is_jump(*index)) else { return };
            if chain.starts_with("KUBE-SVC-")
                && let Some(mut more) = rules.get(first + 1).cloned()
            {
                more.matches.push(Match::OneIn(10));
                rules.insert(first, more);
            }
        }),
    )
    .only(IPTABLES),
];
