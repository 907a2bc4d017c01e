use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{PacketExit, Skb, Walker};
use crate::conntrack::nat::Manip;
use crate::conntrack::{AttachedConnection, TrackingState};
use crate::hook::Hook;
use crate::masked::Masked;
use crate::packet::{IcmpKind, Packet, PacketBody, TcpFlags};
use crate::program::iptables::Action;
use crate::protocol::Family;
use crate::rules::nat::NatRange;
use crate::rules::target::{Connmark, ConnmarkAction, RejectWith};
use crate::trace::{DropReason, Event};

pub(super) const UNKNOWN_REDIRECT: &str = "needs an address of the input interface, which is not known";

pub(super) enum TargetResult {
    Continue,
    Accept,
    Ends(PacketExit),
}

impl Walker<'_> {
    pub(super) fn act(&mut self, action: &Action, hook: Hook, skb: &mut Skb) -> TargetResult {
        match action {
            Action::Mark { value, mask } => {
                let mark = (skb.mark & !mask) ^ value;
                if mark != skb.mark {
                    self.note(Event::Mark { from: skb.mark, to: mark });
                }
                skb.mark = mark;
                TargetResult::Continue
            }
            Action::Connmark(connmark) => {
                self.connmark(*connmark, skb);
                TargetResult::Continue
            }
            Action::Notrack => {
                if skb.attached.is_none() && skb.template.is_none() {
                    skb.untracked = true;
                }
                TargetResult::Continue
            }
            // xt_ct_target: the first zone is kept.
            Action::Track(zone) => {
                if skb.attached.is_none() && !skb.untracked {
                    skb.template.get_or_insert(*zone);
                }
                TargetResult::Continue
            }
            Action::ChangeSets(sets) => {
                self.state.changed.extend(sets.iter().cloned());
                TargetResult::Continue
            }
            Action::Netmap(network) => self.netmap(**network, hook, skb),
            Action::Reject(with) => self.reject(*with, skb),
            Action::Dnat(range) => self.set_up(range, Manip::Destination, skb),
            Action::Snat(range) => self.set_up(range, Manip::Source, skb),
            Action::Masquerade(range) => match self.masquerade_address(skb) {
                Some(address) => {
                    let range = NatRange { addresses: Some((address, address)), ..*range };
                    self.set_up(&range, Manip::Source, skb)
                }
                None => TargetResult::Ends(self.lose(DropReason::NoAddress)),
            },
            Action::Redirect(range) => match self.redirect_address(hook, skb) {
                Some(address) => {
                    let range = NatRange { addresses: Some((address, address)), ..*range };
                    self.set_up(&range, Manip::Destination, skb)
                }
                None => TargetResult::Ends(self.lose(DropReason::NoAddress)),
            },
            Action::Continue
            | Action::Accept
            | Action::Drop
            | Action::Return
            | Action::Jump(_)
            | Action::Goto(_)
            | Action::HopLimit(_)
            | Action::Unknown { .. } => TargetResult::Continue,
        }
    }

    /// Follows net/netfilter/xt_connmark.c.
    fn connmark(&mut self, connmark: Connmark, skb: &mut Skb) {
        let Connmark { action, value, mask, shift: by } = connmark;
        let shift = |mark: u32| {
            let bits = u32::from(by.unsigned_abs());
            if by < 0 { mark.checked_shr(bits) } else { mark.checked_shl(bits) }.unwrap_or(0)
        };
        let id = skb.attached.map(|attached| attached.id);
        let Some(connection) = id.and_then(|id| self.state.connections.get_mut(id)) else {
            return;
        };
        match action {
            ConnmarkAction::Set => connection.mark = shift((connection.mark & !mask) ^ value),
            ConnmarkAction::Save => connection.mark = (connection.mark & !mask) ^ shift(skb.mark & value),
            ConnmarkAction::Restore => {
                let mark = (skb.mark & !value) ^ shift(connection.mark & mask);
                let from = std::mem::replace(&mut skb.mark, mark);
                if from != mark {
                    self.note(Event::Mark { from, to: mark });
                }
            }
        }
    }

    /// Follows net/netfilter/xt_NETMAP.c.
    fn netmap(&mut self, network: Masked, hook: Hook, skb: &Skb) -> TargetResult {
        let (manip, address) = match hook {
            Hook::Prerouting | Hook::Output => (Manip::Destination, skb.packet.destination),
            Hook::Input | Hook::Forward | Hook::Postrouting => (Manip::Source, skb.packet.source),
        };
        let mapped = network.with_host_of(address);
        self.set_up(&NatRange { addresses: Some((mapped, mapped)), ..NatRange::default() }, manip, skb)
    }

    pub(super) fn set_up(&mut self, range: &NatRange, manip: Manip, skb: &Skb) -> TargetResult {
        if let Some(attached) = skb.attached {
            self.state.connections.set_up(attached.id, range, manip, self.chance);
        }
        TargetResult::Accept
    }

    /// Returns an address of the output interface (`nf_nat_masquerade_ipv4`, `_ipv6`).
    pub(super) fn masquerade_address(&self, skb: &Skb) -> Option<IpAddr> {
        let output = skb.output?;
        let next_hop = match skb.way {
            Some(super::PacketRoute::Out { next_hop, .. }) => next_hop,
            _ => skb.packet.destination,
        };
        self.host.masquerade_source(output, next_hop, skb.packet.destination)
    }

    /// Returns a loopback address, or the input interface's first address (net/netfilter/nf_nat_redirect.c).
    pub(super) fn redirect_address(&self, hook: Hook, skb: &Skb) -> Option<IpAddr> {
        let family = skb.packet.family();
        if hook == Hook::Output {
            return Some(match family {
                Family::V4 => Ipv4Addr::LOCALHOST.into(),
                Family::V6 => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let addresses = &self.host.interfaces.get(skb.input?)?.addresses;
        let mut own = addresses.iter().filter(|address| Family::of(address.ip) == family);
        let chosen = match family {
            Family::V4 => own.find(|address| !address.secondary),
            // The latest address is the kernel's first (`ipv6_link_dev_addr`, net/ipv6/addrconf.c).
            Family::V6 => own.next_back(),
        };
        chosen.map(|address| address.ip)
    }

    /// Whether the input interface is a placeholder without addresses.
    pub(super) fn redirects_to_unknown(&self, hook: Hook, skb: &Skb) -> bool {
        let input = skb.input.and_then(|input| self.host.interfaces.get(input));
        input.is_some_and(|input| input.invented) && self.redirect_address(hook, skb).is_none()
    }

    /// Follows nf_reject_ipv4.c, nf_reject_ipv6.c.
    pub(super) fn reject(&mut self, with: RejectWith, skb: &Skb) -> TargetResult {
        self.note(Event::Rejected(with));
        let answer = self.rejection(with, skb).map(|packet| {
            let mut answer = Skb::new(packet);
            // nf_ct_attach.
            answer.attached = skb.attached.map(|attached| AttachedConnection {
                id: attached.id,
                direction: attached.direction.other(),
                tracked: TrackingState::Related,
            });
            Box::new(answer)
        });
        TargetResult::Ends(PacketExit::Rejected { with, answer })
    }

    fn rejection(&self, with: RejectWith, skb: &Skb) -> Option<Packet> {
        let packet = &skb.packet;
        match (with.icmp(), &packet.body) {
            // Errors and resets cause no further error or reset.
            (_, PacketBody::Error { .. }) => None,
            (None, PacketBody::Tcp { source, destination, flags, .. }) if !flags.has(TcpFlags::RST) => {
                let flags = TcpFlags(TcpFlags::RST | TcpFlags::ACK);
                let body = PacketBody::Tcp { source: *destination, destination: *source, flags, out_of_window: false };
                Some(Packet { source: packet.destination, destination: packet.source, body })
            }
            (None, _) => None,
            (Some((kind, code)), _) => {
                let source = self.error_source(packet)?;
                let body = PacketBody::Error { kind: IcmpKind { kind, code }, about: Box::new(packet.clone()) };
                Some(Packet { source, destination: packet.source, body })
            }
        }
    }

    /// Returns an error's source (`icmp_send`): the packet's destination if local, else the source towards the sender.
    fn error_source(&self, packet: &Packet) -> Option<IpAddr> {
        if self.host.is_local(packet.destination) {
            return Some(packet.destination);
        }
        match self.host.route(packet.source) {
            crate::host::route::RouteDecision::Out(way) => way.source,
            crate::host::route::RouteDecision::Local => Some(packet.source),
            _ => None,
        }
    }
}
