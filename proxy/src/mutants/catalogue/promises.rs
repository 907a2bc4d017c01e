//! Promises that no other part of the catalogue breaks: what the proxy reports, starts, ends, delays and remembers.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, Once};
use std::time::Duration;

use crate::config::{Conntrack, Mode};
use crate::model::{Batch, Change};
use crate::mutants::{Duty, Hook, Mutant};

const IPVS: &[Mode] = &[Mode::Ipvs];

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "promises-health-on-loopback-only",
        "answers /healthz on the node's loopback address only",
        "healthz-families",
        Hook::Config(|config| config.healthz_bind_address = Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 10256))),
    ),
    Mutant::new(
        "promises-mode-not-reported",
        "serves nothing at its metrics address",
        "node-settings",
        Hook::Config(|config| config.metrics_bind_address = None),
    ),
    Mutant::new(
        "promises-conntrack-timeouts-ignored",
        "leaves the kernel's timeouts of tracked connections",
        "node-settings",
        Hook::Config(|config| config.conntrack = kernels_timeouts()),
    ),
    Mutant::new(
        "promises-counters-start-over",
        "resets the counters of every rule at each change, as a proxy does that rewrites them all",
        "partial-sync",
        Hook::Batch(|_| {
            let _ = Command::new("iptables").args(["-t", "nat", "-Z"]).output();
        }),
    )
    .only(&[Mode::Iptables]),
    Mutant::new(
        "promises-compares-rules-all-the-time",
        "compares its rules with the kernel's a thousand times a second",
        "idle",
        Hook::Config(|config| config.sync_period = Duration::from_millis(1)),
    ),
    Mutant::new(
        "promises-odd-host-name-costs-the-node",
        "ignores a Node whose host name is invalid",
        "newer-values",
        Hook::Change(|change| {
            if has_odd_host_name(change)
                && let Change::Node(_, node) = change
            {
                *node = None;
            }
        }),
    ),
    Mutant::new(
        "promises-ends-with-odd-host-name",
        "ends if the Node's host name is invalid",
        "newer-values",
        Hook::Batch(|batch| {
            if batch.changes.iter().any(has_odd_host_name) {
                std::process::exit(1);
            }
        }),
    ),
    Mutant::new(
        "promises-connections-forgotten-at-the-start",
        "forgets the node's connections when it starts",
        "restart",
        Hook::Batch(forget_connections),
    ),
    Mutant::new(
        "promises-cleanup-leaves-everything",
        "removes nothing with --cleanup",
        "cleanup",
        Hook::Skips(Duty::Cleanup),
    ),
    Mutant::new(
        "promises-other-modes-rules-stay",
        "leaves the rules of the mode that it had before",
        "switch-to-nftables",
        Hook::Skips(Duty::CleanupAfterOtherMode),
    )
    .only(&[Mode::Nftables, Mode::Iptables]),
    Mutant::new(
        "promises-first-of-one-address",
        "uses the first of several endpoints of a slice that have one address, though it terminates",
        "reused-address",
        Hook::Change(first_of_one_address),
    ),
    Mutant::new(
        "promises-deleted-rules-stay-away",
        "restores nothing that another program deletes",
        "flush",
        Hook::Skips(Duty::Repair),
    ),
    Mutant::new(
        "promises-families-wait-for-each-other",
        "syncs no family while the other one waits for a command",
        "command-hangs",
        Hook::Skips(Duty::IndependentFamilies),
    )
    .only(&[Mode::Iptables]),
    Mutant::new(
        "promises-log-holds-up-changes",
        "waits for the reader of its log",
        "log-reader",
        Hook::Skips(Duty::LogQueue),
    ),
    Mutant::new(
        "promises-half-a-minute-between-syncs",
        "acts as if minSyncPeriod were half a minute",
        "busy-writer",
        Hook::Config(|config| config.min_sync_period = Duration::from_secs(30)),
    ),
    Mutant::new(
        "promises-refusing-endpoint-not-skipped",
        "resets the client if the first endpoint refuses, in place of asking the next one",
        "userspace-next-endpoint",
        Hook::MostEndpoints(1),
    )
    .only(&[Mode::Userspace]),
    Mutant::new(
        "promises-other-ports-of-addresses-open",
        "lets host programs answer on other ports of Services' addresses",
        "microvm/ipvs-host-listener",
        Hook::Rules(|chain, rules| {
            if chain == "KUBE-IPVS-FILTER" {
                rules.clear();
            }
        }),
    )
    .only(IPVS),
    Mutant::new(
        "promises-strict-arp-ignored",
        "ignores ipvs.strictARP",
        "microvm/ipvs-strict-arp",
        Hook::Config(|config| config.ipvs.strict_arp = false),
    )
    .only(IPVS),
    Mutant::new(
        "promises-scheduler-ignored",
        "ignores ipvs.scheduler",
        "microvm/ipvs-schedulers",
        Hook::Config(|config| config.ipvs.scheduler = "rr".to_owned()),
    )
    .only(IPVS),
    Mutant::new(
        "promises-connections-not-drained",
        "cuts the connections of an endpoint as soon as it terminates",
        "terminating",
        Hook::Config(|config| config.ipvs.drain_limit = Duration::ZERO),
    )
    .only(IPVS),
    Mutant::new(
        "promises-removed-endpoint-not-drained",
        "cuts the connections of an endpoint as soon as it is removed",
        "microvm/ipvs-drain",
        Hook::Config(|config| config.ipvs.drain_limit = Duration::ZERO),
    )
    .only(IPVS),
    Mutant::new(
        "promises-flowtable-ignored",
        "ignores nftables.flowtable",
        "microvm/flowtable",
        Hook::Config(|config| config.flowtable = false),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "promises-repeated-syn-lost",
        "drops a TCP connection's first packet if it is sent again",
        "microvm/loss-and-delay",
        Hook::TablesBeside(REPEATED_SYN_DROPPED),
    ),
    Mutant::new(
        "promises-reused-port-refused",
        "drops a new connection from a source port that the client used before",
        "microvm/ipvs-port-reuse",
        Hook::TablesBeside(REPEATED_SYN_DROPPED),
    )
    .only(IPVS),
    Mutant::new(
        "promises-second-datagram-lost",
        "drops the second datagram of a UDP socket",
        "microvm/dns-race",
        Hook::TablesBeside(SECOND_DATAGRAM_DROPPED),
    ),
];

