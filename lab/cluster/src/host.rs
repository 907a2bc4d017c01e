//! Builds the node network, and sets kernel settings and routes of hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use svclab_netns::links::{Bridge, NextHop, Route, VethEnd};
use svclab_netns::mac::{self, LinkEnd, Mac};
use svclab_netns::namespace::{Isolation, Namespace};
use svclab_netns::netem::Impairment;
use svclab_spec::{ClusterSpec, Cni, NodeSpec, ReversePath};

use super::ClusterError;
use super::overlay;
use super::validate::{address_for, gateway, range_for};

pub(super) const LOOPBACK: u32 = 1;
/// The index of `eth0`; the kernel's fallback tunnels may have lower ones.
pub(super) const ETH0: u32 = 10;
pub(super) const CNI0: u32 = 11;
const ETH1: u32 = 13;

pub(super) struct BridgeSegment {
    bridge: &'static str,
    index: u32,
    /// Prefix of the names of the bridge's ports.
    port: &'static str,
    first_port: u32,
    /// Name of the hosts' interfaces on the segment.
    interface: &'static str,
    host_index: u32,
}

pub(super) const NODES: BridgeSegment =
    BridgeSegment { bridge: "segment", index: 10, port: "port", first_port: 100, interface: "eth0", host_index: ETH0 };
pub(super) const SECOND: BridgeSegment = BridgeSegment {
    bridge: "second",
    index: 11,
    port: "second",
    first_port: 10_100,
    interface: "eth1",
    host_index: ETH1,
};

/// MAC address of the bridges, which have no IP address.
const NO_HOST: Mac = [0x02, 0, 0, 0, 0, 0x01];

/// Returns the link-local next hop of default routes; a permanent neighbour entry resolves it.
pub(super) fn link_local_gateway(family_of: IpAddr) -> IpAddr {
    match family_of {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
    }
}

