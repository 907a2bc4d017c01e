//! conntrack entries, read and deleted through netlink (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).

use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{
    DefaultNla, ErrorContext as _, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    Nla,
};
use netlink_packet_netfilter::conntrack::{
    ConntrackAttribute, ConntrackMessage, IPTuple, ProtoTuple, Protocol as Number, Status, Tuple,
};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};

use crate::model::{Family, Protocol};
use crate::plan::flows::Flow;

/// `CTA_ID`: tells an entry from a later one with the same addresses.
const CTA_ID: u16 = 12;
/// `CTA_ZONE`: only entries outside the default zone have it.
const CTA_ZONE: u16 = 18;
/// A dump comes in messages of up to 32 KiB (`netlink(7)`).
const BUFFER: usize = 1 << 16;

/// The conntrack table of one network namespace.
pub trait Conntrack {
    /// Deletes the entries of a family that are stale, by one dump; how many there were.
    ///
    /// # Errors
    /// When the kernel refuses the dump or a deletion.
    fn delete(&mut self, family: Family, stale: &dyn Fn(&Flow) -> bool) -> io::Result<usize>;
}

/// The kernel's.
#[derive(Debug, Default)]
pub struct Netlink;

impl Conntrack for Netlink {
    fn delete(&mut self, family: Family, stale: &dyn Fn(&Flow) -> bool) -> io::Result<usize> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&NetlinkAddr::new(0, 0))?;
        let mut found = Vec::new();
        exchange(&socket, family, NLM_F_DUMP, ConntrackMessage::Get(Vec::new()), |attributes| {
            if let Some(flow) = read(&attributes)
                && stale(&flow)
            {
                found.push(attributes.into_iter().filter(names_entry).collect::<Vec<_>>());
            }
        })?;
        let mut deleted = 0;
        for attributes in found {
            match exchange(&socket, family, NLM_F_ACK, ConntrackMessage::Delete(attributes), |_| {}) {
                Ok(()) => deleted += 1,
                // It has ended by itself.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
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

/// Sends a request and hands on every entry of the answer.
fn exchange(
    socket: &Socket,
    family: Family,
    flags: u16,
    message: ConntrackMessage,
    mut entry: impl FnMut(Vec<ConntrackAttribute>),
) -> io::Result<()> {
    let family = match family {
        Family::V4 => NetfilterProtoFamily::IPv4,
        Family::V6 => NetfilterProtoFamily::IPv6,
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let payload = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), message);
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(payload));
    packet.finalize();
    let mut request = vec![0; packet.buffer_len()];
    packet.serialize(&mut request);
    socket.send(&request, 0)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = socket.recv(&mut &mut buffer[..], 0)?;
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let message = NetlinkMessage::<NetfilterMessage>::deserialize(rest)
                .context("an answer of conntrack")
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            // Messages begin at multiples of four bytes (NLMSG_ALIGN).
            let advance = (message.header.length as usize).next_multiple_of(4).clamp(4, rest.len());
            rest = &rest[advance..];
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(inner) => {
                    if let NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes)) = inner.inner {
                        entry(attributes);
                    }
                }
                _ => {}
            }
        }
    }
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
    let translated = status.contains(Status::DstNat) || server != destination;
    Some(Flow { protocol: original.protocol?, destination, server, translated })
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
