//! Hooks and tables (include/uapi/linux/netfilter_ipv4.h).

use super::{HookResult, PacketExit, PacketRoute, Skb, Walker};
use crate::conntrack::nat::Manip;
use crate::conntrack::{FlowDirection, TrackingState};
use crate::hook::Hook;
use crate::host::route::{RouteDecision, RouteQuery};
use crate::host::{Host, IpsecDirection, RouteKind};
use crate::packet::PacketBody;
use crate::protocol::Family;
use crate::rules::TableName;
use crate::rules::target::RejectWith;
use crate::trace::{DropReason, Event};

/// `NF_IP_PRI_…`. Among equal priorities the latest registered hook runs first (`nf_hook_entries_grow`).
const RAW: i32 = -300;
const CONNTRACK: i32 = -200;
const MANGLE: i32 = -150;
const NAT_DST: i32 = -100;
const FILTER: i32 = 0;
const SECURITY: i32 = 50;
const NAT_SRC: i32 = 100;

macro_rules! on {
    ($fate:expr) => {
        if let HookResult::Ends(leaves) = $fate {
            return HookResult::Ends(leaves);
        }
    };
}

impl<'a> Walker<'a> {
    pub(super) fn incoming(&mut self, mut skb: Skb) -> PacketExit {
        match self.prerouting(&mut skb) {
            HookResult::Ends(leaves) => leaves,
            HookResult::On => self.routed(skb),
        }
    }

    /// Follows `ip_route_input`, `ip6_route_input`.
    pub(super) fn routed(&mut self, mut skb: Skb) -> PacketExit {
        let decision = match self.input_route(&skb) {
            Ok(decision) => decision,
            Err(why) => return self.lose(why),
        };
        match decision {
            RouteDecision::Local => {
                skb.way = Some(PacketRoute::Here);
                self.note(Event::Routed { interface: None, next_hop: None });
                self.input(skb)
            }
            RouteDecision::Out(way) => {
                let input = self.host.settings(skb.input.unwrap_or(crate::host::LOOPBACK));
                if skb.packet.family() == Family::V6 && !input.ipv6_forwarding {
                    return self.lose(DropReason::NoForwarding("net.ipv6.conf.all.forwarding".into()));
                }
                if let Err(why) = self.hop(&mut skb) {
                    return self.lose(why);
                }
                self.goes_out(&mut skb, way.interface, way.next_hop);
                if let Some(encap) = way.encap {
                    let why = self.unknown(&self.host.encaps[encap]);
                    return self.lose(why);
                }
                if let HookResult::Ends(leaves) = self.ipsec(IpsecDirection::Forward, &skb) {
                    return leaves;
                }
                match self.forward(&mut skb) {
                    HookResult::Ends(leaves) => leaves,
                    HookResult::On => self.leave(skb),
                }
            }
            RouteDecision::Broadcast => self.lose(DropReason::Broadcast),
            RouteDecision::Refused(RouteKind::Blackhole) => self.lose(DropReason::Blackhole),
            RouteDecision::Refused(_) | RouteDecision::NoRoute => self.unreachable(&skb),
        }
    }

    /// Looks up the route of a received packet, and checks its source and, for IPv4, whether the interface forwards.
    pub(super) fn input_route(&self, skb: &Skb) -> Result<RouteDecision, DropReason> {
        let decision = self.host.look_up(&skb.look());
        if let Some(why) = self.martian(skb, decision) {
            return Err(why);
        }
        let input = skb.input.unwrap_or(crate::host::LOOPBACK);
        let stays = matches!(decision, RouteDecision::Local | RouteDecision::Broadcast);
        // Where it does not forward, IPv4 sends no errors either (`ip_error`).
        if skb.packet.family() == Family::V4 && !stays && !self.host.settings(input).forwarding {
            let setting = match self.host.sysctls.ip_forward {
                false => "net.ipv4.ip_forward".into(),
                true => format!("net.ipv4.conf.{}.forwarding", self.host.names[input]).into(),
            };
            return Err(DropReason::NoForwarding(setting));
        }
        Ok(decision)
    }

