//! Interfaces, addresses, routes and neighbours over route netlink. The caller chooses interface indices:
//! deterministic, without look-ups.

use std::future::ready;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::RawFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, CacheInfo};
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute, State};
use rtnetlink::packet_route::neighbour::NeighbourFlags;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteScope, RouteType};
use rtnetlink::{
    Handle, LinkBridge, LinkBridgePort, LinkUnspec, LinkVeth, LinkVxlan, RouteMessageBuilder, RouteNextHopBuilder,
};
use tokio::task::AbortHandle;

use super::NetnsError;
use super::mac::Mac;

/// The time limit for interfaces; usually milliseconds suffice.
const WORKING_WITHIN: Duration = Duration::from_secs(30);

/// A bridge.
#[derive(Debug, Clone, Copy)]
pub struct Bridge<'a> {
    /// Name.
    pub name: &'a str,
    /// Index.
    pub index: u32,
    /// MAC address.
    pub mac: Mac,
}

/// A VXLAN device.
#[derive(Debug, Clone, Copy)]
pub struct Vxlan<'a> {
    /// Name.
    pub name: &'a str,
    /// Index.
    pub index: u32,
    /// MAC address.
    pub mac: Mac,
    /// Network identifier.
    pub vni: u32,
    /// Both ends' UDP port.
    pub port: u16,
    /// Outer source address.
    pub local: IpAddr,
    /// MTU of inner packets.
    pub mtu: u32,
}

/// One end of a veth pair.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// Name.
    pub name: &'a str,
    /// Index in its namespace.
    pub index: u32,
    /// MAC address.
    pub mac: Mac,
}

/// A route's next hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextHop {
    /// The destination is directly connected to this interface.
    Device(u32),
    /// A gateway's address and interface.
    Gateway(IpAddr, u32),
    /// One of several gateways behind an interface, by the flow's hash.
    OneOf(Vec<IpAddr>, u32),
    /// Drops silently.
    Blackhole,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination range.
    pub destination: IpNet,
    /// Next hop.
    pub hop: NextHop,
    /// Preferred source.
    pub source: Option<IpAddr>,
    /// `RTA_PRIORITY`, of which the lowest wins; `None` for the kernel's default.
    pub metric: Option<u32>,
}

impl Route {
    /// Returns a route without preferred source and metric.
    pub fn new(destination: IpNet, hop: NextHop) -> Route {
        Route { destination, hop, source: None, metric: None }
    }
}

