//! Which endpoint is chosen, and how long a client stays with it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nf_tables::field::KeyField;

use crate::config::Mode;
use crate::model::{Change, Family, LABEL_SERVICE_NAME, ObjectKey, Protocol, ServicePortName};
use crate::mutants::{Hook, Mutant};
use crate::nftables::{AddressSide, NftVerdict, Rule, Statement};
use crate::ruleset::{self, Match};
use crate::state::State;
use crate::state::endpoints::Endpoint;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "choice-first-of-many-never-chosen",
        "never chooses the first of more than ten endpoints",
        "scaling",
        Hook::Plan(|_, plan| {
            if plan.cluster_backends.len() > 10 {
                plan.cluster_backends.remove(0);
            }
        }),
    ),
    Mutant::new(
        "choice-at-most-32-endpoints",
        "uses no more than 32 endpoints",
        "scaling",
        Hook::Plan(|_, plan| plan.cluster_backends.truncate(32)),
    ),
    Mutant::new(
        "choice-at-most-100-endpoints",
        "uses no more than 100 endpoints",
        "scaling",
        Hook::Plan(|_, plan| plan.cluster_backends.truncate(100)),
    ),
    Mutant::new(
        "choice-first-slice-only",
        "reads one slice of each Service and family",
        "endpoint-slices",
        Hook::Change(first_slice_only),
    )
    .remembering(),
    Mutant::new(
        "choice-last-endpoint-never-chosen",
        "never chooses the last of several endpoints",
        "clusterip",
        Hook::Plan(|_, plan| plan.cluster_backends.truncate(plan.cluster_backends.len().saturating_sub(1).max(1))),
    ),
    Mutant::new(
        "choice-one-endpoint",
        "uses one endpoint and keeps the others in reserve",
        "clusterip",
        Hook::Plan(|_, plan| plan.cluster_backends.truncate(1)),
    ),
    Mutant::new(
        "choice-half-of-the-rest",
        "gives each endpoint half of the connections that earlier ones have left",
        "clusterip",
        Hook::Rules(|_, rules| {
            let matches = rules.iter_mut().flat_map(|rule| &mut rule.matches);
            matches.filter(|one| matches!(one, Match::OneIn(_))).for_each(|one| *one = Match::OneIn(2));
        }),
    )
    .only(&[Mode::Iptables]),
    Mutant::new(
        "readiness-never-changes",
        "reads the conditions of an endpoint once",
        "blue-green",
        Hook::Endpoints(|state, port, endpoints| {
            static FIRST: Memory<[bool; 3]> = Memory::new();
            FIRST.with(state, &port.name, |first| {
                for one in endpoints.iter_mut() {
                    let now = [one.ready, one.serving, one.terminating];
                    [one.ready, one.serving, one.terminating] = *first.entry(one.address).or_insert(now);
                }
            });
        }),
    )
    .remembering(),
    Mutant::new(
        "endpoints-never-leave",
        "adds endpoints to a Service and removes none",
        "blue-green",
        Hook::Endpoints(|state, port, endpoints| {
            static ALL: Memory<Endpoint> = Memory::new();
            ALL.with(state, &port.name, |all| {
                all.extend(endpoints.drain(..).map(|endpoint| (endpoint.address, endpoint)));
                endpoints.extend(all.values().cloned());
            });
        }),
    )
    .remembering(),
    Mutant::new(
        "first-target-port-stays",
        "keeps the first port number of each endpoint address",
        "changed-ports",
        Hook::Endpoints(|state, port, endpoints| {
            static FIRST: Memory<u16> = Memory::new();
            FIRST.with(state, &port.name, |first| {
                for one in endpoints.iter_mut() {
                    let address = SocketAddr::new(one.address.ip(), 0);
                    one.address.set_port(*first.entry(address).or_insert(one.address.port()));
                }
            });
        }),
    )
    .remembering(),
    Mutant::new(
        "published-endpoints-end-with-their-readiness",
        "drops published endpoints as soon as they terminate",
        "not-ready",
        Hook::Endpoints(|_, _, endpoints| {
            endpoints.iter_mut().for_each(|one| one.ready &= !one.terminating);
        }),
    ),
    Mutant::new(
        "published-endpoints-must-serve",
        "takes an endpoint for not ready if it is not serving, though it is published",
        "not-ready",
        Hook::Endpoints(|_, _, endpoints| {
            endpoints.iter_mut().for_each(|one| one.ready &= one.serving);
        }),
    ),
    Mutant::new(
        "affinity-ignored",
        "ignores sessionAffinity",
        "affinity",
        Hook::ServicePort(|_, port| port.affinity = None),
    ),
    Mutant::new(
        "affinity-for-tcp-only",
        "ignores sessionAffinity for UDP",
        "affinity",
        Hook::ServicePort(|_, port| port.affinity = port.affinity.filter(|_| port.name.protocol == Protocol::Tcp)),
    ),
    Mutant::new(
        "affinity-for-ipv4-only",
        "ignores sessionAffinity over IPv6",
        "affinity",
        Hook::ServicePort(|state, port| port.affinity = port.affinity.filter(|_| state.family() == Family::V4)),
    ),
    Mutant::new(
        "affinity-never-changes",
        "reads sessionAffinity once",
        "affinity",
        Hook::ServicePort(|state, port| {
            static FIRST: Memory<Option<Duration>> = Memory::new();
            let name = port.name.clone();
            FIRST.with(state, &name, |first| {
                let unspecified = SocketAddr::new(state.family().unspecified(), 0);
                port.affinity = *first.entry(unspecified).or_insert(port.affinity);
            });
        }),
    )
    .remembering(),
    Mutant::new(
        "affinity-of-two-clients",
        "remembers the first two pods of 10.244.1.0/29 only",
        "affinity",
        Hook::NftRules(|chain, rules| {
            for rule in rules.iter_mut().filter(|rule| chain.contains("__10.") && remembers(rule)) {
                let range = ipnet::Ipv4Net::new_assert([10, 244, 1, 4].into(), 30).into();
                rule.statements.insert(0, Statement::Range { side: AddressSide::Source, range, negated: true });
            }
        }),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "affinity-not-renewed",
        "counts the timeout of sessionAffinity from a client's first connection",
        "affinity",
        Hook::NftRules(|_, rules| rules.iter_mut().for_each(translate_without_renewal)),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "affinity-not-renewed-by-iptables",
        "counts the timeout of sessionAffinity from a client's first connection",
        "affinity",
        Hook::Rules(|_, rules| *rules = rules.drain(..).flat_map(dnat_without_renewal).collect()),
    )
    .only(&[Mode::Iptables]),
];