    /// Follows `ip_error`, `ip6_pkt_discard`.
    fn unreachable(&mut self, skb: &Skb) -> PacketExit {
        let with = match skb.packet.family() {
            Family::V4 => RejectWith::Icmp("icmp-host-unreachable"),
            Family::V6 => RejectWith::Icmp("icmp6-no-route"),
        };
        match self.reject(with, skb) {
            super::act::TargetResult::Ends(leaves) => leaves,
            _ => self.lose(DropReason::NoRoute),
        }
    }

    fn goes_out(&mut self, skb: &mut Skb, interface: usize, next_hop: std::net::IpAddr) {
        skb.way = Some(PacketRoute::Out { interface, next_hop });
        skb.output = Some(interface);
        let interface = Some(self.host.names[interface].clone());
        self.note(Event::Routed { interface, next_hop: Some(next_hop) });
    }

    /// Follows `ip_route_input_slow`, `fib_validate_source`, `ip6_rcv_core`.
    fn martian(&self, skb: &Skb, decision: RouteDecision) -> Option<DropReason> {
        let input = skb.input.filter(|input| !self.is_loopback(*input))?;
        let (source, destination) = (skb.packet.source, skb.packet.destination);
        let settings = self.host.settings(input);
        let loopback = source.is_loopback() || destination.is_loopback();
        if loopback && !(source.is_ipv4() && settings.route_localnet) {
            return Some(DropReason::Loopback);
        }
        // Without a route to the destination the kernel does not look at the source.
        if source.is_ipv6() || !matches!(decision, RouteDecision::Local | RouteDecision::Out(_)) {
            return None;
        }
        if !settings.accept_local && self.host.is_local(source) {
            return Some(DropReason::MartianSource);
        }
        if settings.rp_filter == 0 {
            return None;
        }
        let mark = if settings.src_valid_mark { skb.mark } else { 0 };
        let back = self.host.look_up(&RouteQuery { from: Some(destination), mark, ..RouteQuery::out(source) });
        let interface = &self.host.interfaces[input];
        // An interface without addresses accepts only sources that are routed to it, in loose mode too.
        let strict = settings.rp_filter == 1 || !interface.addresses.iter().any(|own| own.ip.is_ipv4());
        match back {
            RouteDecision::Out(way) if way.interface == input || !strict => None,
            RouteDecision::Local if settings.accept_local => None,
            _ => Some(DropReason::ReversePath { interface: self.host.names[input].clone(), strict }),
        }
    }

    pub(super) fn input(&mut self, mut skb: Skb) -> PacketExit {
        skb.output = None;
        match self.input_hook(&mut skb) {
            HookResult::Ends(leaves) => leaves,
            HookResult::On if skb.input.is_some_and(|input| !self.is_loopback(input)) => {
                match self.ipsec(IpsecDirection::In, &skb) {
                    HookResult::Ends(leaves) => leaves,
                    HookResult::On => PacketExit::Here(skb.packet),
                }
            }
            HookResult::On => PacketExit::Here(skb.packet),
        }
    }

    pub(super) fn outgoing(&mut self, mut skb: Skb) -> PacketExit {
        if let Err(why) = self.route_out(&mut skb) {
            return self.lose(why);
        }
        match self.output_hook(&mut skb) {
            HookResult::Ends(leaves) => leaves,
            HookResult::On => self.leave(skb),
        }
    }