/// A namespace's route netlink socket.
#[derive(Clone)]
pub struct Links {
    namespace: Arc<str>,
    pub(super) handle: Handle,
    _connection: Arc<AbortOnDrop>,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Links {
    /// Opens the socket; call on the namespace's thread.
    pub(super) fn open(namespace: &str, runtime: &tokio::runtime::Handle) -> Result<Links, NetnsError> {
        let _context = runtime.enter();
        let (connection, handle, _) = rtnetlink::new_connection()
            .map_err(NetnsError::io(format!("{namespace}: opening a route netlink socket")))?;
        let task = runtime.spawn(connection).abort_handle();
        Ok(Links { namespace: namespace.into(), handle, _connection: Arc::new(AbortOnDrop(task)) })
    }

    pub(super) fn failed(&self, what: impl std::fmt::Display) -> impl FnOnce(rtnetlink::Error) -> NetnsError {
        NetnsError::netlink(format!("{}: {what}", self.namespace))
    }

    /// Sets an interface up.
    pub async fn up(&self, index: u32) -> Result<(), NetnsError> {
        let message = LinkUnspec::new_with_index(index).up().build();
        let done = self.handle.link().change(message).execute().await;
        done.map_err(self.failed(format_args!("setting interface {index} up")))
    }

    /// Waits until the interface is operational; before that the kernel drops packets.
    pub async fn working(&self, index: u32) -> Result<(), NetnsError> {
        let up = LinkAttribute::OperState(State::Up);
        self.wait_for(format!("interface {index} to become operational"), async || {
            let mut links = self.handle.link().get().match_index(index).execute();
            let link = links.try_next().await?;
            Ok(link.is_some_and(|link| link.attributes.contains(&up)))
        })
        .await
    }

    /// Adds a bridge without multicast snooping and sets it up.
    pub async fn add_bridge(&self, bridge: &Bridge<'_>) -> Result<(), NetnsError> {
        let message = LinkBridge::new(bridge.name)
            .mcast_snooping(false)
            .index(bridge.index)
            .address(bridge.mac.to_vec())
            .up()
            .build();
        let done = self.handle.link().add(message).execute().await;
        done.map_err(self.failed(format_args!("making bridge {}", bridge.name)))
    }

    pub(super) async fn make_veth(
        &self,
        near: &VethEnd<'_>,
        controller: Option<u32>,
        far: &VethEnd<'_>,
        into: RawFd,
    ) -> Result<(), NetnsError> {
        let peer = LinkUnspec::new_with_name(far.name)
            .index(far.index)
            .address(far.mac.to_vec())
            .append_extra_attribute(LinkAttribute::NetNsFd(into))
            .build();
        let mut message = LinkVeth::new(near.name, far.name)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .index(near.index)
            .address(near.mac.to_vec())
            .up();
        if let Some(bridge) = controller {
            message = message.controller(bridge);
        }
        let done = self.handle.link().add(message.build()).execute().await;
        done.map_err(self.failed(format_args!("making veth pair {}/{}", near.name, far.name)))
    }

    /// Adds a VXLAN device without learning and sets it up.
    pub async fn add_vxlan(&self, vxlan: &Vxlan<'_>) -> Result<(), NetnsError> {
        let device = LinkVxlan::new(vxlan.name, vxlan.vni).port(vxlan.port).learning(false);
        let device = match vxlan.local {
            IpAddr::V4(local) => device.local(local),
            IpAddr::V6(local) => device.local6(local),
        };
        let message = device.index(vxlan.index).address(vxlan.mac.to_vec()).mtu(vxlan.mtu).up().build();
        let done = self.handle.link().add(message).execute().await;
        done.map_err(self.failed(format_args!("making VXLAN device {}", vxlan.name)))
    }

    /// Sets the remote host for a MAC address of a VXLAN device.
    pub async fn add_tunnel(&self, index: u32, mac: Mac, host: IpAddr) -> Result<(), NetnsError> {
        let done = self
            .handle
            .neighbours()
            .add_bridge(index, &mac)
            .destination(host)
            .flags(NeighbourFlags::Own)
            .replace()
            .execute()
            .await;
        done.map_err(self.failed(format_args!("adding the tunnel to {host}")))
    }

    /// Sets an interface's MTU.
    pub async fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), NetnsError> {
        let message = LinkUnspec::new_with_index(index).mtu(mtu).build();
        let done = self.handle.link().change(message).execute().await;
        done.map_err(self.failed(format_args!("setting the MTU of interface {index}")))
    }

    /// Sets hairpin mode of a bridge port.
    pub async fn set_hairpin(&self, port: u32, on: bool) -> Result<(), NetnsError> {
        let message = LinkBridgePort::new(port).hairpin(on).build();
        let done = self.handle.link().change(message).execute().await;
        done.map_err(self.failed(format_args!("setting hairpin mode on port {port}")))
    }

    /// Makes an interface a port of a bridge; with `None` no frame passes, but both ends keep their carrier. (Without
    /// spanning tree a bridge resets `disabled` ports to `forwarding`.)
    pub async fn set_controller(&self, index: u32, controller: Option<u32>) -> Result<(), NetnsError> {
        let message = LinkUnspec::new_with_index(index);
        let message = match controller {
            Some(bridge) => message.controller(bridge),
            None => message.nocontroller(),
        };
        let done = self.handle.link().change(message.build()).execute().await;
        done.map_err(self.failed(format_args!("making interface {index} a port of {controller:?}")))
    }

    /// Removes an interface and its veth peer.
    pub async fn remove(&self, index: u32) -> Result<(), NetnsError> {
        let done = self.handle.link().del(index).execute().await;
        done.map_err(self.failed(format_args!("removing interface {index}")))
    }

    /// Adds an address without duplicate address detection. `secondary` IPv6 addresses are never sources.
    pub async fn add_address(&self, index: u32, address: IpNet, secondary: bool) -> Result<(), NetnsError> {
        let mut request = self.handle.address().add(index, address.addr(), address.prefix_len());
        let message = request.message_mut();
        if address.addr().is_ipv6() {
            message.header.flags |= AddressHeaderFlags::Nodad;
        }
        if secondary && address.addr().is_ipv6() {
            let mut lifetime = CacheInfo::default();
            (lifetime.ifa_preferred, lifetime.ifa_valid) = (0, u32::MAX);
            message.attributes.push(AddressAttribute::CacheInfo(lifetime));
        }
        let done = request.execute().await;
        done.map_err(self.failed(format_args!("adding address {address}")))?;
        match address.addr() {
            IpAddr::V4(_) => Ok(()),
            IpAddr::V6(v6) => self.deliverable(v6).await,
        }
    }

