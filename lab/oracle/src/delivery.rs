use std::collections::BTreeSet;

use crate::arrival::ServicePacket;
use crate::endpoint::Endpoint;
use crate::masquerade;
use crate::modes::{AffinityScope, Balancing};
use crate::promise::{Backend, Delivery, PromisedAffinity, PromisedReply, Share};
use crate::rules::{Reasons, Rule};
use crate::settings::LoadBalancing;
use crate::world::{Objects, World};

pub(crate) fn deliver(
    objects: &Objects,
    world: &World,
    case: &ServicePacket<'_>,
    chosen: &[&Endpoint],
    reasons: &mut Reasons,
) -> Delivery {
    let ServicePacket { port, arrival, .. } = case;
    let balancing = balancing(world, case);
    let even = balancing.is_even();
    let rule = match balancing {
        Balancing::Consistent { .. } => Rule::ConsistentHash,
        _ if even => Rule::Even,
        _ => Rule::Scheduled,
    };
    reasons.add(rule, format!("{} of them", chosen.len()));
    let (masqueraded, rule) = masquerade::for_all_endpoints(case, world.proxy.masquerade_all);
    reasons.add(rule, arrival.source.to_string());
    let share = even.then(|| Share { of: u32::try_from(chosen.len()).unwrap_or(u32::MAX) });
    let mut backends = Vec::with_capacity(chosen.len());
    for endpoint in chosen {
        let hairpin = !masqueraded && masquerade::is_hairpin(endpoint, arrival);
        if hairpin {
            reasons.add(Rule::Hairpin, endpoint.address.to_string());
        }
        let exempt = masqueraded && masquerade::is_exempt(world, case, endpoint);
        if exempt {
            reasons.add(Rule::NoMasquerade, endpoint.address.to_string());
        }
        let mut backend = backend(world, case, endpoint, masqueraded && !exempt || hairpin, share);
        if backend.masqueraded {
            backend.sees = masquerade::sources(objects, world, case, reasons);
        }
        if matches!(backend.reply, PromisedReply::AsymmetricReply(_)) {
            reasons.add(Rule::AsymmetricReply, format!("{} past {}", endpoint.address, arrival.node));
        }
        backends.push(backend);
    }
    let affinity = port.affinity.map(|timeout| PromisedAffinity { timeout, scope: affinity_scope(case) });
    if let Some(affinity) = affinity {
        reasons.add(Rule::Affinity, arrival.source.to_string());
        if affinity.scope == AffinityScope::Service {
            reasons.add(Rule::AffinityAcrossPorts, arrival.source.to_string());
        }
    }
    Delivery {
        service: port.name.clone(),
        frontend: case.kind,
        node: arrival.node.to_owned(),
        client: arrival.source,
        backends,
        balancing,
        affinity,
    }
}

/// docs/svcproxy.md, Affinity across ports: a mode whose affinity is per address, and a port with two endpoints at one
/// address, ignore the annotation.
fn affinity_scope(case: &ServicePacket<'_>) -> AffinityScope {
    let ServicePacket { port, semantics, .. } = case;
    match semantics.affinity {
        AffinityScope::ServicePort if port.affinity_across_ports && !port.has_shared_address() => {
            AffinityScope::Service
        }
        scope => scope,
    }
}

/// Relays take turns, and affinity remembers what was drawn.
fn balancing(world: &World, case: &ServicePacket<'_>) -> Balancing {
    if case.semantics.relays || case.port.affinity.is_some() {
        return case.semantics.balancing;
    }
    match world.proxy.balancing(case.port.load_balancing) {
        LoadBalancing::Random => case.semantics.balancing,
        LoadBalancing::Maglev => Balancing::Consistent { with_port: false },
        LoadBalancing::MaglevPort => Balancing::Consistent { with_port: true },
    }
}

fn backend(
    world: &World,
    case: &ServicePacket<'_>,
    endpoint: &Endpoint,
    masqueraded: bool,
    share: Option<Share>,
) -> Backend {
    let arrival = &case.arrival;
    let pod = world.pod_at(endpoint.address.ip());
    let on = pod.map(|pod| pod.node.as_str()).or(endpoint.node.as_deref());
    // POSTROUTING does not masquerade a packet from outside to a local endpoint. In userspace mode the node opens the
    // connection.
    let ends_here = world.node(arrival.node).is_some_and(|node| node.has(endpoint.address.ip()));
    let masqueraded = masqueraded && (!ends_here || arrival.by_node || case.semantics.relays);
    // Whether the reply passes the node that translated the request.
    let returns = masqueraded || arrival.from_this_node || on == Some(arrival.node);
    Backend {
        address: endpoint.address,
        pod: endpoint.pod.clone().or_else(|| pod.map(|pod| pod.name.clone())),
        share,
        masqueraded,
        sees: BTreeSet::from([arrival.source]),
        reply: if returns { PromisedReply::From(case.to) } else { PromisedReply::AsymmetricReply(endpoint.address) },
    }
}
