//! Connection tracking (net/netfilter/nf_conntrack_core.c, nf_conntrack_proto_*.c, nf_nat_core.c).

pub(crate) mod nat;
mod protocols;
mod tuple;

use std::collections::BTreeMap;

pub(crate) use tuple::{Tuple, tuple_of};

use crate::packet::{Packet, PacketBody};
use crate::rules::ct::{Zone, ZoneId, ZoneOf};
use crate::sysctl::Sysctls;
use protocols::ConnectionStage;

/// The direction of a packet within its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowDirection {
    /// The direction of the first packet.
    Original,
    /// The direction of replies.
    Reply,
}

impl FlowDirection {
    pub(crate) fn other(self) -> FlowDirection {
        match self {
            FlowDirection::Original => FlowDirection::Reply,
            FlowDirection::Reply => FlowDirection::Original,
        }
    }
}

/// A packet's conntrack state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrackingState {
    /// The connection has had no reply so far.
    New,
    /// The packet is a reply, or the connection has had one.
    Established,
    /// An ICMP error about a connection.
    Related,
    /// The packet belongs to no connection.
    Invalid,
    /// Excluded by NOTRACK.
    Untracked,
}

/// Both tuples' zones (include/net/netfilter/nf_conntrack_zones.h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Zones {
    original: u16,
    reply: u16,
}

