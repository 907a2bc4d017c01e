use std::net::IpAddr;

use super::{Skb, Walker};
use crate::conntrack::{ConntrackEntry, FlowDirection, TrackingState};
use crate::host::RouteKind;
use crate::host::route::{RouteDecision, RouteQuery};
use crate::packet::{Packet, PacketBody};
use crate::program::iptables::{Check, CompiledRule, InterfaceTests, PhysdevCheck};
use crate::rules::Test;
use crate::rules::matches::{
    AddressType, AddressTypes, Addrtype, ConnectionStates, Conntrack, FieldTest, Icmp, IpRange, Limit, Multiport,
    MultiportSide, NumberRange, PortMatch, Rpfilter, Status, TupleField,
};

pub(super) type ChanceDraw = Option<(bool, u64, u64)>;

impl Walker<'_> {
    pub(super) fn matches(&mut self, step: &CompiledRule, skb: &Skb, drawn: &mut ChanceDraw) -> bool {
        step.ends.as_ref().is_none_or(|ends| ends_hold(ends, skb))
            && step.checks.iter().all(|check| self.check(check, skb, drawn))
    }

    pub(super) fn check(&mut self, check: &Check, skb: &Skb, drawn: &mut ChanceDraw) -> bool {
        let packet = &skb.packet;
        match check {
            Check::Conntrack(asked) => self.conntrack(asked, skb),
            Check::Mark(test) => test.judge(skb.mark & test.is.1 == test.is.0),
            Check::Connmark(test) => {
                let connection = skb.attached.and_then(|attached| self.state.connections.get(attached.id));
                connection.is_some_and(|connection| test.judge(connection.mark & test.is.1 == test.is.0))
            }
            Check::Random { not, threshold } => {
                let below = self.chance.below(*threshold);
                let share = if below { *threshold } else { 0x8000_0000 - threshold };
                *drawn = Some((below != *not, u64::from(share), 0x8000_0000));
                below != *not
            }
            Check::Nth { not, every, first, counter } => {
                let hit = self.nth(skb, *every, *first, *counter);
                let share = if hit { 1 } else { u64::from(*every) - 1 };
                *drawn = Some((hit != *not, share, u64::from(*every)));
                hit != *not
            }
            Check::Recent(check) => self.state.recent.check(check, packet, self.now),
            Check::Set { not, set, sides, return_nomatch, .. } => {
                self.in_set(*set, sides, *return_nomatch, skb).is_ok_and(|within| within != *not)
            }
            Check::Addrtype(addrtype) => self.addrtype(addrtype, skb),
            Check::Ports(ports) => self::ports(ports, packet),
            Check::Multiport(multiport) => self::multiport(multiport, packet),
            Check::Physdev(physdev) => self::physdev(physdev, skb),
            Check::Icmp(icmp) => self::icmp(icmp, packet),
            Check::Rpfilter(rpfilter) => self.rpfilter(*rpfilter, skb),
            Check::Limit { limit, counter } => self.limit(*limit, (packet.family(), *counter)),
            Check::IpRange(range) => self::iprange(range, packet),
            Check::Constant(holds) => *holds,
            Check::Ipvs(asked) => self.ipvs_match(asked, skb),
            Check::PacketType(test) => {
                let broadcast = self.host.is_broadcast(packet.destination);
                test.judge(super::unknown_fact::packet_type(skb, broadcast) == test.is)
            }
            Check::Open(_) => false,
        }
    }

    fn nth(&mut self, skb: &Skb, every: u32, first: u32, counter: usize) -> bool {
        if self.chance.is_exact() {
            return self.chance.choose(&[1, u64::from(every) - 1]) == 0;
        }
        let count = self.state.nth.entry((skb.packet.family(), counter)).or_insert(first);
        *count = if *count == every - 1 { 0 } else { *count + 1 };
        *count == 0
    }

    /// Follows `rpfilter_mt`.
    fn rpfilter(&self, asked: Rpfilter, skb: &Skb) -> bool {
        // Link-local addresses are looked up on the input interface.
        let is_link_local = matches!(skb.packet.source, IpAddr::V6(source) if source.is_unicast_link_local());
        let input = skb.input.filter(|input| !self.is_loopback(*input) && !is_link_local);
        let passes = input.is_none_or(|input| {
            match self.host.look_up(&RouteQuery {
                from: Some(skb.packet.destination),
                mark: if asked.valid_mark { skb.mark } else { 0 },
                ..RouteQuery::out(skb.packet.source)
            }) {
                RouteDecision::Out(way) => asked.loose || way.interface == input,
                RouteDecision::Local => asked.accept_local,
                _ => false,
            }
        });
        passes != asked.invert
    }

    /// `limit_mt`: credit grows with time up to the burst.
    fn limit(&mut self, limit: Limit, key: (crate::protocol::Family, usize)) -> bool {
        let full = limit.cost() * u64::from(limit.burst);
        let (credit, since) = self.state.limits.entry(key).or_insert((full, self.now));
        *credit = credit.saturating_add(self.now - *since).min(full);
        *since = self.now;
        let enough = *credit >= limit.cost();
        if enough {
            *credit -= limit.cost();
        }
        enough
    }

    /// Follows `conntrack_mt`.
    fn conntrack(&self, asked: &Conntrack, skb: &Skb) -> bool {
        let connection = skb.attached.and_then(|attached| self.state.connections.get(attached.id));
        if let Some(test) = asked.states {
            let mut bits = match skb.tracked() {
                TrackingState::New => ConnectionStates::NEW,
                TrackingState::Established => ConnectionStates::ESTABLISHED,
                TrackingState::Related => ConnectionStates::RELATED,
                TrackingState::Invalid => ConnectionStates::INVALID,
                TrackingState::Untracked => ConnectionStates::UNTRACKED,
            };
            if connection.is_some_and(|connection| connection.source_nat) {
                bits |= ConnectionStates::SNAT;
            }
            if connection.is_some_and(|connection| connection.destination_nat) {
                bits |= ConnectionStates::DNAT;
            }
            if !test.judge(test.is.0 & bits != 0) {
                return false;
            }
        }
        let (Some(connection), Some(attached)) = (connection, skb.attached) else {
            return asked.states.is_some();
        };
        asked.original.is_none_or(|original| original == (attached.direction == FlowDirection::Original))
            && asks(asked.protocol.as_ref(), |protocol| *protocol == connection.original.protocol)
            && asked.fields.iter().all(|one| field(one, connection))
            && asks(asked.status.as_ref(), |status| status.0 & status_of(connection) != 0)
    }

    /// Follows `addrtype_mt_v1`.
    fn addrtype(&self, asked: &Addrtype, skb: &Skb) -> bool {
        let limit = if asked.limit_in {
            skb.input
        } else if asked.limit_out {
            skb.output
        } else {
            None
        };
        let holds = |test: &Option<Test<AddressTypes>>, address: IpAddr| {
            asks(test.as_ref(), |types| match address {
                IpAddr::V4(_) => types.0.contains(&self.address_type(address, limit)),
                IpAddr::V6(_) => self.is_of_types_v6(address, &types.0, limit),
            })
        };
        holds(&asked.source, skb.packet.source) && holds(&asked.destination, skb.packet.destination)
    }

    /// Follows `match_type6`: every listed class (unicast, own included; multicast; unspecified) must match, and one
    /// type from the routing tables.
    fn is_of_types_v6(&self, address: IpAddr, asked: &[AddressType], limit: Option<usize>) -> bool {
        use AddressType::{Blackhole, Local, Multicast, Prohibit, Unicast, Unreachable, Unspec};
        let (multicast, unspecified) = (address.is_multicast(), address.is_unspecified());
        let classes = [(Multicast, multicast), (Unicast, !multicast && !unspecified), (Unspec, unspecified)];
        let looked_up = [Local, Blackhole, Prohibit, Unreachable];
        let found = self.address_type(address, limit);
        classes.iter().all(|(class, is)| *is || !asked.contains(class))
            && (!asked.iter().any(|kind| looked_up.contains(kind))
                || (looked_up.contains(&found) && asked.contains(&found)))
    }

    pub(super) fn address_type(&self, address: IpAddr, limit: Option<usize>) -> AddressType {
        if address.is_unspecified() {
            return AddressType::Unspec;
        }
        if address.is_multicast() {
            return AddressType::Multicast;
        }
        match self.host.route(address) {
            RouteDecision::Local => {
                let own = |at: usize| self.host.interfaces[at].addresses.iter().any(|own| own.ip == address);
                if limit.is_none_or(own) { AddressType::Local } else { AddressType::Unicast }
            }
            RouteDecision::Broadcast => AddressType::Broadcast,
            RouteDecision::Out(_) => AddressType::Unicast,
            RouteDecision::Refused(RouteKind::Blackhole) => AddressType::Blackhole,
            RouteDecision::Refused(RouteKind::Prohibit) => AddressType::Prohibit,
            RouteDecision::Refused(_) => AddressType::Unreachable,
            RouteDecision::NoRoute if address.is_ipv4() => AddressType::Unicast,
            RouteDecision::NoRoute => AddressType::Unreachable,
        }
    }
}