    /// Waits for the local route, without which the kernel drops packets.
    async fn deliverable(&self, address: Ipv6Addr) -> Result<(), NetnsError> {
        let wanted = RouteAttribute::Destination(RouteAddress::Inet6(address));
        self.wait_for(format!("a route for the own address {address}"), async || {
            let every = RouteMessageBuilder::<Ipv6Addr>::new().build();
            let routes = self.handle.route().get(every).execute();
            let own = routes.try_filter(|route| {
                let local = route.header.kind == RouteType::Local;
                ready(local && route.attributes.contains(&wanted))
            });
            Ok(pin!(own).try_next().await?.is_some())
        })
        .await
    }

    async fn wait_for(
        &self,
        what: String,
        holds: impl AsyncFn() -> Result<bool, rtnetlink::Error>,
    ) -> Result<(), NetnsError> {
        let end = Instant::now() + WORKING_WITHIN;
        while Instant::now() < end {
            let answer = match holds().await {
                Err(rtnetlink::Error::NetlinkError(refusal)) if refusal.raw_code() == -nix::libc::EBUSY => false,
                answer => answer.map_err(self.failed(format_args!("asking for {what}")))?,
            };
            if answer {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let attempted = format!("{}: waiting for {what}", self.namespace);
        Err(NetnsError::Io { attempted, source: std::io::ErrorKind::TimedOut.into() })
    }

    /// Removes an address.
    pub async fn remove_address(&self, index: u32, address: IpNet) -> Result<(), NetnsError> {
        let mut request = self.handle.address().add(index, address.addr(), address.prefix_len());
        let message = request.message_mut().clone();
        let done = self.handle.address().del(message).execute().await;
        done.map_err(self.failed(format_args!("removing address {address}")))
    }

    /// Adds or replaces a route.
    pub async fn set_route(&self, route: &Route) -> Result<(), NetnsError> {
        let attempt = format!("setting the route to {}", route.destination);
        let message = self.route_message(route, &attempt)?;
        let done = self.handle.route().add(message).replace().execute().await;
        done.map_err(self.failed(attempt))
    }

    /// Removes the route with this metric, or the lowest if `None`.
    pub async fn remove_route(&self, destination: IpNet, metric: Option<u32>) -> Result<(), NetnsError> {
        let attempt = format!("removing the route to {destination}");
        let route = Route { metric, ..Route::new(destination, NextHop::Blackhole) };
        let mut message = self.route_message(&route, &attempt)?;
        message.header.kind = RouteType::Unspec;
        message.header.scope = RouteScope::NoWhere;
        let done = self.handle.route().del(message).execute().await;
        done.map_err(self.failed(attempt))
    }

    /// Adds a permanent neighbour entry.
    pub async fn add_neighbour(&self, index: u32, address: IpAddr, mac: Mac) -> Result<(), NetnsError> {
        let request = self.handle.neighbours().add(index, address).link_layer_address(&mac).replace();
        let done = request.execute().await;
        done.map_err(self.failed(format_args!("adding neighbour {address}")))
    }

    fn route_message(&self, route: &Route, attempt: &str) -> Result<RouteMessage, NetnsError> {
        build_route(route).map_err(|e| NetnsError::Io {
            attempted: format!("{}: {attempt}", self.namespace),
            source: std::io::Error::new(std::io::ErrorKind::InvalidInput, e.to_string()),
        })
    }
}

fn build_route(route: &Route) -> Result<RouteMessage, Box<dyn std::error::Error>> {
    let destination = route.destination;
    let mut message =
        RouteMessageBuilder::<IpAddr>::new().destination_prefix(destination.network(), destination.prefix_len())?;
    if let Some(source) = route.source {
        message = message.pref_source(source)?;
    }
    if let Some(metric) = route.metric {
        message = message.priority(metric);
    }
    message = match &route.hop {
        NextHop::Device(index) => {
            message = message.output_interface(*index);
            if destination.addr().is_ipv4() {
                message = message.scope(RouteScope::Link);
            }
            message
        }
        NextHop::Gateway(gateway, index) => message.output_interface(*index).gateway(*gateway)?.onlink(),
        NextHop::OneOf(gateways, index) => {
            let family = match destination {
                IpNet::V4(_) => AddressFamily::Inet,
                IpNet::V6(_) => AddressFamily::Inet6,
            };
            let hops = gateways.iter().map(|gateway| {
                let hop = RouteNextHopBuilder::new(family).interface(*index);
                Ok(hop.via(*gateway)?.build())
            });
            message.multipath(hops.collect::<Result<_, Box<dyn std::error::Error>>>()?)
        }
        NextHop::Blackhole => message.kind(RouteType::BlackHole),
    };
    Ok(message.build())
}
