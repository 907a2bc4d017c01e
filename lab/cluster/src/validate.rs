use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use svclab_spec::{ClusterSpec, Cni, PodSpec};

use super::ClusterError;

pub(super) fn gateway(range: &IpNet) -> Option<IpAddr> {
    match range {
        IpNet::V4(v4) => Some(u32::from(v4.network()).checked_add(1)?).map(|bits| IpAddr::V4(bits.into())),
        IpNet::V6(v6) => Some(u128::from(v6.network()).checked_add(1)?).map(|bits| IpAddr::V6(bits.into())),
    }
}

pub(super) fn range_for(ranges: &[IpNet], address: IpAddr) -> Option<&IpNet> {
    ranges.iter().find(|range| range.addr().is_ipv4() == address.is_ipv4())
}

pub(super) fn address_for(addresses: &[IpAddr], other: IpAddr) -> Option<IpAddr> {
    addresses.iter().copied().find(|address| address.is_ipv4() == other.is_ipv4())
}

pub(super) fn cluster(spec: &ClusterSpec) -> Result<(), ClusterError> {
    let mut seen = ClaimedResources::default();
    ranges(spec)?;
    if spec.overlay && !spec.second_network.is_empty() {
        return Err(ClusterError::invalid("the second network", "cannot carry pod traffic in addition to an overlay"));
    }
    for node in &spec.nodes {
        let item = format!("node {}", node.name);
        seen.name(&item, &node.name)?;
        one_per_family(&item, "address", node.addresses.iter().copied())?;
        if node.addresses.is_empty() {
            return Err(ClusterError::invalid(item, "has no address"));
        }
        for address in node.addresses.iter().chain(&node.extra_addresses) {
            seen.address(&item, *address)?;
            inside(&item, *address, &spec.node_network, "the node network")?;
        }
        one_per_family(&item, "pod range", node.pod_cidrs.iter().map(IpNet::addr))?;
        for range in &node.pod_cidrs {
            seen.pod_range(&item, *range)?;
            if address_for(&node.addresses, range.addr()).is_none() {
                let problem = format!("pod range {range} is of a family that the node has no address of");
                return Err(ClusterError::invalid(item, problem));
            }
            if !spec.cluster_cidrs.iter().any(|all| all.contains(range)) {
                let problem = format!("pod range {range} is outside the cluster's pod ranges");
                return Err(ClusterError::invalid(item, problem));
            }
        }
    }
    let clients = spec.clients.iter();
    let outside = clients.map(|c| (format!("client {}", c.name), &c.addresses));
    let balancer = spec.load_balancer.iter();
    let balancer = balancer.map(|lb| ("load balancer".to_owned(), &lb.addresses));
    for (item, addresses) in outside.chain(balancer) {
        seen.name(&item, &item)?;
        one_per_family(&item, "address", addresses.iter().copied())?;
        for address in addresses {
            seen.address(&item, *address)?;
            inside(&item, *address, &spec.node_network, "the node network")?;
        }
    }
    for pod in &spec.pods {
        pod_of(spec, pod, &mut seen)?;
    }
    Ok(())
}

fn ranges(spec: &ClusterSpec) -> Result<(), ClusterError> {
    // Only service ranges and pod ranges may overlap, as in clusters whose administrators chose them badly.
    let (pods, services) = ("the cluster's pod ranges", "the service ranges");
    let kinds = [
        ("the node network", &spec.node_network),
        ("the second network", &spec.second_network),
        (services, &spec.service_cidrs),
        (pods, &spec.cluster_cidrs),
    ];
    for (index, (kind, ranges)) in kinds.iter().enumerate() {
        one_per_family(kind, "range", ranges.iter().map(IpNet::addr))?;
        for (other, others) in kinds[index + 1..].iter().filter(|(other, _)| (*kind, *other) != (services, pods)) {
            let clash = ranges.iter().find_map(|range| {
                let hit = others.iter().find(|o| overlap(range, o))?;
                Some(format!("{range} overlaps {hit} of {other}"))
            });
            if let Some(problem) = clash {
                return Err(ClusterError::invalid(*kind, problem));
            }
        }
    }
    Ok(())
}