impl Zones {
    /// Models `nf_ct_zone_tmpl`.
    pub(crate) fn of(zone: Zone, mark: u32) -> Zones {
        let id = match zone.id {
            ZoneId::Number(number) => number,
            // The kernel uses 16 bits of the mark.
            ZoneId::Mark => mark as u16,
        };
        match zone.of {
            ZoneOf::Both => Zones { original: id, reply: id },
            ZoneOf::Original => Zones { original: id, reply: 0 },
            ZoneOf::Reply => Zones { original: 0, reply: id },
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ConntrackEntry {
    pub(crate) zones: Zones,
    pub(crate) original: Tuple,
    pub(crate) reply: Tuple,
    pub(crate) source_nat: bool,
    pub(crate) destination_nat: bool,
    /// Source NAT is decided, perhaps without translation.
    pub(crate) source_done: bool,
    pub(crate) destination_done: bool,
    pub(crate) confirmed: bool,
    pub(crate) seen_reply: bool,
    pub(crate) assured: bool,
    pub(crate) mark: u32,
    stage: ConnectionStage,
    /// Milliseconds.
    started: u64,
    expires: u64,
}

impl ConntrackEntry {
    pub(crate) fn tuple(&self, direction: FlowDirection) -> Tuple {
        match direction {
            FlowDirection::Original => self.original,
            FlowDirection::Reply => self.reply,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttachedConnection {
    pub(crate) id: usize,
    pub(crate) direction: FlowDirection,
    pub(crate) tracked: TrackingState,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ConntrackTable {
    all: BTreeMap<usize, ConntrackEntry>,
    next: usize,
    /// Connections by zone and tuple (`nf_ct_key_equal`).
    by_tuple: BTreeMap<(u16, Tuple), (usize, FlowDirection)>,
    unconfirmed: Vec<usize>,
    /// The earliest time at which a connection may expire.
    quiet_until: u64,
}

impl ConntrackTable {
    pub(crate) fn get(&self, id: usize) -> Option<&ConntrackEntry> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: usize) -> Option<&mut ConntrackEntry> {
        self.all.get_mut(&id)
    }

    fn expire(&mut self, now: u64) {
        if now < self.quiet_until {
            return;
        }
        let ended: Vec<usize> =
            self.all.iter().filter(|(_, connection)| connection.expires <= now).map(|(id, _)| *id).collect();
        for id in ended {
            self.remove(id);
        }
        self.quiet_until = self.all.values().map(|connection| connection.expires).min().unwrap_or(0);
    }

    fn remove(&mut self, id: usize) {
        if let Some(connection) = self.all.remove(&id) {
            let Zones { original, reply } = connection.zones;
            for tuple in [(original, connection.original), (reply, connection.reply)] {
                if self.by_tuple.get(&tuple).is_some_and(|(owner, _)| *owner == id) {
                    self.by_tuple.remove(&tuple);
                }
            }
        }
    }

    pub(crate) fn remove_where(&mut self, mut which: impl FnMut(&ConntrackEntry) -> bool) -> usize {
        let found: Vec<usize> =
            self.all.iter().filter(|(_, connection)| which(connection)).map(|(id, _)| *id).collect();
        found.iter().for_each(|id| self.remove(*id));
        found.len()
    }

    /// Models `nf_conntrack_tuple_taken`.
    pub(crate) fn taken(&self, tuple: &Tuple, except: usize) -> bool {
        let zones = self.get(except).map(|connection| connection.zones).unwrap_or_default();
        self.by_tuple.get(&(zones.reply, *tuple)).is_some_and(|(owner, _)| *owner != except)
    }

    /// Models `resolve_normal_ct`: replies have their own zone.
    fn find(&self, tuple: Tuple, zones: Zones) -> Option<(usize, FlowDirection)> {
        let found = self.by_tuple.get(&(zones.original, tuple)).copied();
        if zones.original == zones.reply {
            return found;
        }
        let is = |wanted| move |(_, direction): &(usize, FlowDirection)| *direction == wanted;
        let reply = || self.by_tuple.get(&(zones.reply, tuple)).copied().filter(is(FlowDirection::Reply));
        found.filter(is(FlowDirection::Original)).or_else(reply)
    }

    /// Models `nf_conntrack_in`; returns `None` for invalid packets.
    pub(crate) fn track(
        &mut self,
        packet: &Packet,
        zones: Zones,
        sysctls: &Sysctls,
        now: u64,
    ) -> Option<AttachedConnection> {
        self.expire(now);
        if let PacketBody::Error { about, .. } = &packet.body {
            // An error belongs to the connection of replies to the quoted packet, which is still translated
            // (`nf_conntrack_inet_error`).
            let (id, direction) = self.find(tuple_of(about)?.inverted(), zones)?;
            return Some(AttachedConnection { id, direction, tracked: TrackingState::Related });
        }
        let tuple = tuple_of(packet)?;
        if let Some((id, direction)) = self.find(tuple, zones) {
            let connection = self.all.get_mut(&id)?;
            match protocols::follow(connection, direction, packet, sysctls, now) {
                protocols::PacketEffect::Belongs => {}
                protocols::PacketEffect::Invalid => return None,
                protocols::PacketEffect::Reopens => {
                    self.remove(id);
                    return self.open(packet, (tuple, zones), sysctls, now);
                }
            }
            self.quiet_until = self.quiet_until.min(connection.expires);
            let tracked = match direction {
                FlowDirection::Reply => TrackingState::Established,
                FlowDirection::Original if connection.seen_reply => TrackingState::Established,
                FlowDirection::Original => TrackingState::New,
            };
            if direction == FlowDirection::Reply {
                connection.seen_reply = true;
            }
            return Some(AttachedConnection { id, direction, tracked });
        }
        self.open(packet, (tuple, zones), sysctls, now)
    }

    fn open(
        &mut self,
        packet: &Packet,
        (tuple, zones): (Tuple, Zones),
        sysctls: &Sysctls,
        now: u64,
    ) -> Option<AttachedConnection> {
        let stage = protocols::first(packet, sysctls)?;
        let id = self.next;
        self.next += 1;
        let connection = ConntrackEntry {
            zones,
            original: tuple,
            reply: tuple.inverted(),
            source_nat: false,
            destination_nat: false,
            source_done: false,
            destination_done: false,
            confirmed: false,
            seen_reply: false,
            assured: false,
            mark: 0,
            stage,
            started: now,
            expires: now + stage.timeout(),
        };
        self.quiet_until = self.quiet_until.min(connection.expires);
        self.all.insert(id, connection);
        self.unconfirmed.push(id);
        Some(AttachedConnection { id, direction: FlowDirection::Original, tracked: TrackingState::New })
    }

    /// Models `__nf_conntrack_confirm`. Returns false, to drop the packet, if another connection has one of the tuples.
    pub(crate) fn confirm(&mut self, id: usize) -> bool {
        let Some(connection) = self.all.get_mut(&id) else {
            return true;
        };
        if connection.confirmed {
            return true;
        }
        let zones = connection.zones;
        let (original, reply) = ((zones.original, connection.original), (zones.reply, connection.reply));
        let taken = |tuple: &(u16, Tuple)| self.by_tuple.get(tuple).is_some_and(|(owner, _)| *owner != id);
        if taken(&original) || taken(&reply) {
            self.all.remove(&id);
            return false;
        }
        connection.confirmed = true;
        self.by_tuple.insert(original, (id, FlowDirection::Original));
        self.by_tuple.insert(reply, (id, FlowDirection::Reply));
        true
    }

    /// Models `ip_vs_update_conntrack`.
    pub(crate) fn serve_by(&mut self, attached: AttachedConnection, server: std::net::SocketAddr) {
        if let Some(connection) = self.all.get_mut(&attached.id)
            && !connection.confirmed
            && attached.direction == FlowDirection::Original
        {
            connection.reply.source = server.ip();
            connection.reply.source_port = server.port();
        }
    }

    /// Removes connections whose first packet was dropped.
    pub(crate) fn forget_unconfirmed(&mut self) {
        for id in std::mem::take(&mut self.unconfirmed) {
            if self.all.get(&id).is_some_and(|connection| !connection.confirmed) {
                self.all.remove(&id);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ConntrackEntry> {
        self.all.values()
    }
}