#[inline]
pub(super) fn head_holds(step: &CompiledRule, skb: &Skb) -> bool {
    let packet = &skb.packet;
    !step.never
        && asks(step.destination.as_ref(), |network| network.contains(packet.destination))
        && asks(step.source.as_ref(), |network| network.contains(packet.source))
        && asks(step.protocol.as_ref(), |protocol| *protocol == packet.protocol())
}

fn ends_hold(ends: &InterfaceTests, skb: &Skb) -> bool {
    ends.input.as_ref().is_none_or(|input| input.holds(skb.input))
        && ends.output.as_ref().is_none_or(|output| output.holds(skb.output))
}

fn asks<T>(test: Option<&Test<T>>, holds: impl FnOnce(&T) -> bool) -> bool {
    test.is_none_or(|test| test.judge(holds(&test.is)))
}

fn field(test: &FieldTest, connection: &ConntrackEntry) -> bool {
    let pick = |field: TupleField| match field {
        TupleField::OriginalSource => (connection.original.source, connection.original.source_port),
        TupleField::OriginalDestination => (connection.original.destination, connection.original.destination_port),
        TupleField::ReplySource => (connection.reply.source, connection.reply.source_port),
        TupleField::ReplyDestination => (connection.reply.destination, connection.reply.destination_port),
    };
    match test {
        FieldTest::Address(field, test) => test.judge(test.is.contains(pick(*field).0)),
        FieldTest::Port(field, test) => test.judge(test.is.contains(pick(*field).1)),
    }
}

