//! Packets of neighbour discovery on one machine.

use std::net::IpAddr;

use super::{HookResult, KnownHopLimit, PacketExit, PacketOrigin, PacketRoute, Skb, Walker};
use crate::hook::Hook;
use crate::packet::Packet;
use crate::trace::{DropReason, Event};

/// How a machine meets a packet of neighbour discovery; interfaces are not bridges.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DiscoveryPath {
    Sent(usize),
    Received(usize),
    /// From one bridge port to another.
    Bridged(usize, usize),
}

/// RFC 4861 requires this value.
const HOP_LIMIT: u8 = 255;

macro_rules! on {
    ($fate:expr) => {
        if let HookResult::Ends(leaves) = $fate {
            return HookResult::Ends(leaves);
        }
    };
}

impl Walker<'_> {
    /// Returns why rules drop a packet of neighbour discovery, which goes to the machine with address `to`.
    pub(crate) fn discovery(&mut self, packet: Packet, path: DiscoveryPath, to: IpAddr) -> Option<DropReason> {
        let mut skb = Skb::new(packet);
        skb.hop_limit = Some(KnownHopLimit { value: HOP_LIMIT, rule: None });
        let passed = match path {
            DiscoveryPath::Sent(interface) => self.discovery_sent(&mut skb, interface, to),
            DiscoveryPath::Received(interface) => self.discovery_received(&mut skb, interface),
            DiscoveryPath::Bridged(from, port) => self.discovery_bridged(&mut skb, from, port, to),
        };
        match passed {
            HookResult::Ends(PacketExit::Lost(why)) => is_filter(&why).then_some(why),
            // The kernel ignores the packet if its hop limit has changed.
            HookResult::On => {
                let changed = skb.hop_limit.filter(|limit| limit.value != HOP_LIMIT);
                changed.map(|limit| DropReason::HopLimit(limit.rule))
            }
            HookResult::Ends(PacketExit::Rejected { .. }) => self.last_rule(),
            HookResult::Ends(_) => None,
        }
    }

    fn last_rule(&self) -> Option<DropReason> {
        self.trace.iter().rev().find_map(|event| match event {
            Event::Matched(rule) => Some(DropReason::Rule(rule.clone())),
            Event::NftMatched(rule) => Some(DropReason::NftRule(rule.clone())),
            _ => None,
        })
    }

    fn discovery_sent(&mut self, skb: &mut Skb, interface: usize, to: IpAddr) -> HookResult {
        let device = self.host.bridge_of[interface].unwrap_or(interface);
        skb.origin = PacketOrigin::Kernel;
        skb.way = Some(PacketRoute::Out { interface: device, next_hop: to });
        on!(self.output_hook(skb));
        on!(self.postrouting(skb));
        self.out_of(skb, device, to)
    }

    fn discovery_received(&mut self, skb: &mut Skb, interface: usize) -> HookResult {
        let bridge = self.host.bridge_of[interface];
        skb.input = Some(bridge.unwrap_or(interface));
        skb.port_in = bridge.map(|_| interface);
        on!(self.nft_device(interface, true, skb));
        if let Some(bridge) = bridge {
            on!(self.nft_bridge(Hook::Prerouting, skb, ..));
            on!(self.nft_bridge(Hook::Input, skb, ..));
            on!(self.nft_device(bridge, true, skb));
        }
        on!(self.prerouting(skb));
        self.input_hook(skb)
    }

    /// The order of the bridge's hooks and the other families' decides no drop.
    fn discovery_bridged(&mut self, skb: &mut Skb, from: usize, port: usize, to: IpAddr) -> HookResult {
        let bridge = self.host.bridge_of[from].unwrap_or(from);
        skb.input = Some(bridge);
        skb.port_in = Some(from);
        on!(self.nft_device(from, true, skb));
        on!(self.nft_bridge(Hook::Prerouting, skb, ..));
        let filtered = self.host.sysctls.bridge_nf_call_ip6tables;
        if filtered {
            on!(self.prerouting(skb));
        }
        (skb.output, skb.port_out, skb.bridged) = (Some(bridge), Some(port), true);
        skb.way = Some(PacketRoute::Out { interface: bridge, next_hop: to });
        on!(self.nft_bridge(Hook::Forward, skb, ..));
        on!(self.nft_bridge(Hook::Postrouting, skb, ..));
        if filtered {
            on!(self.forward(skb));
            on!(self.postrouting(skb));
        }
        self.nft_device(port, false, skb)
    }
}

/// Whether rules, not routes, lose the packet: routes of multicast and link-local addresses are not modelled.
fn is_filter(why: &DropReason) -> bool {
    matches!(
        why,
        DropReason::Rule(_)
            | DropReason::Policy(..)
            | DropReason::NftRule(_)
            | DropReason::NftPolicy(_)
            | DropReason::NotModelled(_)
    )
}
