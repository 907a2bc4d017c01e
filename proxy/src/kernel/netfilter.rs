//! Requests to netfilter's subsystems through netlink (`include/uapi/linux/netfilter/nfnetlink.h`), and what they answer.

use std::io;

use netlink_packet_core::{ErrorContext as _, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

/// `NLMSG_MIN_TYPE` (`include/uapi/linux/netlink.h`).
const NLMSG_MIN_TYPE: u16 = 16;
/// `NFNL_SUBSYS_CTNETLINK` (`include/uapi/linux/netfilter/nfnetlink.h`).
const CTNETLINK: u16 = 1;

/// A dump comes in messages of up to 32 KiB (`netlink(7)`).
const BUFFER: usize = 1 << 16;

/// A socket to netfilter in this network namespace.
///
/// # Errors
/// When the kernel refuses it.
pub(super) fn connect() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// A request as bytes. A datagram may have several.
pub(super) fn encode(family: NetfilterProtoFamily, flags: u16, message: impl Into<NetfilterMessageInner>) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let payload = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), message);
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(payload));
    packet.finalize();
    let mut request = vec![0; packet.buffer_len()];
    packet.serialize(&mut request);
    request
}

/// Sends a request and hands on every message of the answer. `flags` ask for a dump (`NLM_F_DUMP`) or an acknowledgement
/// (`NLM_F_ACK`): one of the two ends the answer.
///
/// # Errors
/// What the kernel answers, and what it sends that cannot be understood.
pub(super) fn exchange(
    socket: &Socket,
    family: NetfilterProtoFamily,
    flags: u16,
    message: impl Into<NetfilterMessageInner>,
    mut each: impl FnMut(NetfilterMessageInner),
) -> io::Result<()> {
    socket.send(&encode(family, NLM_F_REQUEST | flags, message), 0)?;
    while !receive(socket, 0, &mut each)? {}
    Ok(())
}

/// Takes one datagram of an answer and hands on its messages; whether it ends the answer. `flags` are those of recv(2).
///
/// # Errors
/// What the kernel answers, and what it sends that cannot be understood.
pub(super) fn receive(socket: &Socket, flags: i32, mut each: impl FnMut(NetfilterMessageInner)) -> io::Result<bool> {
    // Not zeroed: the most of it is never used.
    let mut buffer = Vec::with_capacity(BUFFER);
    socket.recv(&mut buffer, flags)?;
    let mut rest = &buffer[..];
    while !rest.is_empty() {
        let message = decode(rest)?;
        // Messages begin at multiples of four bytes (NLMSG_ALIGN).
        let advance = (message.header.length as usize).next_multiple_of(4).clamp(4, rest.len());
        rest = &rest[advance..];
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) if error.code.is_none() => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(inner) => each(inner.inner),
            _ => {}
        }
    }
    Ok(false)
}

/// One message. Of netfilter's subsystems only connection tracking is asked here; the decoder of another's, nf_tables, indexes by
/// lengths that it has not checked.
fn decode(bytes: &[u8]) -> io::Result<NetlinkMessage<NetfilterMessage>> {
    let invalid = |error: String| io::Error::new(io::ErrorKind::InvalidData, error);
    // `struct nlmsghdr`: a length, then the type. Below 16 it is netlink's own, else its upper byte is the subsystem.
    let kind = bytes.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    match kind {
        Some(kind) if kind < NLMSG_MIN_TYPE || kind >> 8 == CTNETLINK => {}
        _ => return Err(invalid("an answer of netfilter is not about connections".to_owned())),
    }
    let decoded = NetlinkMessage::<NetfilterMessage>::deserialize(bytes).context("an answer of netfilter");
    decoded.map_err(|error| invalid(error.to_string()))
}

/// Reads these bytes as one message of an answer, for [`crate::fuzzing`].
pub(super) fn fuzz(bytes: &[u8]) -> Option<NetfilterMessageInner> {
    match decode(bytes).ok()?.payload {
        NetlinkPayload::InnerMessage(message) => Some(message.inner),
        _ => None,
    }
}
