//! The service port of a destination, and the node whose proxy decides.

use std::net::IpAddr;

use crate::arrival;
use crate::modes;
use crate::nodeport::{self, NodePortAcceptance};
use crate::port_index::PortIndex;
use crate::promise::PromisedVerdict;
use crate::question::{PacketSource, Question};
use crate::rules::{Reasons, Rule};
use crate::service::{self, FrontendKind, ServicePort};
use crate::world::{Objects, World};

#[derive(Debug)]
pub(crate) enum DestinationKind<'a> {
    Service {
        port: &'a ServicePort,
        kind: FrontendKind,
        node: &'a str,
    },
    /// Several service ports claim the destination, and no documentation says which one gets the packet.
    Shared,
    Closed(Rule, PromisedVerdict),
    Nothing,
    /// The documentation contradicts kube-proxy, the destination is a cluster IP of another proxy's service, or
    /// kube-proxy's modes differ there and the proxy is in none of them.
    Unclear,
}

pub(crate) fn find<'a>(
    objects: &Objects,
    world: &'a World,
    ports: &'a PortIndex,
    question: &'a Question,
    reasons: &mut Reasons,
) -> DestinationKind<'a> {
    let to = question.to.ip();
    let Some(home) = arrival::node_of(world, &question.from) else { return DestinationKind::Nothing };
    let outside = matches!(question.from, PacketSource::Outside { .. } | PacketSource::LoadBalancer { .. });
    if to.is_loopback() && !arrival::is_on_node_network(world, &question.from) {
        // A packet for 127.0.0.1 from another machine is a martian.
        return if outside {
            DestinationKind::Closed(Rule::Martian, PromisedVerdict::Drop)
        } else {
            DestinationKind::Nothing
        };
    }
    let speaks = |port: &&ServicePort| port.name.protocol == question.protocol;
    let fixed = ports
        .at(to)
        .filter(speaks)
        .filter(|port| port.port == question.to.port())
        .flat_map(|port| port.addresses().filter(|(_, address)| *address == to).map(move |(kind, _)| (port, kind)));
    // The node that owns the destination address decides about node ports.
    let owner = if to.is_loopback() { Some(home) } else { world.owner(to).map(|node| node.name.as_str()) };
    let node_ports = ports.with_node_port(question.to.port()).filter(speaks);
    let mut claims: Vec<(&ServicePort, FrontendKind)> = fixed.collect();
    for port in node_ports {
        let Some(owner) = owner else { break };
        match nodeport::accepts(objects, world, owner, to, reasons) {
            NodePortAcceptance::Yes => claims.push((port, FrontendKind::NodePort)),
            NodePortAcceptance::No => {}
            NodePortAcceptance::Unclear => return DestinationKind::Unclear,
        }
    }
    let claims = winning_claims(claims, question, reasons);
    let semantics = modes::semantics(&world.proxy);
    match claims.as_slice() {
        [] if semantics.leaves_differences_open && (is_bound_address(ports, to) || objects.is_in_service_cidr(to)) => {
            DestinationKind::Unclear
        }
        [] if semantics.binds_addresses && is_bound_address(ports, to) => {
            DestinationKind::Closed(Rule::OtherPortOfVip, PromisedVerdict::Reject)
        }
        [] if semantics.closes_cluster_ips && ports.at(to).any(|port| port.cluster_ip == to) => {
            DestinationKind::Closed(Rule::OtherPortOfClusterIp, PromisedVerdict::Reject)
        }
        [] if semantics.closes_cluster_ips && objects.is_in_service_cidr(to) => {
            let of_another = objects.services.iter().any(|service| service::has_cluster_ip(service, to));
            if of_another {
                DestinationKind::Unclear
            } else {
                DestinationKind::Closed(Rule::UnusedClusterIp, PromisedVerdict::Drop)
            }
        }
        [] => DestinationKind::Nothing,
        [(port, kind), others @ ..] if others.iter().all(|other| equivalent((port, *kind), *other)) => {
            reasons.add(kind.rule(), format!("{} is {}", question.to, port.name));
            explain_protocol(ports, question, reasons);
            let elsewhere = *kind == FrontendKind::NodePort || outside;
            let node = owner.filter(|_| elsewhere).unwrap_or(home);
            DestinationKind::Service { port, kind: *kind, node }
        }
        [(one, _), .., (other, _)] => {
            reasons.add(Rule::Undecided, format!("{} is claimed by {} and {}", question.to, one.name, other.name));
            DestinationKind::Shared
        }
        [_] => DestinationKind::Nothing,
    }
}

/// Adds the rule on protocols if a service has the called address and number under another protocol.
pub(crate) fn explain_protocol(ports: &PortIndex, question: &Question, reasons: &mut Reasons) {
    let fixed = ports.at(question.to.ip()).filter(|port| port.port == question.to.port());
    let mut others = fixed.filter(|port| port.name.protocol != question.protocol);
    if let Some(other) = others.next() {
        reasons.add(Rule::Protocols, format!("{} has the number under {}", other.name, other.name.protocol));
    }
}

/// Returns all claims if a node port conflicts with a service address, because no documentation decides.
fn winning_claims<'a>(
    claims: Vec<(&'a ServicePort, FrontendKind)>,
    question: &Question,
    reasons: &mut Reasons,
) -> Vec<(&'a ServicePort, FrontendKind)> {
    let of_node = |kind: FrontendKind| kind == FrontendKind::NodePort;
    if claims.iter().any(|(_, kind)| of_node(*kind)) && claims.iter().any(|(_, kind)| !of_node(*kind)) {
        return claims;
    }
    let order = |(port, kind): &(&ServicePort, FrontendKind)| (*kind != FrontendKind::ClusterIp, age_order(port));
    let Some(winner) = claims.iter().min_by_key(|claim| order(claim)).map(|(port, _)| *port) else { return claims };
    for (loser, _) in claims.iter().filter(|(port, _)| !std::ptr::eq(*port, winner)) {
        reasons.add(Rule::Shared, format!("{} is {}, not {}", question.to, winner.name, loser.name));
    }
    claims.into_iter().filter(|(port, _)| std::ptr::eq(*port, winner)).collect()
}

/// Orders by age, then by name; a service without creation time is youngest.
pub(crate) fn age_order(port: &ServicePort) -> impl Ord + use<> {
    let created = port.created.as_ref().map(|created| created.0);
    (created.is_none(), created, port.name.clone())
}

/// Whether both claims are of one service port, without source ranges that differ.
fn equivalent(one: (&ServicePort, FrontendKind), other: (&ServicePort, FrontendKind)) -> bool {
    let inside = |kind: FrontendKind| kind == FrontendKind::ClusterIp;
    let unrestricted = one.0.source_ranges.is_empty() && one.0.annotated_ranges.is_none();
    std::ptr::eq(one.0, other.0) && (one.1 == other.1 || (inside(one.1) == inside(other.1) && unrestricted))
}

/// Whether modes that bind service addresses bind `address` and use it as source of the node's calls.
pub(crate) fn is_bound_address(ports: &PortIndex, address: IpAddr) -> bool {
    ports.at(address).next().is_some()
}