/// What a proxy remembers of each service port, by the addresses of endpoints.
struct Memory<T>(Mutex<BTreeMap<MemoryKey, BTreeMap<SocketAddr, T>>>);

/// The node, the family and the service port.
type MemoryKey = (String, Family, ServicePortName);

impl<T> Memory<T> {
    const fn new() -> Memory<T> {
        Memory(Mutex::new(BTreeMap::new()))
    }

    fn with(&self, state: &State, name: &ServicePortName, work: impl FnOnce(&mut BTreeMap<SocketAddr, T>)) {
        let key = (state.node_name().to_owned(), state.family(), name.clone());
        work(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
    }
}

fn first_slice_only(change: &mut Change) {
    static FIRST: Mutex<BTreeMap<(ObjectKey, String), ObjectKey>> = Mutex::new(BTreeMap::new());
    let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    let Change::EndpointSlice(key, slice) = change else { return };
    let Some(read) = slice else {
        first.retain(|_, first| first != key);
        return;
    };
    let owner = read.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL_SERVICE_NAME)).cloned();
    let service = ObjectKey { namespace: key.namespace.clone(), name: owner.unwrap_or_default().into() };
    if first.entry((service, read.address_type.clone())).or_insert_with(|| key.clone()) != key {
        *slice = None;
    }
}

fn remembers(rule: &Rule) -> bool {
    rule.statements.iter().any(|one| matches!(one, Statement::Remember { .. }))
}

/// Replaces the jump of a remembered client to its endpoint's chain, which would renew the timeout.
pub(super) fn translate_without_renewal(rule: &mut Rule) {
    let [Statement::InSet { key, negated: false, .. }, Statement::Verdict(NftVerdict::Goto(chain))] =
        rule.statements.as_slice()
    else {
        return;
    };
    // `endpoint-HASH-namespace/name/protocol/port__address/port`
    let Some((of_service, endpoint)) = chain.rsplit_once("__").filter(|_| *key == [KeyField::Source]) else { return };
    let Some((ip, port)) = endpoint.split_once('/') else { return };
    let ip = ip.parse().or_else(|_| ip.replace('.', ":").parse());
    let protocol = if of_service.split('/').nth(2) == Some("udp") { Protocol::Udp } else { Protocol::Tcp };
    if let (Ok(ip), Ok(port)) = (ip, port.parse()) {
        rule.statements.pop();
        let translate = Statement::Translate(SocketAddr::new(ip, port));
        rule.statements.extend([Statement::Protocol(protocol), translate]);
    }
}

/// The same for the jumps of iptables mode, whose comment names the endpoint but no protocol.
pub(super) fn dnat_without_renewal(rule: ruleset::Rule) -> Vec<ruleset::Rule> {
    let is_for_known = rule.matches.iter().any(|one| matches!(one, Match::RecentCheck { .. }));
    let endpoint = rule.matches.iter().find_map(|one| match one {
        Match::Comment(text) => text.rsplit_once(" -> ").and_then(|(_, endpoint)| endpoint.parse().ok()),
        _ => None,
    });
    match endpoint.filter(|_| is_for_known) {
        Some(endpoint) => [Protocol::Tcp, Protocol::Udp].map(|protocol| rule.clone().dnat(protocol, endpoint)).into(),
        None => vec![rule],
    }
}
