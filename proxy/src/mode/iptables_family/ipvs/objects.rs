//! What one service port contributes: virtual servers, set members, addresses for the device.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::sets::SetId;
use crate::config::NodeAddresses;
use crate::kernel::ipset::Member;
use crate::kernel::ipvs::{FLAG_SCHED2, ServerKey, ServerSpec};
use crate::model::Protocol;
use crate::plan::{
    AllowedSources, BackendSet, ExternalFrontends, Masquerade, NodePlan, NodePortScope, ServicePortPlan, Verdict,
};

/// Why a virtual server is wanted. State has decided who has an address with its port, and who a node port; on one of the
/// node's own addresses the two may meet, and the address wins, as its rules stand before those of node ports in other modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// For an address of the service's own.
    Address,
    /// For a node port.
    NodePort,
}

/// A virtual server that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// What it is like.
    pub spec: ServerSpec,
    /// Where it leads, sorted. Empty: nowhere, and the kernel refuses with ICMP port unreachable.
    pub destinations: Vec<SocketAddr>,
    /// Where associations of SCTP may go on, though no new ones begin there; sorted. Connections of TCP go on wherever they lead, and those
    /// of UDP nowhere else.
    pub keeps: Vec<SocketAddr>,
    /// By which right it is wanted.
    pub right: Right,
}

/// One service port's share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceObjects {
    /// Its virtual servers.
    pub servers: BTreeMap<ServerKey, Server>,
    /// Its members in sets.
    pub members: BTreeSet<(SetId, Member)>,
    /// Its addresses on the device.
    pub addresses: BTreeSet<IpAddr>,
}

/// What a service port's share depends on besides its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeContext {
    /// What holds for all services.
    pub node: NodePlan,
    /// The node's addresses that accept node ports.
    pub node_ports: Vec<IpAddr>,
    /// Every address of the node's other devices: those must not come onto ours as well.
    pub local: BTreeSet<IpAddr>,
    /// The scheduler.
    pub scheduler: String,
}

impl NodeContext {
    /// With the node's addresses as they are now.
    pub fn new(node: NodePlan, addresses: &NodeAddresses, scheduler: &str) -> NodeContext {
        let of_family = |ip: &&IpAddr| crate::model::Family::of(ip) == node.family;
        let local: BTreeSet<IpAddr> = addresses.local.iter().filter(of_family).copied().collect();
        // A virtual server on the loopback range has no effect: its destinations cannot answer there.
        let scope: Vec<IpAddr> = match &node.node_ports {
            NodePortScope::EveryLocalAddress { .. } => local.iter().copied().filter(|ip| !is_link_local(ip)).collect(),
            NodePortScope::Addresses(addresses) => addresses.clone(),
        };
        let node_ports = scope.into_iter().filter(|ip| !ip.is_loopback()).collect();
        NodeContext { node, node_ports, local, scheduler: scheduler.to_owned() }
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Writes down one service port.
pub fn render(plan: &ServicePortPlan, around: &NodeContext) -> ServiceObjects {
    let mut writer = Writer { plan, around, out: ServiceObjects::default() };
    writer.internal();
    if let Some(external) = &plan.external {
        writer.external(external);
    }
    if let Some(check) = &plan.health_check {
        writer.member(SetId::HealthCheckNodePort, Member::Port(check.port));
    }
    for backend in plan.cluster_backends.iter().chain(&plan.local_backends) {
        let (ip, port) = (backend.ip(), backend.port());
        writer.member(SetId::LoopBack, Member::IpPortIp(ip, plan.protocol(), port, ip));
    }
    writer.out
}

struct Writer<'a> {
    plan: &'a ServicePortPlan,
    around: &'a NodeContext,
    out: ServiceObjects,
}

impl Writer<'_> {
    fn member(&mut self, set: SetId, member: Member) {
        self.out.members.insert((set, member));
    }

    /// The member of a frontend at the service's port.
    fn frontend(&self, address: IpAddr) -> Member {
        Member::IpPort(address, self.plan.protocol(), self.plan.port)
    }

