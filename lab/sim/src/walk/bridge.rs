//! Packets between bridge ports (net/bridge/br_input.c, br_forward.c, br_netfilter_hooks.c).

use std::net::IpAddr;

use super::{HookResult, PacketExit, PacketRoute, Skb, Walker};
use crate::hook::Hook;
use crate::host::route::RouteDecision;
use crate::protocol::Family;
use crate::trace::{DropReason, Event};

/// `NF_BR_PRI_BRNF`: at this priority the bridge calls PREROUTING and FORWARD; POSTROUTING is last.
const NETFILTER: i32 = 0;

macro_rules! on {
    ($fate:expr) => {
        if let HookResult::Ends(leaves) = $fate {
            return leaves;
        }
    };
}

impl Walker<'_> {
    /// Walks a packet that a bridge port received. `next_hop` stands for the destination MAC.
    pub(super) fn over_bridge(&mut self, mut skb: Skb, bridge: usize, port: usize, next_hop: IpAddr) -> PacketExit {
        let filtered = match skb.packet.family() {
            Family::V4 => self.host.sysctls.bridge_nf_call_iptables,
            Family::V6 => self.host.sysctls.bridge_nf_call_ip6tables,
        };
        on!(self.nft_bridge(Hook::Prerouting, &mut skb, ..=NETFILTER));
        let meant = skb.packet.destination;
        if filtered {
            on!(self.prerouting(&mut skb));
        }
        on!(self.nft_bridge(Hook::Prerouting, &mut skb, NETFILTER + 1..));
        if skb.packet.destination != meant {
            // br_nf_pre_routing_finish: DNAT to a neighbour stays in the bridge, so pods that call themselves need
            // hairpin mode.
            return match self.input_route(&skb) {
                Ok(RouteDecision::Out(way)) if way.interface == bridge => {
                    self.stay(skb, bridge, port, way.next_hop, true)
                }
                Ok(_) => self.pass_up(skb, bridge, true),
                Err(why) => self.lose(why),
            };
        }
        if self.host.is_local(next_hop) {
            self.pass_up(skb, bridge, filtered)
        } else {
            self.stay(skb, bridge, port, next_hop, filtered)
        }
    }

    /// Receives by the bridge itself. `filtered`: PREROUTING is done.
    fn pass_up(&mut self, mut skb: Skb, bridge: usize, filtered: bool) -> PacketExit {
        on!(self.nft_bridge(Hook::Input, &mut skb, ..));
        on!(self.nft_device(bridge, true, &mut skb));
        if filtered { self.routed(skb) } else { self.incoming(skb) }
    }

    /// Forwards on layer 2, with the bridge as both interfaces.
    fn stay(&mut self, mut skb: Skb, bridge: usize, port: usize, next_hop: IpAddr, filtered: bool) -> PacketExit {
        let Some(out) = self.ports.port_towards(bridge, next_hop) else {
            return self.lose(DropReason::NoNeighbour(next_hop));
        };
        let ports = &self.host.interfaces;
        if out == port && !ports[port].hairpin {
            return self.lose(DropReason::NoHairpin);
        }
        if ports[port].isolated && ports[out].isolated {
            let names = &self.host.names;
            return self.lose(DropReason::Isolated { from: names[port].clone(), to: names[out].clone() });
        }
        if let Some(why) = self.host.blocked(out) {
            return self.lose(why);
        }
        skb.output = Some(bridge);
        skb.port_out = Some(out);
        skb.bridged = true;
        skb.way = Some(PacketRoute::Out { interface: bridge, next_hop });
        self.note(Event::Bridged { port: self.host.names[out].clone() });
        on!(self.nft_bridge(Hook::Forward, &mut skb, ..=NETFILTER));
        if filtered {
            on!(self.forward(&mut skb));
        }
        on!(self.nft_bridge(Hook::Forward, &mut skb, NETFILTER + 1..));
        on!(self.nft_bridge(Hook::Postrouting, &mut skb, ..));
        if filtered {
            on!(self.postrouting(&mut skb));
        }
        on!(self.nft_device(out, false, &mut skb));
        PacketExit::Port { port: out, next_hop, packet: skb.packet }
    }

    /// Sends by an interface; a bridge sends by its port towards `next_hop`.
    pub(super) fn out_of(&mut self, skb: &mut Skb, interface: usize, next_hop: IpAddr) -> HookResult {
        if let HookResult::Ends(leaves) = self.nft_device(interface, false, skb) {
            return HookResult::Ends(leaves);
        }
        if !self.host.nft.sees_frames() || !self.host.bridge_of.contains(&Some(interface)) {
            return HookResult::On;
        }
        // Without a port the packet is lost on the link.
        let Some(port) = self.ports.port_towards(interface, next_hop) else { return HookResult::On };
        skb.port_out = Some(port);
        for hook in [Hook::Output, Hook::Postrouting] {
            if let HookResult::Ends(leaves) = self.nft_bridge(hook, skb, ..) {
                return HookResult::Ends(leaves);
            }
        }
        self.nft_device(port, false, skb)
    }
}