const REPEATED_SYN_DROPPED: &str = "\
table inet mutant {
  set seen { type ipv4_addr . inet_service . ipv4_addr . inet_service; size 65535; flags dynamic; }
  chain prerouting {
    type filter hook prerouting priority -310;
    tcp flags & (syn | ack) == syn ip saddr . tcp sport . ip daddr . tcp dport @seen drop
    tcp flags & (syn | ack) == syn add @seen { ip saddr . tcp sport . ip daddr . tcp dport }
  }
}
";

const SECOND_DATAGRAM_DROPPED: &str = "\
table inet mutant {
  set seen { type ipv4_addr . inet_service . ipv4_addr; size 65535; flags dynamic; }
  chain prerouting {
    type filter hook prerouting priority -310;
    udp dport 53 ip saddr . udp sport . ip daddr @seen drop
    udp dport 53 add @seen { ip saddr . udp sport . ip daddr }
  }
}
";

fn kernels_timeouts() -> Conntrack {
    Conntrack {
        tcp_established: Duration::ZERO,
        tcp_close_wait: Duration::ZERO,
        udp: Duration::ZERO,
        udp_stream: Duration::ZERO,
        ..Conntrack::default()
    }
}

/// Whether the change is a Node without its host name: invalid ones are left out before.
fn has_odd_host_name(change: &Change) -> bool {
    let Change::Node(_, Some(node)) = change else { return false };
    let mut addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    !addresses.any(|address| address.type_ == "Hostname")
}

fn forget_connections(_: &mut Batch) {
    static START: Once = Once::new();
    START.call_once(|| {
        // Conntrack takes up no open connection then.
        let script = "echo 0 > /proc/sys/net/netfilter/nf_conntrack_tcp_loose; conntrack -F";
        // A mutant that cannot do so is no mutant, and no scenario notices it.
        let _ = Command::new("sh").args(["-c", script]).output();
    });
}

fn first_of_one_address(change: &mut Change) {
    let Change::EndpointSlice(_, Some(slice)) = change else { return };
    let mut seen = BTreeSet::new();
    let endpoints = Arc::make_mut(slice).endpoints.iter_mut();
    endpoints.for_each(|endpoints| endpoints.retain(|endpoint| seen.insert(endpoint.addresses.first().cloned())));
}
