//! Which conntrack entries are deleted.

use std::net::IpAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::config::Mode;
use crate::habits::Habit;
use crate::model::{Flow, Protocol};
use crate::mutants::{Hook, Mutant};

/// In the other modes the relays' or IPVS' own tables decide.
const TRACKED: &[Mode] = &[Mode::Iptables, Mode::Nftables];

/// The first number of the default node port range.
const NODE_PORTS: u16 = 30_000;

const fn flows(id: &'static str, does: &'static str, scenario: &'static str, hook: Hook) -> Mutant {
    Mutant::new(id, does, scenario, hook).only(TRACKED)
}

/// Whether the flow goes to an external address, as far as an address shows.
fn is_external(flow: &Flow) -> bool {
    matches!(flow.destination.ip(), IpAddr::V4(address) if !address.is_private())
}

fn is_to_node_port(flow: &Flow) -> bool {
    flow.destination.port() >= NODE_PORTS
}

pub(super) const MUTANTS: &[Mutant] = &[
    flows("flows-none-deleted", "keeps every stale UDP flow", "udp-stale", Hook::Stale(|_, _| false)),
    flows(
        "flows-all-deleted",
        "deletes every UDP flow when it deletes stale ones, live ones too",
        "udp-flows",
        Hook::Stale(|filter, flow| flow.protocol == Protocol::Udp || filter.is_stale(flow)),
    ),
    flows(
        "flows-tcp-killed",
        "deletes TCP flows by the rule for UDP flows: those to an endpoint that is not ready",
        "udp-flows",
        Hook::Stale(|filter, flow| filter.is_stale(&Flow { protocol: Protocol::Udp, ..*flow })),
    ),
    flows(
        "flows-to-node-ports-kept",
        "keeps stale flows to node ports",
        "udp-stale",
        Hook::Stale(|filter, flow| !is_to_node_port(flow) && filter.is_stale(flow)),
    ),
    flows(
        "flows-to-external-addresses-kept",
        "keeps stale flows to external addresses",
        "udp-flows",
        Hook::Stale(|filter, flow| !is_external(flow) && filter.is_stale(flow)),
    ),
    flows(
        "flows-to-cluster-ips-kept",
        "keeps stale flows to cluster IPs",
        "udp-stale",
        Hook::Stale(|filter, flow| (is_external(flow) || is_to_node_port(flow)) && filter.is_stale(flow)),
    ),
    flows(
        "flows-from-before-kept",
        "keeps flows that began before the Service had endpoints",
        "udp-flows",
        Hook::Stale(|filter, flow| flow.translated && filter.is_stale(flow)),
    ),
    flows(
        "flows-to-removed-endpoints-kept",
        "deletes only flows that began before the Service",
        "udp-stale",
        Hook::Stale(|filter, flow| !flow.translated && filter.is_stale(flow)),
    ),
    flows(
        "flows-of-ipv6-kept",
        "keeps stale flows of IPv6",
        "udp-flows",
        Hook::Stale(|filter, flow| flow.destination.is_ipv4() && filter.is_stale(flow)),
    ),
    flows(
        "flows-to-another-target-port-kept",
        "compares the addresses of endpoints and not their ports: flows to a former target port stay",
        "udp-stale",
        Hook::Stale(|filter, flow| {
            let is_endpoint = |ip| filter.servers_of(flow).is_some_and(|all| all.iter().any(|one| one.ip() == ip));
            filter.is_stale(flow) && !is_endpoint(flow.server.ip())
        }),
    ),
    flows(
        "flows-of-deleted-services-kept",
        "keeps the flows of a deleted Service, and of an address that a Service no longer has",
        "udp-stale",
        Hook::Stale(|filter, flow| filter.servers_of(flow).is_some() && filter.is_stale(flow)),
    ),
    flows(
        "flows-without-endpoints-kept",
        "keeps the flows of a Service that has lost its last endpoint",
        "udp-flows",
        Hook::Stale(|filter, flow| {
            let is_empty = filter.servers_of(flow).is_some_and(std::collections::BTreeSet::is_empty);
            !is_empty && filter.is_stale(flow)
        }),
    ),
    flows(
        "flows-of-other-hosts-deleted",
        "takes every flow to the number of a node port for its own, also to another host",
        "udp-stale",
        Hook::Stale(|filter, flow| is_to_node_port(flow) || filter.is_stale(flow)),
    ),
    flows(
        "flows-every-other-kept",
        "deletes every other stale flow",
        "udp-flows",
        Hook::Stale(|filter, flow| {
            static IS_DELETED: AtomicBool = AtomicBool::new(false);
            filter.is_stale(flow) && IS_DELETED.fetch_not(Ordering::Relaxed)
        }),
    ),
    flows(
        "flows-of-the-node-kept",
        "keeps stale flows of clients on the node's own network",
        "udp-flows",
        Hook::Stale(|filter, flow| !filter.is_of_node(flow.client) && filter.is_stale(flow)),
    ),
    flows(
        "flows-from-before-the-start-kept",
        "keeps flows that became stale while no proxy ran",
        "udp-flows",
        Hook::Stale(|filter, flow| {
            static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
            STARTED.elapsed() > Duration::from_millis(500) && filter.is_stale(flow)
        }),
    ),
    flows(
        "flows-to-terminating-endpoints-deleted",
        "deletes UDP flows to an endpoint that terminates and still serves",
        "udp-stale",
        Hook::Habit(Habit::FlowsNeedReadiness),
    ),
    flows(
        "flows-to-unready-endpoints-kept",
        "keeps UDP flows to an endpoint that is not ready",
        "udp-flows",
        Hook::Habit(Habit::FlowsNeedPresence),
    ),
];