pub(super) fn everywhere(family_of: IpAddr) -> IpNet {
    match family_of {
        IpAddr::V4(_) => IpNet::V4(ipnet::Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostRole {
    /// A pod or a client, which does not forward.
    Endpoint,
    Node(Cni, ReversePath),
    Balancer,
}

impl HostRole {
    fn rp_filter(self) -> &'static str {
        match self {
            HostRole::Endpoint | HostRole::Balancer | HostRole::Node(_, ReversePath::Off) => "0",
            HostRole::Node(_, ReversePath::Strict) => "1",
            HostRole::Node(_, ReversePath::Loose) => "2",
        }
    }
}

/// Disables ICMP rate limits (every probe must get its own error), redirects (they change routes between packets) and
/// duplicate address detection.
fn settings(role: HostRole, ipv6: bool) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut set = |key: &str, value: &str| all.push((key.to_owned(), value.to_owned()));
    set("net/ipv4/icmp_ratemask", "0");
    set("net/ipv6/icmp/ratelimit", "0");
    // A newline, because the kernel ignores an empty write.
    set("net/ipv6/icmp/ratemask", "\n");
    for scope in ["all", "default"] {
        set(&format!("net/ipv4/conf/{scope}/rp_filter"), role.rp_filter());
        set(&format!("net/ipv4/conf/{scope}/accept_redirects"), "0");
        set(&format!("net/ipv4/conf/{scope}/send_redirects"), "0");
        set(&format!("net/ipv6/conf/{scope}/accept_redirects"), "0");
        set(&format!("net/ipv6/conf/{scope}/accept_dad"), "0");
        set(&format!("net/ipv6/conf/{scope}/accept_ra"), "0");
    }
    set("net/ipv6/conf/default/router_solicitations", "0");
    if !ipv6 {
        set("net/ipv6/conf/default/disable_ipv6", "1");
    }
    if role != HostRole::Endpoint {
        set("net/ipv4/ip_forward", "1");
        set("net/ipv6/conf/all/forwarding", "1");
    }
    if matches!(role, HostRole::Node(Cni::Bridge, _)) {
        set("net/bridge/bridge-nf-call-iptables", "1");
        set("net/bridge/bridge-nf-call-ip6tables", "1");
    }
    if role == HostRole::Balancer {
        // Hash of addresses and ports: one connection stays with one node.
        set("net/ipv4/fib_multipath_hash_policy", "1");
        set("net/ipv6/fib_multipath_hash_policy", "1");
    }
    all
}

pub(super) async fn prepare(namespace: &Namespace, role: HostRole, ipv6: bool) -> Result<(), ClusterError> {
    let failed = |what: &str| ClusterError::kernel(format!("{}: {what}", namespace.name()));
    let done = namespace.sysctl(settings(role, ipv6)).await;
    done.map_err(failed("kernel settings"))?;
    let done = namespace.links().up(LOOPBACK).await;
    done.map_err(failed("loopback"))
}

pub(super) struct NodeNetwork {
    /// The bridges' namespace, which contains no rules.
    pub(super) namespace: Arc<Namespace>,
    segments: Vec<BridgeSegment>,
}

impl NodeNetwork {
    pub(super) async fn build(has_second: bool) -> Result<NodeNetwork, ClusterError> {
        let failed = || ClusterError::kernel("node network");
        let namespace = Namespace::create("fabric", Isolation::Network).await.map_err(failed())?;
        let quiet = vec![("net/ipv6/conf/default/disable_ipv6".to_owned(), "1".to_owned())];
        namespace.sysctl(quiet).await.map_err(failed())?;
        let segments: Vec<BridgeSegment> = [NODES].into_iter().chain(has_second.then_some(SECOND)).collect();
        for segment in &segments {
            let bridge = Bridge { name: segment.bridge, index: segment.index, mac: NO_HOST };
            namespace.links().add_bridge(&bridge).await.map_err(failed())?;
        }
        // Control requests of `traffic::drop_check` use its loopback.
        namespace.links().up(LOOPBACK).await.map_err(failed())?;
        Ok(NodeNetwork { namespace: Arc::new(namespace), segments })
    }

    /// Detaches a host, which keeps its links, addresses, routes and neighbours, or reattaches it.
    pub(super) async fn cut_off(&self, port: u32, cut_off: bool) -> Result<(), ClusterError> {
        for segment in &self.segments {
            let bridge = (!cut_off).then_some(segment.index);
            let done = self.namespace.links().set_controller(segment.first_port + port, bridge).await;
            done.map_err(ClusterError::kernel("node network"))?;
        }
        Ok(())
    }

    /// Impairs frames towards the host.
    pub(super) async fn impair(&self, port: u32, impairment: Option<&Impairment>) -> Result<(), ClusterError> {
        for segment in &self.segments {
            let done = self.namespace.links().impair(segment.first_port + port, impairment).await;
            done.map_err(ClusterError::kernel("node network"))?;
        }
        Ok(())
    }

    pub(super) async fn attach(
        &self,
        segment: &BridgeSegment,
        port: u32,
        host: &Namespace,
        network: &[IpNet],
        addresses: &[IpAddr],
        extra: &[IpAddr],
    ) -> Result<(), ClusterError> {
        let failed = || ClusterError::kernel(format!("{} on the node network", host.name()));
        let Some(primary) = addresses.first() else {
            return Err(ClusterError::invalid(host.name(), "has no address"));
        };
        let name = format!("{}{port}", segment.port);
        let near = VethEnd { name: &name, index: segment.first_port + port, mac: mac::of(*primary, LinkEnd::Peer) };
        let far = VethEnd { name: segment.interface, index: segment.host_index, mac: mac::of(*primary, LinkEnd::Host) };
        let done = self.namespace.add_veth(&near, Some(segment.index), &far, host).await;
        done.map_err(failed())?;
        // Adds the addresses in order: the first one of a family is the primary one.
        let all = addresses.iter().map(|a| (*a, false));
        for (address, secondary) in all.chain(extra.iter().map(|a| (*a, true))) {
            let Some(range) = range_for(network, address) else {
                continue;
            };
            let address = IpNet::new_assert(address, range.prefix_len());
            let done = host.links().add_address(segment.host_index, address, secondary).await;
            done.map_err(failed())?;
        }
        Ok(())
    }
}

/// Sets routes. The default gateway does not exist: service addresses are routable before translation, and
/// untranslated packets disappear.
pub(super) async fn node_routes(
    spec: &ClusterSpec,
    node: &NodeSpec,
    namespace: &Namespace,
) -> Result<(), ClusterError> {
    let failed = || ClusterError::kernel(format!("routes of node {}", node.name));
    for own in &node.addresses {
        let gateway = link_local_gateway(*own);
        let links = namespace.links();
        let done = links.add_neighbour(ETH0, gateway, NO_HOST).await;
        done.map_err(failed())?;
        let default = Route { source: Some(*own), ..Route::new(everywhere(*own), NextHop::Gateway(gateway, ETH0)) };
        links.set_route(&default).await.map_err(failed())?;
    }
    if spec.overlay {
        return overlay::build(spec, node, namespace).await;
    }
    for other in spec.nodes.iter().filter(|other| other.name != node.name) {
        let second = spec.second_addresses(other);
        for range in &other.pod_cidrs {
            if let Some(via) = address_for(&second, range.addr()) {
                let route = Route::new(*range, NextHop::Gateway(via, ETH1));
                namespace.links().set_route(&route).await.map_err(failed())?;
                continue;
            }
            let own = address_for(&node.addresses, range.addr());
            let (Some(via), Some(own)) = (address_for(&other.addresses, range.addr()), own) else {
                continue;
            };
            let route = Route { source: Some(own), ..Route::new(*range, NextHop::Gateway(via, ETH0)) };
            namespace.links().set_route(&route).await.map_err(failed())?;
        }
    }
    Ok(())
}

pub(super) async fn pod_bridge(node: &NodeSpec, namespace: &Namespace) -> Result<(), ClusterError> {
    let failed = || ClusterError::kernel(format!("cni0 of node {}", node.name));
    let gateways = node.pod_cidrs.iter().filter_map(|range| {
        let address = gateway(range)?;
        Some(IpNet::new_assert(address, range.prefix_len()))
    });
    let gateways: Vec<IpNet> = gateways.collect();
    let Some(first) = gateways.first() else {
        return Ok(());
    };
    let bridge = Bridge { name: "cni0", index: CNI0, mac: mac::of(first.addr(), LinkEnd::Bridge) };
    let links = namespace.links();
    links.add_bridge(&bridge).await.map_err(failed())?;
    for address in &gateways {
        let done = links.add_address(CNI0, *address, false).await;
        done.map_err(failed())?;
    }
    Ok(())
}
