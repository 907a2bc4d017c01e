//! A packet's way through one machine, in the kernel's order.
//!
//! `hooks` is the order of everything, `tables` walks chains, `check` asks matches, `act` does what targets do, `ipvs`
//! stands at its three hooks, `bridge` is for ports of a bridge, `program` is what `compile` makes of rules, `recent` keeps
//! lists of addresses, `nft` walks the chains of nftables. `unsure` asks what nobody can answer (`question`), and `answers`
//! remembers which answer was taken.

mod act;
mod assumed_facts;
mod bridge;
mod check;
mod hooks;
mod ipvs;
mod nft;
mod recent;
mod tables;
mod undecided;
mod unknown_fact;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::chance::Chance;
use crate::conntrack::{AttachedConnection, ConntrackTable, TrackingState, Zones};
use crate::host::route::RouteQuery;
use crate::host::{Host, LOOPBACK};
use crate::packet::Packet;
use crate::protocol::Family;
use crate::rules::ct::Zone;
use crate::rules::target::RejectWith;
use crate::trace::{DropReason, Event, Trace};

/// What packets leave behind on a machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostState {
    pub(crate) connections: ConntrackTable,
    pub(crate) recent: recent::RecentLists,
    /// Counters of `statistic --mode nth`.
    nth: BTreeMap<(Family, usize), u32>,
    /// What each `limit` has left in milliseconds, and when that was.
    limits: BTreeMap<(Family, usize), (u64, u64)>,
    pub(crate) ipvs: crate::ipvs::connections::IpvsState,
    nft: nft::NftState,
    /// Names of sets that rules have changed.
    changed: BTreeSet<Arc<str>>,
    assumed_facts: assumed_facts::AssumedFacts,
}

impl HostState {
    /// New rules count from the beginning.
    pub(crate) fn rules_changed(&mut self, host: &Host) {
        self.nth.clear();
        self.limits.clear();
        self.nft.rules_changed(&host.nft);
    }
}

/// A packet inside a machine, with what the kernel keeps beside it.
#[derive(Debug, Clone)]
pub(crate) struct Skb {
    pub(crate) packet: Packet,
    pub(crate) mark: u32,
    pub(crate) input: Option<usize>,
    pub(crate) output: Option<usize>,
    pub(crate) port_in: Option<usize>,
    pub(crate) port_out: Option<usize>,
    /// Stays in the bridge.
    pub(crate) bridged: bool,
    pub(crate) attached: Option<AttachedConnection>,
    /// Tracking was refused by a rule.
    pub(crate) untracked: bool,
    /// The zone that a rule chose before tracking; the first rule's counts.
    pub(crate) template: Option<Zone>,
    pub(crate) origin: PacketOrigin,
    /// IPVS has handled it (`skb->ipvs_property`).
    pub(crate) by_ipvs: bool,
    /// Where it goes, once that is decided.
    pub(crate) way: Option<PacketRoute>,
}

/// Who made a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketOrigin {
    /// Another machine.
    Elsewhere,
    /// A socket of this machine.
    Socket,
    /// This machine's kernel.
    Kernel,
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketRoute {
    Here,
    Out { interface: usize, next_hop: IpAddr },
}

impl Skb {
    pub(crate) fn new(packet: Packet) -> Skb {
        Skb {
            packet,
            mark: 0,
            input: None,
            output: None,
            port_in: None,
            port_out: None,
            bridged: false,
            attached: None,
            untracked: false,
            template: None,
            origin: PacketOrigin::Elsewhere,
            by_ipvs: false,
            way: None,
        }
    }

    /// What routing looks at.
    pub(crate) fn look(&self) -> RouteQuery {
        let input = self.input.unwrap_or(LOOPBACK);
        RouteQuery { to: self.packet.destination, from: Some(self.packet.source), mark: self.mark, input }
    }

    /// The zones in which the packet is looked up.
    pub(crate) fn zones(&self) -> Zones {
        self.template.map(|zone| Zones::of(zone, self.mark)).unwrap_or_default()
    }

    pub(crate) fn tracked(&self) -> TrackingState {
        match self.attached {
            Some(attached) => attached.tracked,
            None if self.untracked => TrackingState::Untracked,
            None => TrackingState::Invalid,
        }
    }
}

