use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::sets::SetId;
use crate::config::NodeAddresses;
use crate::kernel::ipset::SetMember;
use crate::kernel::ipvs::{FLAG_SCHED2, ServerKey, ServerSpec};
use crate::model::Protocol;
use crate::plan::{
    AllowedSources, BackendSet, ExternalFrontends, FrontendVerdict, Masquerade, NodePlan, NodePortScope,
    ServicePortPlan,
};

/// The claim of a Service's address or of a node port. If both need the same virtual server on a node's address, the
/// Service's address takes precedence, as in other modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerClaim {
    Address,
    NodePort,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredServer {
    pub spec: ServerSpec,
    /// Sorted. Without destinations, the kernel refuses packets with ICMP port unreachable.
    pub destinations: Vec<SocketAddr>,
    /// Sorted destinations that keep SCTP associations and get no new ones. TCP connections stay with any destination,
    /// UDP flows only with `destinations`.
    pub keeps: Vec<SocketAddr>,
    pub right: ServerClaim,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpvsServiceObjects {
    pub servers: BTreeMap<ServerKey, DesiredServer>,
    pub members: BTreeSet<(SetId, SetMember)>,
    pub addresses: BTreeSet<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpvsContext {
    pub node: NodePlan,
    pub node_ports: Vec<IpAddr>,
    /// Addresses on other devices, which are not bound to `kube-ipvs0`.
    pub local: BTreeSet<IpAddr>,
    pub scheduler: String,
}

impl IpvsContext {
    pub fn new(node: NodePlan, addresses: &NodeAddresses, scheduler: &str) -> IpvsContext {
        let of_family = |ip: &&IpAddr| crate::model::Family::of(ip) == node.family;
        let local: BTreeSet<IpAddr> = addresses.local.iter().filter(of_family).copied().collect();
        // A virtual server on a loopback address has no effect: its destinations cannot reply.
        let scope: Vec<IpAddr> = match &node.node_ports {
            NodePortScope::EveryLocalAddress { .. } => local.iter().copied().filter(|ip| !is_link_local(ip)).collect(),
            NodePortScope::Addresses(addresses) => addresses.clone(),
        };
        let node_ports = scope.into_iter().filter(|ip| !ip.is_loopback()).collect();
        IpvsContext { node, node_ports, local, scheduler: scheduler.to_owned() }
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

pub fn render(plan: &ServicePortPlan, context: &IpvsContext) -> IpvsServiceObjects {
    let mut writer = ObjectRenderer { plan, context, out: IpvsServiceObjects::default() };
    writer.internal();
    if let Some(external) = &plan.external {
        writer.external(external);
    }
    if let Some(check) = &plan.health_check {
        writer.member(SetId::HealthCheckNodePort, SetMember::Port(check.port));
    }
    for backend in plan.cluster_backends.iter().chain(&plan.local_backends) {
        let (ip, port) = (backend.ip(), backend.port());
        writer.member(SetId::LoopBack, SetMember::IpPortIp(ip, plan.protocol(), port, ip));
    }
    writer.out
}

struct ObjectRenderer<'a> {
    plan: &'a ServicePortPlan,
    context: &'a IpvsContext,
    out: IpvsServiceObjects,
}

impl ObjectRenderer<'_> {
    fn member(&mut self, set: SetId, member: SetMember) {
        self.out.members.insert((set, member));
    }

    fn frontend(&self, address: IpAddr) -> SetMember {
        SetMember::IpPort(address, self.plan.protocol(), self.plan.port)
    }

    fn server(&mut self, address: IpAddr, port: u16, backends: Option<BackendSet>, right: ServerClaim) {
        let key = ServerKey { protocol: self.plan.protocol(), address: SocketAddr::new(address, port) };
        let seconds = |time: std::time::Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1);
        let spec = ServerSpec {
            scheduler: self.context.scheduler.clone(),
            // Without this flag `mh` sends all connections of a client to one backend.
            flags: if self.context.scheduler == "mh" { FLAG_SCHED2 } else { 0 },
            persistence: self.plan.affinity.map(seconds),
            netmask: ServerSpec::whole_address(self.context.node.family),
        };
        let destinations = backends.map(|set| self.plan.backends(set).to_vec()).unwrap_or_default();
        let keeps = if key.protocol == Protocol::Sctp { self.plan.serving.clone() } else { Vec::new() };
        self.out.servers.entry(key).or_insert(DesiredServer { spec, destinations, keeps, right });
    }

    fn bind(&mut self, address: IpAddr) {
        if !self.context.local.contains(&address) {
            self.out.addresses.insert(address);
            self.member(SetId::IpvsIps, SetMember::Ip(address));
        }
    }

    fn internal(&mut self) {
        let Some(internal) = &self.plan.internal else { return };
        let member = self.frontend(internal.address);
        self.member(SetId::ClusterIp, member);
        self.bind(internal.address);
        let backends = match internal.action.verdict {
            FrontendVerdict::Deliver(set) => Some(set),
            FrontendVerdict::Reject => None,
            FrontendVerdict::Drop => {
                self.member(SetId::ClusterIpNoLocalEndpoints, member);
                None
            }
        };
        self.server(internal.address, self.plan.port, backends, ServerClaim::Address);
    }

    fn external(&mut self, external: &ExternalFrontends) {
        // A virtual server has one set of backends. If sources outside get no backend, it has the short circuit's
        // backends, and a rule drops packets from outside.
        let backends = match external.action.verdict {
            FrontendVerdict::Deliver(set) => Some(set),
            FrontendVerdict::Reject => None,
            FrontendVerdict::Drop => external.short_circuit.and_then(|short| match short.node.verdict {
                FrontendVerdict::Deliver(set) => Some(set),
                FrontendVerdict::Reject | FrontendVerdict::Drop => None,
            }),
        };
        let lost = external.action.verdict == FrontendVerdict::Drop;
        let keeps_source = external.action.masquerade == Masquerade::Never;
        // Without backends packets of every source must be refused, not dropped by the firewall.
        let annotated = external.annotated_sources.as_deref().filter(|_| backends.is_some());
        for address in &external.external_ips {
            let member = self.frontend(*address);
            self.member(if keeps_source { SetId::ExternalIpLocal } else { SetId::ExternalIp }, member);
            if let Some(allowed) = annotated {
                self.allowed_sources(*address, self.plan.port, allowed, allowed.own_addresses);
            }
            self.frontend_for_outside(*address, external, backends, lost);
        }
        for address in &external.load_balancer_ips {
            let member = self.frontend(*address);
            self.member(SetId::LoadBalancer, member);
            if keeps_source {
                self.member(SetId::LoadBalancerLocal, member);
            }
            if let Some(allowed) = external.allowed_sources.as_deref().filter(|_| backends.is_some()) {
                self.allowed_sources(*address, self.plan.port, allowed, allowed.own_addresses);
            }
            self.frontend_for_outside(*address, external, backends, lost);
        }
        if let Some(port) = external.node_port {
            self.node_port(port, backends, lost, keeps_source);
            let addresses = &self.context.node_ports;
            for (address, allowed) in addresses.iter().filter_map(|address| Some((address, annotated?))) {
                self.allowed_sources(*address, port, allowed, false);
            }
        }
    }

    /// IPVS takes the node's own packets before routing (`NF_INET_LOCAL_OUT`), so another machine's address need not be
    /// bound. Packets from elsewhere are forwarded to that machine.
    fn frontend_for_outside(
        &mut self,
        address: IpAddr,
        external: &ExternalFrontends,
        backends: Option<BackendSet>,
        lost: bool,
    ) {
        if lost {
            let member = self.frontend(address);
            self.member(SetId::NoLocalEndpoints, member);
        }
        if external.of_other_machines.binary_search(&address).is_err() {
            self.bind(address);
        }
        self.server(address, self.plan.port, backends, ServerClaim::Address);
    }

    fn allowed_sources(&mut self, address: IpAddr, port: u16, allowed: &AllowedSources, own_address: bool) {
        let protocol = self.plan.protocol();
        for range in allowed.ranges.iter().flat_map(|range| storable(*range)) {
            self.member(SetId::LoadBalancerSourceCidr, SetMember::IpPortNet(address, protocol, port, range));
        }
        if own_address {
            self.member(SetId::LoadBalancerSourceIp, SetMember::IpPortIp(address, protocol, port, address));
        }
        self.member(SetId::LoadBalancerFw, SetMember::IpPort(address, protocol, port));
    }

    fn node_port(&mut self, port: u16, backends: Option<BackendSet>, lost: bool, keeps_source: bool) {
        let protocol = self.plan.protocol();
        let (all, local) = SetId::node_ports(protocol);
        for address in &self.context.node_ports {
            let on_address = SetMember::IpPort(*address, protocol, port);
            let member = if protocol == Protocol::Sctp { on_address } else { SetMember::Port(port) };
            self.member(all, member);
            if keeps_source {
                self.member(local, member);
            }
            if lost {
                self.member(SetId::NoLocalEndpoints, on_address);
            }
            self.server(*address, port, backends, ServerClaim::NodePort);
        }
    }
}

/// Splits /0 in two, because a set cannot hold it.
fn storable(range: IpNet) -> Vec<IpNet> {
    let range = range.trunc();
    if range.prefix_len() > 0 {
        return vec![range];
    }
    range.subnets(1).map(Iterator::collect).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_all_addresses_is_split_in_two() {
        let halves = |text: &str| storable(text.parse().unwrap()).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(halves("0.0.0.0/0"), ["0.0.0.0/1", "128.0.0.0/1"]);
        assert_eq!(halves("::/0"), ["::/1", "8000::/1"]);
        assert_eq!(halves("192.0.2.9/24"), ["192.0.2.0/24"]);
    }
}