fn pod_of(spec: &ClusterSpec, pod: &PodSpec, seen: &mut ClaimedResources) -> Result<(), ClusterError> {
    let item = format!("pod {}/{}", pod.namespace, pod.name);
    let fail = |problem: String| Err(ClusterError::invalid(&item, problem));
    seen.name(&item, &item)?;
    let Some(node) = spec.nodes.iter().find(|node| node.name == pod.node) else {
        return fail(format!("there is no node {}", pod.node));
    };
    if pod.addresses.is_empty() {
        return fail("has no address".to_owned());
    }
    one_per_family(&item, "address", pod.addresses.iter().copied())?;
    for address in &pod.addresses {
        if pod.host_network {
            if !node.addresses.contains(address) {
                return fail(format!("is on the host network, but {address} is not an address of node {}", pod.node));
            }
            continue;
        }
        seen.address(&item, *address)?;
        let Some(range) = range_for(&node.pod_cidrs, *address).filter(|r| r.contains(address)) else {
            return fail(format!("address {address} is outside the pod ranges of node {}", pod.node));
        };
        let network = *address == range.network();
        let reserved = spec.cni != Cni::PointToPoint && gateway(range) == Some(*address);
        if network || reserved {
            return fail(format!("address {address} of range {range} is reserved for the node"));
        }
    }
    for (index, port) in pod.ports.iter().enumerate() {
        if port.port == 0 {
            return fail("port 0 cannot be listened on".to_owned());
        }
        let owner = if pod.host_network { format!("node {}", pod.node) } else { item.clone() };
        let what = format!("{:?} port {}", port.protocol, port.port);
        if pod.ports[..index].contains(port) || !seen.ports.insert((owner.clone(), what.clone())) {
            return fail(format!("{what} is already used on {owner}"));
        }
    }
    Ok(())
}

fn one_per_family(item: &str, what: &str, addresses: impl Iterator<Item = IpAddr>) -> Result<(), ClusterError> {
    let mut families = BTreeSet::new();
    for address in addresses {
        if !families.insert(address.is_ipv4()) {
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            return Err(ClusterError::invalid(item, format!("has a second {family} {what}, {address}")));
        }
    }
    Ok(())
}

fn inside(item: &str, address: IpAddr, ranges: &[IpNet], name: &str) -> Result<(), ClusterError> {
    if ranges.iter().any(|range| range.contains(&address)) {
        return Ok(());
    }
    Err(ClusterError::invalid(item, format!("address {address} is outside {name}")))
}

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

#[derive(Default)]
struct ClaimedResources {
    names: BTreeSet<String>,
    addresses: BTreeMap<IpAddr, String>,
    pod_ranges: Vec<(IpNet, String)>,
    ports: BTreeSet<(String, String)>,
}

impl ClaimedResources {
    fn name(&mut self, item: &str, name: &str) -> Result<(), ClusterError> {
        if self.names.insert(name.to_owned()) {
            return Ok(());
        }
        Err(ClusterError::invalid(item, "the name is used twice"))
    }

    fn address(&mut self, item: &str, address: IpAddr) -> Result<(), ClusterError> {
        match self.addresses.insert(address, item.to_owned()) {
            None => Ok(()),
            Some(owner) => Err(ClusterError::invalid(item, format!("address {address} already belongs to {owner}"))),
        }
    }

    fn pod_range(&mut self, item: &str, range: IpNet) -> Result<(), ClusterError> {
        if let Some((other, owner)) = self.pod_ranges.iter().find(|(other, _)| overlap(other, &range)) {
            let problem = format!("pod range {range} overlaps {other} of {owner}");
            return Err(ClusterError::invalid(item, problem));
        }
        self.pod_ranges.push((range, item.to_owned()));
        Ok(())
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
