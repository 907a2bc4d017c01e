//! conntrack entries, read and deleted through netlink (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).

mod filter;
mod scan;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{DefaultNla, NLM_F_DUMP, Nla};
use netlink_packet_netfilter::conntrack::{
    ConntrackAttribute, ConntrackMessage, IPTuple, ProtoInfo, ProtoInfoTCP, ProtoTuple, Protocol as Number, Status,
    Tuple,
};
use netlink_packet_netfilter::{NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::Socket;

use super::netfilter;
use crate::model::{Family, Flow, Protocol};
pub use filter::Filter;
use scan::Scan;
pub use scan::{BATCH, PIECE, Piece};

/// `CTA_ID`: tells an entry from a later one with the same addresses.
const CTA_ID: u16 = 12;
/// `CTA_ZONE`: only entries outside the default zone have it.
const CTA_ZONE: u16 = 18;

/// The conntrack table of one network namespace.
pub trait Conntrack {
    /// Deletes the entries of a family that are stale, by one dump for each filter: a piece of the work, which goes on where the last call
    /// has stopped or begins `anew`, with these filters. After an error the next call begins anew.
    ///
    /// # Errors
    /// When the kernel refuses a dump or a deletion.
    fn delete_some(
        &mut self,
        family: Family,
        filters: &[Filter],
        anew: bool,
        stale: &dyn Fn(&Flow) -> bool,
    ) -> io::Result<Piece>;

    /// All pieces of the work in a row; how many entries were deleted.
    ///
    /// # Errors
    /// When the kernel refuses a dump or a deletion.
    fn delete(&mut self, family: Family, filters: &[Filter], stale: &dyn Fn(&Flow) -> bool) -> io::Result<usize> {
        let mut piece = self.delete_some(family, filters, true, stale)?;
        let mut deleted = piece.deleted;
        while !piece.is_last {
            piece = self.delete_some(family, filters, false, stale)?;
            deleted += piece.deleted;
        }
        Ok(deleted)
    }

    /// The addresses that the flows of a family come from, by one dump; connections of TCP that are over do not count.
    ///
    /// # Errors
    /// When the kernel refuses it.
    fn clients(&mut self, family: Family) -> io::Result<BTreeSet<IpAddr>>;
}

/// The kernel's, in the network namespace of the first look. Its socket stays open: to close one of netfilter's waits until the kernel
/// has freed what the last transaction of nf_tables removed (`nft_rcv_nl_event`), 5 to 8 ms after a sync.
#[derive(Debug, Default)]
pub struct Netlink {
    socket: Option<Socket>,
    /// For deletions beside a dump.
    deletions: Option<Socket>,
    scan: Option<Scan>,
}

impl Netlink {
    /// Ends a look that is under way. A socket with a dump that is not over can be asked for nothing else.
    fn give_up(&mut self) {
        if self.scan.take().is_some_and(|scan| scan.is_dumping) {
            self.socket = None;
        }
    }

    /// Works with the socket. After a failure there is a new one: an answer may have been left in the old one.
    fn with<T>(&mut self, work: impl FnOnce(&Socket) -> io::Result<T>) -> io::Result<T> {
        let socket = self.socket.take().map_or_else(netfilter::connect, Ok)?;
        let result = work(&socket)?;
        self.socket = Some(socket);
        Ok(result)
    }
}

impl Conntrack for Netlink {
    fn delete_some(
        &mut self,
        family: Family,
        filters: &[Filter],
        anew: bool,
        stale: &dyn Fn(&Flow) -> bool,
    ) -> io::Result<Piece> {
        if anew {
            self.give_up();
        }
        let mut scan = self.scan.take().unwrap_or_else(|| Scan::new(proto_family(family), filters));
        let mut deletions = self.deletions.take();
        let piece = self.with(|socket| scan.go_on(socket, &mut deletions, stale))?;
        self.deletions = deletions;
        self.scan = Some(scan).filter(|_| !piece.is_last);
        Ok(piece)
    }

    fn clients(&mut self, family: Family) -> io::Result<BTreeSet<IpAddr>> {
        self.give_up();
        let mut found = BTreeSet::new();
        self.with(|socket| {
            exchange(socket, family, NLM_F_DUMP, ConntrackMessage::Get(Vec::new()), |attributes| {
                if !is_over(&attributes) {
                    found.extend(read(&attributes).map(|flow| flow.client));
                }
            })
        })?;
        Ok(found)
    }
}

/// The attributes by which the kernel finds the very entry again.
fn names_entry(attribute: &ConntrackAttribute) -> bool {
    matches!(attribute, ConntrackAttribute::CtaTupleOrig(_)) || other(attribute, CTA_ID).is_some()
}

fn other(attribute: &ConntrackAttribute, kind: u16) -> Option<&DefaultNla> {
    match attribute {
        ConntrackAttribute::Other(nla) if nla.kind() == kind => Some(nla),
        _ => None,
    }
}

fn proto_family(family: Family) -> NetfilterProtoFamily {
    match family {
        Family::V4 => NetfilterProtoFamily::IPv4,
        Family::V6 => NetfilterProtoFamily::IPv6,
    }
}

/// Sends a request and hands on every entry of the answer.
fn exchange(
    socket: &Socket,
    family: Family,
    flags: u16,
    message: ConntrackMessage,
    mut entry: impl FnMut(Vec<ConntrackAttribute>),
) -> io::Result<()> {
    netfilter::exchange(socket, proto_family(family), flags, message, |answer| {
        if let NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes)) = answer {
            entry(attributes);
        }
    })
}