fn status_of(connection: &ConntrackEntry) -> u8 {
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    bit(connection.seen_reply, Status::SEEN_REPLY)
        | bit(connection.assured, Status::ASSURED)
        | bit(connection.confirmed, Status::CONFIRMED)
}

fn ports(asked: &PortMatch, packet: &Packet) -> bool {
    let Some((source, destination)) = packet.ports().filter(|_| packet.protocol() == asked.protocol) else {
        return false;
    };
    let flags = match packet.body {
        PacketBody::Tcp { flags, .. } => flags.0,
        _ => 0,
    };
    asks(asked.source.as_ref(), |range| range.contains(source))
        && asks(asked.destination.as_ref(), |range| range.contains(destination))
        && asks(asked.flags.as_ref(), |test| flags & test.mask == test.set)
}

fn multiport(asked: &Multiport, packet: &Packet) -> bool {
    let Some((source, destination)) = packet.ports() else {
        return false;
    };
    let holds = |port: u16| asked.ports.is.iter().any(|range: &NumberRange| range.contains(port));
    asked.ports.judge(match asked.side {
        MultiportSide::Source => holds(source),
        MultiportSide::Destination => holds(destination),
        MultiportSide::Either => holds(source) || holds(destination),
    })
}

/// Follows `physdev_mt`.
fn physdev(asked: &PhysdevCheck, skb: &Skb) -> bool {
    let flag = |test: Option<Test<()>>, holds: bool| test.is_none_or(|test| test.judge(holds));
    flag(asked.is_in, skb.port_in.is_some())
        && flag(asked.is_out, skb.port_out.is_some())
        && flag(asked.is_bridged, skb.bridged)
        && asked.input.as_ref().is_none_or(|input| input.holds(skb.port_in))
        && asked.output.as_ref().is_none_or(|output| output.holds(skb.port_out))
}

fn icmp(asked: &Icmp, packet: &Packet) -> bool {
    let Some(found) = packet.icmp().filter(|_| packet.family() == asked.family) else {
        return false;
    };
    let holds =
        asked.kind.is.is_none_or(|(kind, code)| kind == found.kind && code.is_none_or(|code| code == found.code));
    asked.kind.judge(holds)
}

fn iprange(asked: &IpRange, packet: &Packet) -> bool {
    let within = |test: Option<&Test<(IpAddr, IpAddr)>>, address: IpAddr| {
        asks(test, |(first, last)| (*first..=*last).contains(&address))
    };
    within(asked.source.as_ref(), packet.source) && within(asked.destination.as_ref(), packet.destination)
}
