//! Which service port a destination belongs to, and which node's proxy decides.

use std::net::IpAddr;

use crate::address::Family;
use crate::arrival;
use crate::modes;
use crate::nodeport::{self, Accepts};
use crate::question::{PacketSource, Question};
use crate::rules::{Reasons, Rule};
use crate::service::{self, FrontendKind, ServicePort};
use crate::world::{Objects, World};

/// What a destination is.
#[derive(Debug)]
pub(crate) enum Destination<'a> {
    /// A service port's, by this kind of address, decided at this node.
    Service { port: &'a ServicePort, kind: FrontendKind, node: &'a str },
    /// More than one's, and nothing says whose.
    Shared,
    /// Nobody's, but on a service's address that is the node's own.
    OtherPortOfVip,
    /// Nobody's, but on a cluster IP, where the mode shuts them.
    OtherPortOfClusterIp,
    /// No service's, in a range that cluster IPs come from, where the mode shuts them.
    UnusedClusterIp,
    /// A loopback address, from elsewhere.
    Martian,
    /// None of that.
    Nothing,
    /// A node port at an address about which the documentation contradicts what proxies do.
    Unclear,
}

/// Looks the destination up among `ports`, which are of its family.
pub(crate) fn find<'a>(
    objects: &Objects,
    world: &'a World,
    ports: &'a [ServicePort],
    question: &'a Question,
    reasons: &mut Reasons,
) -> Destination<'a> {
    let to = question.to.ip();
    let Some(home) = arrival::home(world, &question.from) else { return Destination::Nothing };
    let outside = matches!(question.from, PacketSource::Outside { .. } | PacketSource::LoadBalancer { .. });
    if to.is_loopback() && !arrival::is_node(world, &question.from) {
        // A pod's loopback is the pod's; nobody else's packets for 127.0.0.1 are to be believed.
        return if outside { Destination::Martian } else { Destination::Nothing };
    }
    let speaks = |port: &&ServicePort| port.name.protocol == question.protocol;
    let fixed = ports
        .iter()
        .filter(speaks)
        .filter(|port| port.port == question.to.port())
        .flat_map(|port| port.addresses().filter(|(_, address)| *address == to).map(move |(kind, _)| (port, kind)));
    // A node's address belongs to that node: what others send there is decided there.
    let owner = if to.is_loopback() { Some(home) } else { world.owner(to).map(|node| node.name.as_str()) };
    let node_ports = ports.iter().filter(speaks).filter(|port| port.node_port == Some(question.to.port()));
    let mut claims: Vec<(&ServicePort, FrontendKind)> = fixed.collect();
    for port in node_ports {
        let Some(owner) = owner else { break };
        match nodeport::accepts(objects, world, owner, to, reasons) {
            Accepts::Yes => claims.push((port, FrontendKind::NodePort)),
            Accepts::No => {}
            Accepts::Unclear => return Destination::Unclear,
        }
    }
    let claims = best(claims, question, reasons);
    let semantics = modes::semantics(&world.proxy);
    match claims.as_slice() {
        [] if semantics.binds_addresses && is_vip(ports, to) => Destination::OtherPortOfVip,
        [] if semantics.shuts_cluster_ips && ports.iter().any(|port| port.cluster_ip == to) => {
            Destination::OtherPortOfClusterIp
        }
        [] if semantics.shuts_cluster_ips && objects.is_in_service_cidr(to) => {
            // Another proxy's service may have it, which this proxy does not watch: nothing is promised.
            let of_another = objects.services.iter().any(|service| service::has_cluster_ip(service, to));
            if of_another { Destination::Unclear } else { Destination::UnusedClusterIp }
        }
        [] => Destination::Nothing,
        [(port, kind), others @ ..] if others.iter().all(|other| same((port, *kind), *other)) => {
            reasons.add(kind.rule(), format!("{} is {}", question.to, port.name));
            let elsewhere = *kind == FrontendKind::NodePort || outside;
            let node = owner.filter(|_| elsewhere).unwrap_or(home);
            Destination::Service { port, kind: *kind, node }
        }
        [(one, _), .., (other, _)] => {
            reasons.add(Rule::Undecided, format!("{} is claimed by {} and {}", question.to, one.name, other.name));
            Destination::Shared
        }
        [_] => Destination::Nothing,
    }
}

/// The claims of the one service port whose claim is better than that of every other one. Where one's own address meets
/// another's node port they stay as they are.
fn best<'a>(
    claims: Vec<(&'a ServicePort, FrontendKind)>,
    question: &Question,
    reasons: &mut Reasons,
) -> Vec<(&'a ServicePort, FrontendKind)> {
    let of_node = |kind: FrontendKind| kind == FrontendKind::NodePort;
    if claims.iter().any(|(_, kind)| of_node(*kind)) && claims.iter().any(|(_, kind)| !of_node(*kind)) {
        return claims;
    }
    let order = |(port, kind): &(&ServicePort, FrontendKind)| (*kind != FrontendKind::ClusterIp, seniority(port));
    let Some(winner) = claims.iter().min_by_key(|claim| order(claim)).map(|(port, _)| *port) else { return claims };
    for (loser, _) in claims.iter().filter(|(port, _)| !std::ptr::eq(*port, winner)) {
        reasons.add(Rule::Shared, format!("{} is {}, not {}", question.to, winner.name, loser.name));
    }
    claims.into_iter().filter(|(port, _)| std::ptr::eq(*port, winner)).collect()
}

/// Sorts what is older before what is younger; what does not say its age is youngest, and names decide where ages do not.
pub(crate) fn seniority(port: &ServicePort) -> impl Ord + use<> {
    let created = port.created.as_ref().map(|created| created.0);
    (created.is_none(), created, port.name.clone())
}

/// Whether two claims come to the same: one service port, whose source ranges do not depend on the address.
fn same(one: (&ServicePort, FrontendKind), other: (&ServicePort, FrontendKind)) -> bool {
    let inside = |kind: FrontendKind| kind == FrontendKind::ClusterIp;
    std::ptr::eq(one.0, other.0)
        && (one.1 == other.1 || (inside(one.1) == inside(other.1) && one.0.source_ranges.is_empty()))
}

fn is_vip(ports: &[ServicePort], address: IpAddr) -> bool {
    ports.iter().any(|port| port.addresses().any(|(_, own)| own == address))
}

/// Whether `address` is some service's, so that a node of a mode that binds them calls it from itself.
pub(crate) fn is_bound(ports: &[ServicePort], address: IpAddr) -> bool {
    ports.iter().any(|port| port.family == Family::of(address)) && is_vip(ports, address)
}