/// `TCP_CONNTRACK_TIME_WAIT` and `TCP_CONNTRACK_CLOSE` (`include/uapi/linux/netfilter/nf_conntrack_tcp.h`): nobody waits for
/// another packet.
const OVER: [u8; 2] = [7, 8];

fn is_over(attributes: &[ConntrackAttribute]) -> bool {
    let states = attributes.iter().filter_map(|attribute| match attribute {
        ConntrackAttribute::CtaProtoInfo(parts) => Some(parts),
        _ => None,
    });
    states.flatten().any(|part| match part {
        ProtoInfo::TCP(parts) => {
            parts.iter().any(|part| matches!(part, ProtoInfoTCP::State(state) if OVER.contains(state)))
        }
        _ => false,
    })
}

/// An entry of a protocol that Services have, in the default zone.
fn read(attributes: &[ConntrackAttribute]) -> Option<Flow> {
    let (mut original, mut reply, mut status) = (None, None, Status::empty());
    for attribute in attributes {
        match attribute {
            ConntrackAttribute::CtaTupleOrig(tuple) => original = Some(tuple),
            ConntrackAttribute::CtaTupleReply(tuple) => reply = Some(tuple),
            ConntrackAttribute::CtaStatus(bits) => status = *bits,
            other_one if other(other_one, CTA_ZONE).is_some() => return None,
            _ => {}
        }
    }
    let (original, reply) = (End::read(original?), End::read(reply?));
    let destination = SocketAddr::new(original.destination?, original.destination_port?);
    let server = SocketAddr::new(reply.source?, reply.source_port?);
    // What IPVS translates has no such bit, but another address in its reply.
    let by_ipvs = server != destination && !status.contains(Status::DstNat);
    let translated = status.contains(Status::DstNat) || by_ipvs;
    Some(Flow { protocol: original.protocol?, client: original.source?, destination, server, translated, by_ipvs })
}

/// Reads these bytes as an answer about connections, for [`crate::fuzzing`].
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Some(NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes))) = netfilter::fuzz(bytes) {
        let _ = (is_over(&attributes), read(&attributes));
    }
}

/// One direction of an entry.
#[derive(Default)]
struct End {
    protocol: Option<Protocol>,
    source: Option<IpAddr>,
    source_port: Option<u16>,
    destination: Option<IpAddr>,
    destination_port: Option<u16>,
}

impl End {
    fn read(tuple: &[Tuple]) -> End {
        let mut end = End::default();
        for part in tuple {
            match part {
                Tuple::Ip(parts) => parts.iter().for_each(|part| end.address(part)),
                Tuple::Proto(parts) => parts.iter().for_each(|part| end.port(part)),
                _ => {}
            }
        }
        end
    }

    fn address(&mut self, part: &IPTuple) {
        match part {
            IPTuple::SourceAddress(address) => self.source = Some(*address),
            IPTuple::DestinationAddress(address) => self.destination = Some(*address),
            _ => {}
        }
    }

    fn port(&mut self, part: &ProtoTuple) {
        match part {
            ProtoTuple::Protocol(Number::Tcp) => self.protocol = Some(Protocol::Tcp),
            ProtoTuple::Protocol(Number::Udp) => self.protocol = Some(Protocol::Udp),
            ProtoTuple::Protocol(Number::Sctp) => self.protocol = Some(Protocol::Sctp),
            ProtoTuple::SourcePort(port) => self.source_port = Some(*port),
            ProtoTuple::DestinationPort(port) => self.destination_port = Some(*port),
            _ => {}
        }
    }
}