/// How a packet's stay on a machine ends.
#[derive(Debug, Clone)]
pub(crate) enum PacketExit {
    /// A socket may take it.
    Here(Packet),
    /// It leaves by an interface.
    Out { interface: usize, next_hop: IpAddr, packet: Packet },
    /// It leaves by a port of the bridge that it came by.
    Port { port: usize, next_hop: IpAddr, packet: Packet },
    /// It is lost.
    Lost(DropReason),
    /// It is rejected; what is sent back is a packet of this machine, in a connection if there is one.
    Rejected { with: RejectWith, answer: Option<Box<Skb>> },
}

/// How a hook ends.
pub(crate) enum HookResult {
    /// The packet goes on.
    On,
    /// It does not.
    Ends(PacketExit),
}

/// Who hangs at a machine's bridges: known to the network, not to the machine.
pub(crate) trait BridgePorts {
    /// The port behind which somebody has that address.
    fn port_towards(&self, bridge: usize, next_hop: IpAddr) -> Option<usize>;
}

/// Walks one packet through one machine.
pub(crate) struct Walker<'a> {
    pub(crate) host: &'a Host,
    pub(crate) state: &'a mut HostState,
    pub(crate) chance: &'a mut Chance,
    pub(crate) trace: &'a mut Trace,
    pub(crate) ports: &'a dyn BridgePorts,
    /// Milliseconds of the clock.
    pub(crate) now: u64,
}

impl Walker<'_> {
    pub(crate) fn note(&mut self, event: Event) {
        self.trace.push(event);
    }

    fn lose(&mut self, why: DropReason) -> PacketExit {
        self.note(Event::Lost(why.clone()));
        PacketExit::Lost(why)
    }

    /// A packet comes in by `interface`, which may be a bridge's port. `next_hop` is whom its sender meant.
    pub(crate) fn arrive(&mut self, packet: Packet, interface: usize, next_hop: IpAddr) -> PacketExit {
        let bridge = self.host.bridge_of[interface];
        let mut skb = Skb::new(packet);
        skb.input = Some(bridge.unwrap_or(interface));
        skb.port_in = bridge.map(|_| interface);
        self.note(Event::Arrived {
            host: self.host.name.clone(),
            interface: self.host.names[bridge.unwrap_or(interface)].clone(),
            port: bridge.map(|_| self.host.names[interface].clone()),
            packet: skb.packet.clone(),
        });
        let leaves = match (self.devices(&mut skb, interface, bridge), bridge) {
            (HookResult::Ends(leaves), _) => leaves,
            (HookResult::On, Some(bridge)) => self.over_bridge(skb, bridge, interface, next_hop),
            (HookResult::On, None) => self.incoming(skb),
        };
        self.settle(leaves)
    }

    /// The chains of nftables that hang at the device that a packet comes in by, and at the bridge that it is a port of.
    fn devices(&mut self, skb: &mut Skb, interface: usize, bridge: Option<usize>) -> HookResult {
        let first = self.nft_device(interface, true, skb);
        match (first, bridge) {
            (HookResult::On, Some(bridge)) => match self.nft_bridge() {
                HookResult::On => self.nft_device(bridge, true, skb),
                ended => ended,
            },
            (first, _) => first,
        }
    }

    /// Those of the device that a packet goes out by.
    fn devices_out(&mut self, skb: &mut Skb, interface: usize) -> HookResult {
        let is_bridge = self.host.bridge_of.contains(&Some(interface));
        match if is_bridge { self.nft_bridge() } else { HookResult::On } {
            HookResult::On => self.nft_device(interface, false, skb),
            ended => ended,
        }
    }

    /// Connections whose first packet is gone are forgotten, unless an answer of the kernel's still needs one.
    fn settle(&mut self, leaves: PacketExit) -> PacketExit {
        if !matches!(leaves, PacketExit::Rejected { answer: Some(_), .. }) {
            self.state.connections.forget_unconfirmed();
        }
        leaves
    }

    /// A packet sets out from a socket here.
    pub(crate) fn send(&mut self, packet: Packet) -> PacketExit {
        self.set_out(Skb { origin: PacketOrigin::Socket, ..Skb::new(packet) })
    }

    /// A packet sets out that the kernel made, perhaps in a connection.
    pub(crate) fn emit(&mut self, skb: Skb) -> PacketExit {
        self.set_out(Skb { origin: PacketOrigin::Kernel, ..skb })
    }

    fn set_out(&mut self, skb: Skb) -> PacketExit {
        self.note(Event::Sent { host: self.host.name.clone(), packet: skb.packet.clone() });
        let leaves = self.outgoing(skb);
        self.settle(leaves)
    }

    /// Whether the interface is the loopback one.
    fn is_loopback(&self, interface: usize) -> bool {
        interface == LOOPBACK
    }
}
