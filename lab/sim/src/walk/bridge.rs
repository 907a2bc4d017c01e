//! Packets between bridge ports (net/bridge/br_netfilter_hooks.c).

use std::net::IpAddr;

use super::{HookResult, PacketExit, PacketRoute, Skb, Walker};
use crate::host::route::RouteDecision;
use crate::protocol::Family;
use crate::trace::{DropReason, Event};

impl Walker<'_> {
    /// Walks a packet that a bridge port received. `next_hop` stands for the destination MAC.
    pub(super) fn over_bridge(&mut self, mut skb: Skb, bridge: usize, port: usize, next_hop: IpAddr) -> PacketExit {
        let filtered = match skb.packet.family() {
            Family::V4 => self.host.sysctls.bridge_nf_call_iptables,
            Family::V6 => self.host.sysctls.bridge_nf_call_ip6tables,
        };
        let to_me = self.host.is_local(next_hop);
        if !filtered {
            return if to_me { self.incoming(skb) } else { self.stay(skb, bridge, port, next_hop, false) };
        }
        let meant = skb.packet.destination;
        if let HookResult::Ends(leaves) = self.prerouting(&mut skb) {
            return leaves;
        }
        if skb.packet.destination != meant {
            // br_nf_pre_routing_finish: DNAT to a neighbour stays in the bridge, so pods that call themselves need
            // hairpin mode.
            return match self.input_route(&skb) {
                Ok(RouteDecision::Out(way)) if way.interface == bridge => {
                    self.stay(skb, bridge, port, way.next_hop, true)
                }
                Ok(_) => self.routed(skb),
                Err(why) => self.lose(why),
            };
        }
        if to_me { self.routed(skb) } else { self.stay(skb, bridge, port, next_hop, true) }
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
        if filtered {
            for hook in [Walker::forward, Walker::postrouting] {
                if let HookResult::Ends(leaves) = hook(self, &mut skb) {
                    return leaves;
                }
            }
        }
        PacketExit::Port { port: out, next_hop, packet: skb.packet }
    }
}