    /// Follows `ip_route_output`, `ip_route_me_harder`.
    pub(super) fn route_out(&mut self, skb: &mut Skb) -> Result<(), DropReason> {
        let before = skb.way;
        let look = RouteQuery { input: crate::host::LOOPBACK, ..skb.look() };
        match self.host.look_up(&look) {
            RouteDecision::Local => {
                skb.way = Some(PacketRoute::Here);
                if before != skb.way {
                    self.note(Event::Routed { interface: None, next_hop: None });
                }
            }
            RouteDecision::Out(way) => {
                // IPv6 has no route_localnet: replies to ::1 never arrive (observed on 6.18).
                let loopback = skb.packet.source.is_loopback();
                let routed = self.host.settings(way.interface).route_localnet;
                if loopback && !(skb.packet.source.is_ipv4() && routed) {
                    return Err(DropReason::Loopback);
                }
                if let Some(encap) = way.encap {
                    return Err(self.unknown(&self.host.encaps[encap]));
                }
                let (interface, next_hop) = (way.interface, way.next_hop);
                skb.way = Some(PacketRoute::Out { interface, next_hop });
                if before != skb.way {
                    let interface = Some(self.host.names[interface].clone());
                    self.note(Event::Routed { interface, next_hop: Some(next_hop) });
                }
            }
            RouteDecision::Broadcast => return Err(DropReason::Broadcast),
            RouteDecision::Refused(RouteKind::Blackhole) => return Err(DropReason::Blackhole),
            RouteDecision::Refused(_) | RouteDecision::NoRoute => return Err(DropReason::NoRoute),
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, mut skb: Skb) -> PacketExit {
        let out = match skb.way {
            Some(PacketRoute::Out { interface, .. }) => interface,
            Some(PacketRoute::Here) | None => crate::host::LOOPBACK,
        };
        skb.output = Some(out);
        if let HookResult::Ends(leaves) = self.postrouting(&mut skb) {
            return leaves;
        }
        // Translated addresses are looked up again (`nf_xfrm_me_harder`).
        if !self.is_loopback(out)
            && let HookResult::Ends(leaves) = self.ipsec(IpsecDirection::Out, &skb)
        {
            return leaves;
        }
        match skb.way {
            Some(PacketRoute::Out { interface, next_hop }) => match self.out_of(&mut skb, interface, next_hop) {
                HookResult::Ends(leaves) => leaves,
                // The next machine is a router.
                HookResult::On if next_hop != skb.packet.destination && self.hop(&mut skb).is_err() => {
                    let rule = skb.hop_limit.and_then(|known| known.rule);
                    self.lose(DropReason::HopLimit(rule))
                }
                HookResult::On => match self.host.blocked(interface) {
                    Some(why) => self.lose(why),
                    None => PacketExit::Out { interface, next_hop, packet: skb.packet },
                },
            },
            // Through loopback a packet keeps its connection, mark and route.
            Some(PacketRoute::Here) | None => {
                if let HookResult::Ends(leaves) = self.nft_device(crate::host::LOOPBACK, false, &mut skb) {
                    return leaves;
                }
                (skb.input, skb.output) = (Some(crate::host::LOOPBACK), None);
                if let HookResult::Ends(leaves) = self.nft_device(crate::host::LOOPBACK, true, &mut skb) {
                    return leaves;
                }
                match self.prerouting(&mut skb) {
                    HookResult::Ends(leaves) => leaves,
                    HookResult::On => self.input(skb),
                }
            }
        }
    }

    pub(super) fn prerouting(&mut self, skb: &mut Skb) -> HookResult {
        if !self.has_rules(skb) {
            return HookResult::On;
        }
        self.note(Event::Hook(Hook::Prerouting));
        on!(self.nft_filters(Hook::Prerouting, skb, ..RAW));
        on!(self.table_at(TableName::Raw, RAW, Hook::Prerouting, skb));
        on!(self.nft_filters(Hook::Prerouting, skb, RAW + 1..=CONNTRACK));
        self.track(skb);
        on!(self.nft_filters(Hook::Prerouting, skb, CONNTRACK + 1..MANGLE));
        on!(self.table_at(TableName::Mangle, MANGLE, Hook::Prerouting, skb));
        on!(self.nft_filters(Hook::Prerouting, skb, MANGLE + 1..=NAT_DST));
        on!(self.nat(Manip::Destination, Hook::Prerouting, skb));
        self.nft_filters(Hook::Prerouting, skb, NAT_DST + 1..)
    }

    pub(super) fn input_hook(&mut self, skb: &mut Skb) -> HookResult {
        if !self.has_rules(skb) {
            return HookResult::On;
        }
        self.note(Event::Hook(Hook::Input));
        on!(self.filter_tables(Hook::Input, skb));
        on!(self.nft_filters(Hook::Input, skb, SECURITY + 1..NAT_SRC - 1));
        on!(self.ipvs_reply(skb));
        on!(self.ipvs_request(Hook::Input, skb));
        on!(self.nft_filters(Hook::Input, skb, NAT_SRC - 1..=NAT_SRC));
        on!(self.nat(Manip::Source, Hook::Input, skb));
        on!(self.nft_filters(Hook::Input, skb, NAT_SRC + 1..));
        self.confirm(skb)
    }

    pub(super) fn forward(&mut self, skb: &mut Skb) -> HookResult {
        if !self.has_rules(skb) {
            return HookResult::On;
        }
        self.note(Event::Hook(Hook::Forward));
        on!(self.filter_tables(Hook::Forward, skb));
        on!(self.nft_filters(Hook::Forward, skb, SECURITY + 1..NAT_SRC));
        on!(self.ipvs_reply(skb));
        self.nft_filters(Hook::Forward, skb, NAT_SRC..)
    }

    fn filter_tables(&mut self, hook: Hook, skb: &mut Skb) -> HookResult {
        on!(self.nft_filters(hook, skb, ..MANGLE));
        on!(self.table_at(TableName::Mangle, MANGLE, hook, skb));
        on!(self.nft_filters(hook, skb, MANGLE + 1..FILTER));
        on!(self.table_at(TableName::Filter, FILTER, hook, skb));
        on!(self.nft_filters(hook, skb, FILTER + 1..SECURITY));
        self.table_at(TableName::Security, SECURITY, hook, skb)
    }

    /// Walks OUTPUT. Rules see the interface of the route before translation.
    pub(super) fn output_hook(&mut self, skb: &mut Skb) -> HookResult {
        skb.output = Some(match skb.way {
            Some(PacketRoute::Out { interface, .. }) => interface,
            Some(PacketRoute::Here) | None => crate::host::LOOPBACK,
        });
        if !self.has_rules(skb) {
            return HookResult::On;
        }
        self.note(Event::Hook(Hook::Output));
        on!(self.nft_filters(Hook::Output, skb, ..RAW));
        on!(self.table_at(TableName::Raw, RAW, Hook::Output, skb));
        on!(self.nft_filters(Hook::Output, skb, RAW + 1..=CONNTRACK));
        self.track(skb);
        on!(self.nft_filters(Hook::Output, skb, CONNTRACK + 1..MANGLE));
        let host: &'a Host = self.host;
        let chains = &host.nft.at(skb.packet.family(), Hook::Output).filters;
        let (before, after) = match self.nft_beside(chains, MANGLE, TableName::Mangle, Hook::Output, skb) {
            Ok(split) => split,
            Err(leaves) => return HookResult::Ends(leaves),
        };
        on!(self.nft_run(before, Hook::Output, skb));
        let mark = skb.mark;
        on!(self.table(TableName::Mangle, Hook::Output, skb));
        // `ipt_mangle_out`: a changed mark causes a new route lookup.
        if skb.mark != mark
            && self.host.policy.asks_marks(skb.packet.family())
            && let Err(why) = self.route_out(skb)
        {
            return HookResult::Ends(self.lose(why));
        }
        on!(self.nft_run(after, Hook::Output, skb));
        on!(self.nft_filters(Hook::Output, skb, MANGLE + 1..=NAT_DST));
        let before = (skb.packet.source, skb.packet.destination);
        on!(self.nat(Manip::Destination, Hook::Output, skb));
        on!(self.ipvs_reply(skb));
        if (skb.packet.source, skb.packet.destination) != before
            && let Err(why) = self.route_out(skb)
        {
            return HookResult::Ends(self.lose(why));
        }
        on!(self.ipvs_request(Hook::Output, skb));
        on!(self.nft_filters(Hook::Output, skb, NAT_DST + 1..FILTER));
        on!(self.table_at(TableName::Filter, FILTER, Hook::Output, skb));
        on!(self.nft_filters(Hook::Output, skb, FILTER + 1..SECURITY));
        on!(self.table_at(TableName::Security, SECURITY, Hook::Output, skb));
        self.nft_filters(Hook::Output, skb, SECURITY + 1..)
    }

    pub(super) fn postrouting(&mut self, skb: &mut Skb) -> HookResult {
        if !self.has_rules(skb) {
            return HookResult::On;
        }
        self.note(Event::Hook(Hook::Postrouting));
        on!(self.nft_filters(Hook::Postrouting, skb, ..MANGLE));
        on!(self.table_at(TableName::Mangle, MANGLE, Hook::Postrouting, skb));
        on!(self.nft_filters(Hook::Postrouting, skb, MANGLE + 1..=NAT_SRC));
        on!(self.nat(Manip::Source, Hook::Postrouting, skb));
        on!(self.nft_filters(Hook::Postrouting, skb, NAT_SRC + 1..));
        self.confirm(skb)
    }

    /// Whether there are rules; without rules, conntrack registers no hooks either.
    fn has_rules(&self, skb: &Skb) -> bool {
        let family = skb.packet.family();
        self.host.programs(family).any(|program| !program.rules.tables.is_empty())
            || !self.host.services.is_empty()
            || self.host.nft.sees(family)
    }

    /// Follows `nf_conntrack_in`.
    fn track(&mut self, skb: &mut Skb) {
        // nf_conntrack_icmpv6 does not track neighbour discovery.
        skb.untracked |= matches!(skb.packet.body, PacketBody::Neighbour { .. });
        if skb.attached.is_some() || skb.untracked {
            return;
        }
        skb.attached = self.state.connections.track(&skb.packet, skb.zones(), &self.host.sysctls, self.now);
        self.note(Event::Tracked(skb.tracked()));
    }

    /// Walks table `nat` for new connections, then translates.
    fn nat(&mut self, manip: Manip, hook: Hook, skb: &mut Skb) -> HookResult {
        let family = skb.packet.family();
        let mut programs = self.host.programs(family);
        let table = programs.any(|program| program.table(TableName::Nat).is_some()) || self.host.nft.translates(family);
        let Some(attached) = skb.attached.filter(|_| table) else {
            return HookResult::On;
        };
        let set_up = self.state.connections.is_set_up(attached.id, manip);
        if attached.tracked == TrackingState::New && !set_up {
            on!(self.nat_chains(attached.id, manip, hook, skb));
            if !self.state.connections.is_set_up(attached.id, manip) {
                self.state.connections.set_up_nothing(attached.id, manip, self.chance);
            }
        }
        if self.state.connections.translate(attached.id, attached.direction, manip, &mut skb.packet) {
            let by = match (attached.direction, manip) {
                (FlowDirection::Original, Manip::Destination) => "DNAT",
                (FlowDirection::Original, Manip::Source) => "SNAT",
                (FlowDirection::Reply, Manip::Destination) => "un-SNAT",
                (FlowDirection::Reply, Manip::Source) => "un-DNAT",
            };
            self.note(Event::Translated { by, packet: skb.packet.clone() });
        }
        HookResult::On
    }

    /// `nf_nat_inet_fn`: walks chains by priority, until one translates.
    fn nat_chains(&mut self, id: usize, manip: Manip, hook: Hook, skb: &mut Skb) -> HookResult {
        let priority = if manip == Manip::Destination { NAT_DST } else { NAT_SRC };
        let chosen = |walker: &Walker<'_>| walker.state.connections.is_set_up(id, manip);
        on!(self.nft_nats(hook, skb, ..priority, chosen));
        if chosen(self) {
            return HookResult::On;
        }
        let host: &'a Host = self.host;
        let chains = &host.nft.at(skb.packet.family(), hook).nats;
        let (before, after) = match self.nft_beside(chains, priority, TableName::Nat, hook, skb) {
            Ok(split) => split,
            Err(leaves) => return HookResult::Ends(leaves),
        };
        on!(self.nft_run_until(before, hook, skb, chosen));
        on!(self.table_until(TableName::Nat, hook, skb, chosen));
        on!(self.nft_run_until(after, hook, skb, chosen));
        self.nft_nats(hook, skb, priority + 1.., chosen)
    }

    fn confirm(&mut self, skb: &Skb) -> HookResult {
        let id = skb.attached.filter(|attached| attached.tracked == TrackingState::New).map(|attached| attached.id);
        if id.is_none_or(|id| self.state.connections.confirm(id)) {
            return HookResult::On;
        }
        HookResult::Ends(self.lose(DropReason::Clash))
    }
}
