//! IPVS handles requests at INPUT and OUTPUT, replies also at FORWARD (net/netfilter/ipvs/ip_vs_core.c, ip_vs_xmit.c,
//! ip_vs_nfct.c).

use std::net::SocketAddr;

use super::{HookResult, PacketRoute, Skb, Walker};
use crate::conntrack::FlowDirection;
use crate::hook::Hook;
use crate::ipvs::Forwarding;
use crate::ipvs::connections::{IpvsConnection, NoConnection, SeenPacket};
use crate::packet::PacketBody;
use crate::rules::matches::{Ipvs, IpvsCondition};
use crate::rules::target::RejectWith;
use crate::trace::{DropReason, Event, NotModelled};

impl Walker<'_> {
    /// Follows `ipvs_mt`.
    pub(super) fn ipvs_match(&self, asked: &Ipvs, skb: &Skb) -> bool {
        if asked.connection.is_empty() {
            return asked.handled.is_none_or(|test| test.judge(skb.by_ipvs));
        }
        // Finds only requests that IPVS has sent on: the lookup is by client and server.
        let found = if skb.by_ipvs { self.state.ipvs.forwarded(&skb.packet, self.now) } else { None };
        found
            .is_some_and(|connection| asked.connection.iter().all(|asked| self.ipvs_condition(asked, &connection, skb)))
    }

    fn ipvs_condition(&self, asked: &IpvsCondition, connection: &IpvsConnection, skb: &Skb) -> bool {
        let virtual_address = connection.virtual_address;
        match asked {
            IpvsCondition::Protocol(test) => test.judge(test.is == connection.protocol),
            IpvsCondition::Address(test) => test.judge(test.is.contains(virtual_address.ip())),
            IpvsCondition::Port(test) => test.judge(test.is == virtual_address.port()),
            // A persistence template has the port of its virtual service.
            IpvsCondition::ControlPort(test) => {
                test.judge(connection.is_persistent() && test.is == virtual_address.port())
            }
            IpvsCondition::Original(original) => {
                skb.attached.is_some_and(|attached| (attached.direction == FlowDirection::Original) == *original)
            }
            IpvsCondition::Method(test) => test.judge(test.is == Forwarding::Masquerade),
        }
    }

    /// Follows `ip_vs_out_hook`.
    pub(super) fn ipvs_reply(&mut self, skb: &mut Skb) -> HookResult {
        if skb.by_ipvs || self.host.services.is_empty() {
            return HookResult::On;
        }
        if let PacketBody::Error { about, .. } = &skb.packet.body {
            let about = (**about).clone();
            self.ipvs_error(&about, skb);
            return HookResult::On;
        }
        let Some(connection) = self.state.ipvs.answered(&skb.packet, self.now) else {
            return HookResult::On;
        };
        skb.packet.source = connection.virtual_address.ip();
        skb.packet.set_source_port(connection.virtual_address.port());
        skb.by_ipvs = true;
        self.note(Event::Translated { by: "un-IPVS", packet: skb.packet.clone() });
        HookResult::On
    }

    fn ipvs_error(&mut self, about: &crate::packet::Packet, skb: &mut Skb) {
        let Some(answer) = about.answer() else {
            return;
        };
        let Some(connection) = self.state.ipvs.answered(&answer, self.now) else {
            return;
        };
        let virtual_address = connection.virtual_address;
        if skb.packet.source == connection.server.ip() {
            skb.packet.source = virtual_address.ip();
        }
        if let PacketBody::Error { about, .. } = &mut skb.packet.body {
            about.destination = virtual_address.ip();
            about.set_destination_port(virtual_address.port());
        }
        skb.by_ipvs = true;
        self.note(Event::Translated { by: "un-IPVS", packet: skb.packet.clone() });
    }

    /// Follows `ip_vs_in_hook`.
    pub(super) fn ipvs_request(&mut self, hook: Hook, skb: &mut Skb) -> HookResult {
        let host = self.host;
        if skb.by_ipvs || host.services.is_empty() {
            return HookResult::On;
        }
        let known = skb.attached.and_then(|attached| self.state.connections.get(attached.id));
        let known = known.is_some_and(|connection| connection.confirmed);
        let seen = SeenPacket { packet: &skb.packet, mark: skb.mark, known };
        let (services, sysctls) = (&host.services, &host.sysctls);
        let called = self.state.ipvs.called(&seen, services, sysctls, self.now, self.chance);
        let (connection, chosen) = match called {
            Ok(found) => found,
            Err(NoConnection::Passes) => return HookResult::On,
            Err(NoConnection::NotModelled(what)) => {
                let part = NotModelled {
                    host: host.name.clone(),
                    rule: None,
                    name: "".into(),
                    what: format!("IPVS, {}: {}", what.service, what.what).into(),
                    why: what.why.into(),
                };
                return HookResult::Ends(self.lose(DropReason::NotModelled(Box::new(part))));
            }
            Err(NoConnection::Gone) => return HookResult::Ends(self.lose(DropReason::ServerGone)),
            Err(NoConnection::Reused) => return HookResult::Ends(self.lose(DropReason::PortReused)),
            Err(NoConnection::NoServer) => {
                let with = RejectWith::port_unreachable(skb.packet.family());
                return match self.reject(with, skb) {
                    super::act::TargetResult::Ends(leaves) => HookResult::Ends(leaves),
                    _ => HookResult::On,
                };
            }
        };
        let scheduler = self.scheduler_of(&connection);
        self.note(Event::Scheduled {
            service: connection.virtual_address,
            scheduler,
            server: connection.server,
            share: chosen.and_then(|chosen| chosen.share),
        });
        self.hand_over(hook, connection.server, skb)
    }

    fn scheduler_of(&self, connection: &IpvsConnection) -> &'static str {
        let address = connection.virtual_address;
        let at = self.host.services.find(connection.protocol, address.ip(), address.port());
        at.map_or("", |at| self.host.services.services[at].scheduler.name())
    }

    /// Follows `ip_vs_nat_xmit`.
    fn hand_over(&mut self, hook: Hook, server: SocketAddr, skb: &mut Skb) -> HookResult {
        skb.packet.destination = server.ip();
        skb.packet.set_destination_port(server.port());
        skb.by_ipvs = true;
        self.note(Event::Translated { by: "IPVS", packet: skb.packet.clone() });
        if self.host.sysctls.vs_conntrack {
            if let Some(attached) = skb.attached {
                self.state.connections.serve_by(attached, server);
            }
        } else {
            (skb.attached, skb.untracked) = (None, true);
        }
        if let Err(why) = self.route_out(skb) {
            return HookResult::Ends(self.lose(why));
        }
        if matches!(skb.way, Some(PacketRoute::Out { .. }))
            && let Err(why) = self.hop(skb)
        {
            return HookResult::Ends(self.lose(why));
        }
        if skb.way == Some(PacketRoute::Here) {
            // ip_vs_nat_xmit refuses loopback.
            if server.ip().is_loopback() && hook == Hook::Input {
                return HookResult::Ends(self.lose(DropReason::Loopback));
            }
            return HookResult::On;
        }
        skb.input = None;
        let mut again = skb.clone();
        match self.output_hook(&mut again) {
            HookResult::Ends(leaves) => HookResult::Ends(leaves),
            HookResult::On => HookResult::Ends(self.leave(again)),
        }
    }
}
