//! A packet's walk through one machine.
//!
//! `hooks` orders tables, `tables` walks chains, `check` evaluates matches, `act` performs targets. For matches on an
//! `unknown_fact`, `undecided` asks `assumed_facts` or walks both answers.

mod act;
mod assumed_facts;
mod bridge;
mod check;
mod discovery;
mod hooks;
mod ipvs;
mod nft;
mod recent;
mod sets;
mod tables;
mod undecided;
mod unknown_fact;

pub(crate) use nft::arp;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

pub(crate) use discovery::DiscoveryPath;

use crate::chance::Chance;
use crate::conntrack::{AttachedConnection, ConntrackTable, TrackingState, Zones};
use crate::host::route::RouteQuery;
use crate::host::{Host, IpsecDirection, LOOPBACK};
use crate::packet::Packet;
use crate::protocol::Family;
use crate::rules::ct::Zone;
use crate::rules::target::RejectWith;
use crate::trace::{DropReason, ElementRef, Event, NotModelled, RuleRef, Trace};

#[derive(Debug, Clone, Default)]
pub(crate) struct HostState {
    pub(crate) connections: ConntrackTable,
    pub(crate) recent: recent::RecentLists,
    /// Counters of `statistic --mode nth`.
    nth: BTreeMap<(Family, usize), u32>,
    /// Credit of `limit` in milliseconds, and the last update's time.
    limits: BTreeMap<(Family, usize), (u64, u64)>,
    pub(crate) ipvs: crate::ipvs::connections::IpvsState,
    nft: nft::NftState,
    changed: BTreeSet<Arc<str>>,
    assumed_facts: assumed_facts::AssumedFacts,
}

impl HostState {
    pub(crate) fn rules_changed(&mut self, host: &Host) {
        self.nth.clear();
        self.limits.clear();
        self.nft.rules_changed(&host.nft);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Skb {
    pub(crate) packet: Packet,
    pub(crate) mark: u32,
    pub(crate) input: Option<usize>,
    pub(crate) output: Option<usize>,
    pub(crate) port_in: Option<usize>,
    pub(crate) port_out: Option<usize>,
    pub(crate) bridged: bool,
    pub(crate) attached: Option<AttachedConnection>,
    pub(crate) untracked: bool,
    /// The zone of the first CT rule.
    pub(crate) template: Option<Zone>,
    pub(crate) origin: PacketOrigin,
    /// The hop limit, if a rule has set it.
    pub(crate) hop_limit: Option<KnownHopLimit>,
    /// `skb->ipvs_property`.
    pub(crate) by_ipvs: bool,
    /// The operation of an ARP packet.
    pub(crate) arp: Option<u16>,
    pub(crate) way: Option<PacketRoute>,
}

#[derive(Debug, Clone)]
pub(crate) struct KnownHopLimit {
    pub(crate) value: u8,
    /// The rule that changed it last; `None` in a packet of neighbour discovery.
    pub(crate) rule: Option<RuleRef>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketOrigin {
    Elsewhere,
    Socket,
    Kernel,
}

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
            hop_limit: None,
            by_ipvs: false,
            arp: None,
            way: None,
        }
    }

    pub(crate) fn look(&self) -> RouteQuery {
        let input = self.input.unwrap_or(LOOPBACK);
        RouteQuery { to: self.packet.destination, from: Some(self.packet.source), mark: self.mark, input }
    }

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

#[derive(Debug, Clone)]
pub(crate) enum PacketExit {
    Here(Packet),
    Out { interface: usize, next_hop: IpAddr, packet: Packet },
    Port { port: usize, next_hop: IpAddr, packet: Packet },
    Lost(DropReason),
    Rejected { with: RejectWith, answer: Option<Box<Skb>> },
}

pub(crate) enum HookResult {
    On,
    Ends(PacketExit),
}

pub(crate) trait BridgePorts {
    fn port_towards(&self, bridge: usize, next_hop: IpAddr) -> Option<usize>;
}

pub(crate) struct Walker<'a> {
    pub(crate) host: &'a Host,
    pub(crate) state: &'a mut HostState,
    pub(crate) chance: &'a mut Chance,
    pub(crate) trace: &'a mut Trace,
    pub(crate) elements: &'a mut Vec<ElementRef>,
    pub(crate) ports: &'a dyn BridgePorts,
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

    /// Walks a received packet. `next_hop` stands for the destination MAC.
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
        let leaves = match (self.nft_device(interface, true, &mut skb), bridge) {
            (HookResult::Ends(leaves), _) => leaves,
            (HookResult::On, Some(bridge)) => self.over_bridge(skb, bridge, interface, next_hop),
            (HookResult::On, None) => self.incoming(skb),
        };
        self.settle(leaves)
    }

    /// Returns the end of a path at a fact that no rule states and that is not modelled.
    fn unknown(&self, what: &str) -> DropReason {
        let (host, what) = (self.host.name.clone(), what.into());
        let part = NotModelled { host, rule: None, name: "".into(), what, why: "is not modelled".into() };
        DropReason::NotModelled(Box::new(part))
    }

    /// Ends the path if a policy of IPsec takes the packet.
    fn ipsec(&mut self, direction: IpsecDirection, skb: &Skb) -> HookResult {
        match self.host.ipsec_policy(direction, &skb.packet) {
            Some(policy) => HookResult::Ends(self.lose(self.unknown(&policy.to_string()))),
            None => HookResult::On,
        }
    }

    fn settle(&mut self, leaves: PacketExit) -> PacketExit {
        if !matches!(leaves, PacketExit::Rejected { answer: Some(_), .. }) {
            self.state.connections.forget_unconfirmed();
        }
        leaves
    }

    pub(crate) fn send(&mut self, packet: Packet) -> PacketExit {
        self.set_out(Skb { origin: PacketOrigin::Socket, ..Skb::new(packet) })
    }

    pub(crate) fn emit(&mut self, skb: Skb) -> PacketExit {
        self.set_out(Skb { origin: PacketOrigin::Kernel, ..skb })
    }

    fn set_out(&mut self, skb: Skb) -> PacketExit {
        self.note(Event::Sent { host: self.host.name.clone(), packet: skb.packet.clone() });
        let leaves = self.outgoing(skb);
        self.settle(leaves)
    }

    /// Decrements a known hop limit for forwarding (`ip_forward`, `ip6_forward`).
    fn hop(&self, skb: &mut Skb) -> Result<(), DropReason> {
        let Some(known) = &mut skb.hop_limit else { return Ok(()) };
        if known.value <= 1 {
            return Err(DropReason::HopLimit(known.rule.clone()));
        }
        known.value -= 1;
        Ok(())
    }

    fn is_loopback(&self, interface: usize) -> bool {
        interface == LOOPBACK
    }
}
