//! Links, addresses, routes and neighbours of one namespace, over route netlink.
//!
//! Interface numbers are chosen by the caller: no look-ups, and the same cluster has the same numbers each time.

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

/// How long a new interface may take to work; milliseconds are usual.
const WORKING_WITHIN: Duration = Duration::from_secs(5);

/// A bridge to make.
#[derive(Debug, Clone, Copy)]
pub struct Bridge<'a> {
    /// Interface name.
    pub name: &'a str,
    /// Interface number.
    pub index: u32,
    /// Hardware address.
    pub mac: Mac,
}

/// A VXLAN device to make.
#[derive(Debug, Clone, Copy)]
pub struct Vxlan<'a> {
    /// Interface name.
    pub name: &'a str,
    /// Interface number.
    pub index: u32,
    /// Hardware address.
    pub mac: Mac,
    /// Number of the overlay (VNI).
    pub vni: u32,
    /// UDP port of the outer packets, of both ends.
    pub port: u16,
    /// Source address of the outer packets.
    pub local: IpAddr,
    /// Largest inner packet.
    pub mtu: u32,
}

/// One end of a veth pair to make.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// Interface name.
    pub name: &'a str,
    /// Interface number in its namespace.
    pub index: u32,
    /// Hardware address.
    pub mac: Mac,
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextHop {
    /// Straight out of an interface.
    Device(u32),
    /// To a gateway that is reached through an interface.
    Gateway(IpAddr, u32),
    /// To one of several gateways through an interface, chosen by the flow's hash.
    OneOf(Vec<IpAddr>, u32),
    /// Nowhere, silently.
    Blackhole,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub destination: IpNet,
    /// Which way.
    pub hop: NextHop,
    /// Source address of connections that start here, if not the kernel's choice.
    pub source: Option<IpAddr>,
    /// Metric (`RTA_PRIORITY`), lower wins; the kernel's default when `None`.
    pub metric: Option<u32>,
}

impl Route {
    /// A route without preferred source or metric.
    pub fn new(destination: IpNet, hop: NextHop) -> Route {
        Route { destination, hop, source: None, metric: None }
    }
}

/// A route netlink socket that was opened in the namespace.
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
    /// Opens the socket; call on the thread that lives in the namespace.
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

    /// Waits until an interface works: the kernel makes it so a moment after the link came up, and drops what is sent
    /// before.
    pub async fn working(&self, index: u32) -> Result<(), NetnsError> {
        let up = LinkAttribute::OperState(State::Up);
        self.wait_for(format!("interface {index} to work"), async || {
            let mut links = self.handle.link().get().match_index(index).execute();
            let link = links.try_next().await?;
            Ok(link.is_some_and(|link| link.attributes.contains(&up)))
        })
        .await
    }

    /// Makes a bridge, up, without multicast snooping (there is no querier to learn from).
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

    /// Makes a veth pair: `near` here, up (a port of bridge `controller`, if given), `far` in the namespace of this descriptor.
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

    /// Makes a VXLAN device, up, that learns nothing: where its neighbours are, [`Links::add_tunnel`] says.
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

    /// Tells a VXLAN device at which host a hardware address is.
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

    /// Sets the largest packet of an interface.
    pub async fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), NetnsError> {
        let message = LinkUnspec::new_with_index(index).mtu(mtu).build();
        let done = self.handle.link().change(message).execute().await;
        done.map_err(self.failed(format_args!("setting the MTU of interface {index}")))
    }

    /// Lets a bridge port send a frame back out where it came from.
    pub async fn set_hairpin(&self, port: u32, on: bool) -> Result<(), NetnsError> {
        let message = LinkBridgePort::new(port).hairpin(on).build();
        let done = self.handle.link().change(message).execute().await;
        done.map_err(self.failed(format_args!("setting hairpin mode on port {port}")))
    }

    /// Makes an interface a port of bridge `controller`, or of none: then no frame passes, though both ends of its cable
    /// keep their carrier. (The state `disabled` of a port is no way to do that: a bridge without spanning tree sets it to
    /// `forwarding` again at once.)
    pub async fn set_controller(&self, index: u32, controller: Option<u32>) -> Result<(), NetnsError> {
        let message = LinkUnspec::new_with_index(index);
        let message = match controller {
            Some(bridge) => message.controller(bridge),
            None => message.nocontroller(),
        };
        let done = self.handle.link().change(message.build()).execute().await;
        done.map_err(self.failed(format_args!("making interface {index} a port of {controller:?}")))
    }

    /// Removes an interface (and its peer).
    pub async fn remove(&self, index: u32) -> Result<(), NetnsError> {
        let done = self.handle.link().del(index).execute().await;
        done.map_err(self.failed(format_args!("removing interface {index}")))
    }

    /// Adds an address that is usable at once (no duplicate address detection). A `secondary` one is never chosen as
    /// source.
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

    /// Waits until packets for an IPv6 address are delivered: the kernel sets up their route a moment later, and loses
    /// them before.
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

    /// Asks until the answer is yes.
    async fn wait_for(
        &self,
        what: String,
        holds: impl AsyncFn() -> Result<bool, rtnetlink::Error>,
    ) -> Result<(), NetnsError> {
        let end = Instant::now() + WORKING_WITHIN;
        while Instant::now() < end {
            let answer = match holds().await {
                // The kernel makes one dump at a time for a socket, and another pod of the node is asked for.
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

    /// Adds a route, or replaces the one with the same destination and metric.
    pub async fn set_route(&self, route: &Route) -> Result<(), NetnsError> {
        let attempt = format!("setting the route to {}", route.destination);
        let message = self.route_message(route, &attempt)?;
        let done = self.handle.route().add(message).replace().execute().await;
        done.map_err(self.failed(attempt))
    }

    /// Removes the route to `destination` with this metric, or with the lowest one, wherever it leads.
    pub async fn remove_route(&self, destination: IpNet, metric: Option<u32>) -> Result<(), NetnsError> {
        let attempt = format!("removing the route to {destination}");
        let route = Route { metric, ..Route::new(destination, NextHop::Blackhole) };
        let mut message = self.route_message(&route, &attempt)?;
        // As `ip route del` says "whatever kind".
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
