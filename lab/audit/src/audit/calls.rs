use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use svclab_oracle::{Family, FrontendKind, Protocol, ServiceFrontend, address};

use super::gathered::Gathered;
use super::sources::{AuditCaller, SourceKind};
use super::stale::Lead;
use super::{Audit, AuditCall, SOURCE_PORT};
use crate::cluster::own_networks;
use crate::machines::is_link_local;

/// The most addresses of the node at which a node port is called, besides loopback.
const NODE_ADDRESSES: usize = 4;
/// Added to a service's port to get one that is probably unused.
const OTHER_PORT: u16 = 1000;
/// Where the search for an unused cluster IP begins in a range: allocators use lower addresses first (KEP-3070).
const UNUSED_FROM: usize = 4000;

impl Audit<'_> {
    pub(super) fn destinations(&self, frontend: &ServiceFrontend) -> Vec<SocketAddr> {
        let at = |address: IpAddr| SocketAddr::new(address, frontend.port);
        if let Some(address) = frontend.address {
            return vec![at(address)];
        }
        let first = self.known.nodes.get(&self.known.node).into_iter().flatten().copied();
        let of_family = |address: &IpAddr| Family::of(*address) == frontend.family && !is_link_local(*address);
        let mut own: Vec<IpAddr> = Vec::new();
        // An address without a network is usually a tunnel's end, unreachable for pods; the Node object's addresses are
        // always called.
        let networks = own_networks(self.snapshot).filter(|own| own.prefix_len() < own.max_prefix_len());
        for address in first.chain(networks.map(|own| own.addr())).filter(of_family) {
            if !own.contains(&address) && self.machines.is_own(address) {
                own.push(address);
            }
        }
        own.truncate(NODE_ADDRESSES);
        own.push(match frontend.family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        });
        own.into_iter().map(at).collect()
    }

    /// Whether the address is another node's own: that node translates packets from outside, and others that are not yet
    /// translated here.
    pub(super) fn is_elsewhere(&self, address: IpAddr) -> bool {
        let is_other = self.known.node_of(address).is_some_and(|name| name != self.known.node);
        is_other && !self.machines.is_own(address)
    }

    /// Returns the callers: all at the frontend's first address; a pod, the node and a host outside at the others.
    pub(super) fn callers<'s>(
        &'s self,
        frontend: &ServiceFrontend,
        to: SocketAddr,
        first: bool,
    ) -> Vec<&'s AuditCaller> {
        let of_family =
            |source: &&AuditCaller| source.address.is_none_or(|address| Family::of(address) == frontend.family);
        if to.ip().is_loopback() {
            return self.sources.common.iter().filter(|source| source.kind == SourceKind::Loopback).collect();
        }
        let elsewhere = self.is_elsewhere(to.ip());
        let common = self.sources.common.iter().filter(of_family).filter(|source| match source.kind {
            SourceKind::Loopback => false,
            SourceKind::Outside => !elsewhere,
            SourceKind::RemotePod => frontend.kind == FrontendKind::NodePort && first,
            _ => true,
        });
        let mut callers: Vec<&AuditCaller> = common.collect();
        if first {
            let own = frontend.endpoints.iter().filter_map(|(address, _)| self.sources.endpoints.get(&address.ip()));
            callers.extend(own);
        }
        if !elsewhere {
            let ranges = frontend.source_ranges.iter();
            let listed = ranges.flat_map(|range| self.sources.ranges.iter().filter(move |(known, _)| known == range));
            callers.extend(listed.map(|(_, source)| source));
        }
        callers
    }

    /// Calls an unused port of a cluster IP; some modes reject such calls.
    pub(super) fn other_port(&self, frontend: &ServiceFrontend, gathered: &mut Gathered) {
        let Some(address) = frontend.address.filter(|_| frontend.kind == FrontendKind::ClusterIp) else { return };
        // The node's own sockets answer or refuse there.
        if self.known.dns_cache.contains(&address) {
            return;
        }
        let of_kind =
            |source: &&ServiceFrontend| source.kind == FrontendKind::NodePort && source.protocol == frontend.protocol;
        // Also calls a node port's number, which is unused at the cluster IP.
        let node_port = self.frontends.iter().find(of_kind).map(|other| other.port);
        for port in [Some(other_port(frontend)), node_port].into_iter().flatten() {
            self.by_pod_and_node(frontend, SocketAddr::new(address, port), gathered);
        }
    }

    fn by_pod_and_node(&self, frontend: &ServiceFrontend, to: SocketAddr, gathered: &mut Gathered) {
        let asked = |kind| matches!(kind, SourceKind::Pod | SourceKind::Node);
        for source in self.callers(frontend, to, false).into_iter().filter(|source| asked(source.kind)) {
            self.question(&AuditCall { frontend, source, source_port: SOURCE_PORT, to }, gathered);
        }
    }

    /// Calls an unused address of each ServiceCIDR; some modes drop such calls.
    pub(super) fn unused_cluster_ips(&self, frontends: &[ServiceFrontend], gathered: &mut Gathered) {
        let used: BTreeSet<IpAddr> = frontends.iter().filter_map(|frontend| frontend.address).collect();
        let ranges =
            self.cluster.objects.service_cidrs.iter().filter_map(|object| object.spec.as_ref()?.cidrs.as_ref());
        // A proxy may leave alone a range that holds machines: dropping what goes there would cut them off.
        let holds_machines = |range: &IpNet| {
            let nodes = self.known.nodes.values().flatten();
            nodes.chain(self.known.endpoints.keys()).any(|address| range.contains(address))
        };
        let ranges = ranges.flatten().filter_map(|text| address::parse_range(text));
        for range in ranges.filter(|range| !holds_machines(range)) {
            let mut free = range.hosts().skip(UNUSED_FROM).filter(|address| !used.contains(address));
            let Some(address) = free.next() else { continue };
            let lead =
                Lead { address: Some(address), port: 80, protocol: Protocol::Tcp, family: Family::of_range(range) };
            let frontend = lead.frontend(lead.family);
            self.by_pod_and_node(&frontend, SocketAddr::new(address, 80), gathered);
        }
    }
}

pub(super) fn other_port(frontend: &ServiceFrontend) -> u16 {
    frontend.port.wrapping_add(OTHER_PORT).max(1)
}
