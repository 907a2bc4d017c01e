//! ARP packets in chains of the families arp, bridge and netdev. Source and destination of the packet are the sender's and the
//! target's address.

use std::net::IpAddr;

use super::RuleAbort;
use crate::hook::Hook;
use crate::host::Host;
use crate::nft::selector::{ArpField, PacketField};
use crate::packet::{Packet, PacketBody};
use crate::protocol::Protocol;
use crate::trace::{DropReason, Event};
use crate::walk::{HookResult, PacketExit, Skb, Walker};

/// `ARPOP_…` (include/uapi/linux/if_arp.h).
pub(crate) const REQUEST: u16 = 1;
pub(crate) const REPLY: u16 = 2;

/// An ARP packet's way through a machine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ArpWay {
    /// Received by an interface, or a bridge's port.
    In(usize),
    /// Sent by an interface to a neighbour.
    Out(usize, IpAddr),
    /// From one port of a bridge to another.
    Across(usize, usize),
}

impl<'a> Walker<'a> {
    /// Walks an ARP packet. Its events are kept only if it is lost, or depends on an unknown fact.
    pub(crate) fn arp(&mut self, operation: u16, sender: IpAddr, target: IpAddr, way: ArpWay) -> Option<DropReason> {
        let packet = Packet { source: sender, destination: target, body: PacketBody::Other(Protocol(0)) };
        let mut skb = Skb { arp: Some(operation), ..Skb::new(packet) };
        let before = std::mem::take(self.trace);
        let result = match way {
            ArpWay::In(interface) => self.arp_in(interface, &mut skb),
            ArpWay::Out(interface, next_hop) => self.arp_out(interface, next_hop, &mut skb),
            ArpWay::Across(from, to) => self.arp_across(from, to, &mut skb),
        };
        let events = std::mem::replace(self.trace, before);
        let lost = match result {
            HookResult::Ends(PacketExit::Lost(why)) => Some(why),
            _ => None,
        };
        let is_open = |event: &Event| matches!(event, Event::Undecided { .. } | Event::Assumed { .. });
        if lost.is_some() || events.iter().any(is_open) {
            self.note(Event::Arp { host: self.host.name.clone(), request: operation == REQUEST, sender, target });
            self.trace.extend(events);
        }
        lost
    }

    fn arp_in(&mut self, interface: usize, skb: &mut Skb) -> HookResult {
        let host: &'a Host = self.host;
        if let HookResult::Ends(leaves) = self.nft_device(interface, true, skb) {
            return HookResult::Ends(leaves);
        }
        let bridge = host.bridge_of[interface];
        if bridge.is_some() {
            skb.port_in = Some(interface);
            if let HookResult::Ends(leaves) = self.arp_bridged(&[Hook::Prerouting, Hook::Input], skb) {
                return HookResult::Ends(leaves);
            }
        }
        (skb.input, skb.output) = (Some(bridge.unwrap_or(interface)), None);
        self.nft_run(&host.nft.arp[Hook::Input as usize], Hook::Input, skb)
    }

    fn arp_out(&mut self, interface: usize, next_hop: IpAddr, skb: &mut Skb) -> HookResult {
        let host: &'a Host = self.host;
        (skb.input, skb.output) = (None, Some(interface));
        if let HookResult::Ends(leaves) = self.nft_run(&host.nft.arp[Hook::Output as usize], Hook::Output, skb) {
            return HookResult::Ends(leaves);
        }
        self.out_of(skb, interface, next_hop)
    }

    fn arp_across(&mut self, from: usize, to: usize, skb: &mut Skb) -> HookResult {
        (skb.port_in, skb.port_out) = (Some(from), Some(to));
        if let HookResult::Ends(leaves) = self.nft_device(from, true, skb) {
            return HookResult::Ends(leaves);
        }
        match self.arp_bridged(&[Hook::Prerouting, Hook::Forward, Hook::Postrouting], skb) {
            HookResult::On => self.nft_device(to, false, skb),
            ended => ended,
        }
    }

    fn arp_bridged(&mut self, hooks: &[Hook], skb: &mut Skb) -> HookResult {
        for hook in hooks {
            if let HookResult::Ends(leaves) = self.nft_bridge(*hook, skb, ..) {
                return HookResult::Ends(leaves);
            }
        }
        HookResult::On
    }

    /// Returns a field of an ARP packet for IPv4 over Ethernet; hardware addresses are unknown.
    pub(super) fn nft_arp_field(&self, field: &PacketField, operation: u16, skb: &Skb) -> Result<u128, RuleAbort> {
        Ok(match field {
            PacketField::Arp(ArpField::Hardware) => 1,
            PacketField::Arp(ArpField::Protocol) => 0x0800,
            PacketField::Arp(ArpField::HardwareLength) => 6,
            PacketField::Arp(ArpField::ProtocolLength) => 4,
            PacketField::Arp(ArpField::Operation) => u128::from(operation),
            PacketField::Arp(ArpField::Address { source }) => {
                crate::masked::bits(if *source { skb.packet.source } else { skb.packet.destination })
            }
            PacketField::EtherType => 0x0806,
            PacketField::Mark => u128::from(skb.mark),
            PacketField::Interface { input } | PacketField::InterfaceName { input } => {
                let by_name = matches!(field, PacketField::InterfaceName { .. });
                self.nft_interface(if *input { skb.input } else { skb.output }, by_name)
            }
            _ => return Err(RuleAbort::Break),
        })
    }
}