    fn server(&mut self, address: IpAddr, port: u16, backends: Option<BackendSet>, right: Right) {
        let key = ServerKey { protocol: self.plan.protocol(), address: SocketAddr::new(address, port) };
        let seconds = |time: std::time::Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1);
        let spec = ServerSpec {
            scheduler: self.around.scheduler.clone(),
            // Without the port in the hash, a client's connections would all go to one backend.
            flags: if self.around.scheduler == "mh" { FLAG_SCHED2 } else { 0 },
            persistence: self.plan.affinity.map(seconds),
            netmask: ServerSpec::whole_address(self.around.node.family),
        };
        let destinations = backends.map(|set| self.plan.backends(set).to_vec()).unwrap_or_default();
        let keeps = if key.protocol == Protocol::Sctp { self.plan.serving.clone() } else { Vec::new() };
        self.out.servers.entry(key).or_insert(Server { spec, destinations, keeps, right });
    }

    /// An address that is not the node's already.
    fn bind(&mut self, address: IpAddr) {
        if !self.around.local.contains(&address) {
            self.out.addresses.insert(address);
            self.member(SetId::IpvsIps, Member::Ip(address));
        }
    }

    fn internal(&mut self) {
        let Some(internal) = &self.plan.internal else { return };
        let member = self.frontend(internal.address);
        self.member(SetId::ClusterIp, member);
        self.bind(internal.address);
        let backends = match internal.action.verdict {
            Verdict::Deliver(set) => Some(set),
            Verdict::Reject => None,
            Verdict::Drop => {
                self.member(SetId::ClusterIpNoLocalEndpoints, member);
                None
            }
        };
        self.server(internal.address, self.plan.port, backends, Right::Address);
    }

    fn external(&mut self, external: &ExternalFrontends) {
        // A virtual server has one set of backends for all sources. Where outside gets none, those who are not held to
        // the policy get theirs, and a rule keeps outside away.
        let backends = match external.action.verdict {
            Verdict::Deliver(set) => Some(set),
            Verdict::Reject => None,
            Verdict::Drop => external.short_circuit.and_then(|short| match short.node.verdict {
                Verdict::Deliver(set) => Some(set),
                Verdict::Reject | Verdict::Drop => None,
            }),
        };
        let lost = external.action.verdict == Verdict::Drop;
        let keeps_source = external.action.masquerade == Masquerade::Never;
        for address in &external.external_ips {
            let member = self.frontend(*address);
            self.member(if keeps_source { SetId::ExternalIpLocal } else { SetId::ExternalIp }, member);
            self.frontend_for_outside(*address, external, backends, lost);
        }
        for address in &external.load_balancer_ips {
            let member = self.frontend(*address);
            self.member(SetId::LoadBalancer, member);
            if keeps_source {
                self.member(SetId::LoadBalancerLocal, member);
            }
            // Without endpoints every source must meet the refusal and not the firewall.
            if let Some(allowed) = external.allowed_sources.as_ref().filter(|_| backends.is_some()) {
                self.allowed_sources(*address, allowed);
            }
            self.frontend_for_outside(*address, external, backends, lost);
        }
        if let Some(port) = external.node_port {
            self.node_port(port, backends, lost, keeps_source);
        }
    }

    /// IPVS takes what the node itself sends to a virtual server before it is routed (at `NF_INET_LOCAL_OUT`): there no address need be
    /// bound. What comes from elsewhere goes on to the machine that has the address.
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
        self.server(address, self.plan.port, backends, Right::Address);
    }

    fn allowed_sources(&mut self, address: IpAddr, allowed: &AllowedSources) {
        let (protocol, port) = (self.plan.protocol(), self.plan.port);
        for range in allowed.ranges.iter().flat_map(|range| storable(*range)) {
            self.member(SetId::LoadBalancerSourceCidr, Member::IpPortNet(address, protocol, port, range));
        }
        if allowed.load_balancer_ips {
            self.member(SetId::LoadBalancerSourceIp, Member::IpPortIp(address, protocol, port, address));
        }
        let member = self.frontend(address);
        self.member(SetId::LoadBalancerFw, member);
    }

    fn node_port(&mut self, port: u16, backends: Option<BackendSet>, lost: bool, keeps_source: bool) {
        let protocol = self.plan.protocol();
        let (all, local) = SetId::node_ports(protocol);
        for address in &self.around.node_ports {
            let on_address = Member::IpPort(*address, protocol, port);
            let member = if protocol == Protocol::Sctp { on_address } else { Member::Port(port) };
            self.member(all, member);
            if keeps_source {
                self.member(local, member);
            }
            if lost {
                self.member(SetId::NoLocalEndpoints, on_address);
            }
            self.server(*address, port, backends, Right::NodePort);
        }
    }
}

/// A set holds no range of length 0: all addresses are two halves.
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
    fn everybody_is_two_halves() {
        let halves = |text: &str| storable(text.parse().unwrap()).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(halves("0.0.0.0/0"), ["0.0.0.0/1", "128.0.0.0/1"]);
        assert_eq!(halves("::/0"), ["::/1", "8000::/1"]);
        assert_eq!(halves("192.0.2.9/24"), ["192.0.2.0/24"]);
    }
}
