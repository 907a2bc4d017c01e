//! Segments that belong nowhere: sent from a server's end of a TCP connection, far outside of its window, as a middlebox or
//! an overtaken packet would bring them.
//!
//! The connection's numbers are overheard: a raw socket in the server's namespace gets a copy of what the client sends.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// How far beyond what the client expects next: more than any window (RFC 7323 allows 2^30 bytes).
const BEYOND: u32 = 1 << 30;
/// Flags of a segment that carries data (RFC 9293).
const PSH_ACK: u8 = 0x18;
/// Data offset of a header without options, in its place in the header.
const NO_OPTIONS: u8 = 5 << 4;
/// What the stray segment carries.
const PAYLOAD: &[u8] = b"stray";

/// Hears what arrives at a host over TCP.
pub struct TcpTap {
    socket: Socket,
    own: IpAddr,
}

/// What a client sent last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClientSegment {
    server_port: u16,
    /// What the client sends next.
    next: u32,
    /// What it expects next.
    expects: u32,
}

impl TcpTap {
    /// A tap on the host that has the address `own`; call on its namespace's thread.
    pub(crate) fn open(own: IpAddr) -> io::Result<TcpTap> {
        let domain = Domain::for_address(SocketAddr::new(own, 0));
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        Ok(TcpTap { socket, own })
    }

    /// Sends a stray segment to `client` (as the server sees it) over the connection that was last heard of from its port.
    ///
    /// # Errors
    /// When nothing was heard of such a connection, or the segment cannot be sent.
    pub fn stray(&self, client: SocketAddr) -> io::Result<()> {
        let mut last = None;
        let mut packet = vec![0; 65_536];
        loop {
            match (&self.socket).read(&mut packet) {
                Ok(length) => last = heard(&packet[..length], client).or(last),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let heard = last.ok_or_else(|| io::Error::other(format!("nothing was heard from {client}")))?;
        let segment = segment(SocketAddr::new(self.own, heard.server_port), client, &heard);
        // The port of a raw socket's destination means nothing, and must be 0 with IPv6.
        self.socket.send_to(&segment, &SocketAddr::new(client.ip(), 0).into()).map(|_| ())
    }
}

/// What a packet from `client` tells, as a raw socket gets it: with its header under IPv4, without under IPv6.
fn heard(packet: &[u8], client: SocketAddr) -> Option<ClientSegment> {
    let header = if client.is_ipv4() { usize::from(packet.first()? & 0xf) * 4 } else { 0 };
    let segment = packet.get(header..)?;
    let short = |at: usize| Some(u16::from_be_bytes(segment.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_be_bytes(segment.get(at..at + 4)?.try_into().ok()?));
    let data = segment.len().checked_sub(usize::from(segment.get(12)? >> 4) * 4)?;
    let heard = ClientSegment { server_port: short(2)?, next: long(4)?.wrapping_add(data as u32), expects: long(8)? };
    (short(0)? == client.port()).then_some(heard)
}

/// The stray segment. What it acknowledges is right: a reset that answers it is believed.
fn segment(server: SocketAddr, client: SocketAddr, heard: &ClientSegment) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(server.port().to_be_bytes());
    segment.extend(client.port().to_be_bytes());
    segment.extend(heard.expects.wrapping_add(BEYOND).to_be_bytes());
    segment.extend(heard.next.to_be_bytes());
    segment.extend([NO_OPTIONS, PSH_ACK, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(PAYLOAD);
    let sum = checksum(server.ip(), client.ip(), &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// The Internet checksum (RFC 1071) of the pseudo header and the segment; the sum is the same for both families' headers.
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut text = [octets(from), octets(to)].concat();
    // Protocol (TCP) and length.
    text.extend([0, 6]);
    text.extend((segment.len() as u16).to_be_bytes());
    text.extend(segment);
    let words = text.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_segment_is_right_but_for_its_place() {
        let (server, client) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:4711".parse().unwrap());
        let mut packet = vec![0x45; 20];
        packet.extend([0x12, 0x67, 0, 80, 0, 0, 0, 100, 0, 0, 3, 232, 0x50, PSH_ACK, 0, 0, 0, 0, 0, 0]);
        packet.extend(b"who?\n");
        let told = heard(&packet, client).unwrap();
        assert_eq!(told, ClientSegment { server_port: 80, next: 105, expects: 1000 });
        assert_eq!(heard(&packet, "10.0.0.2:4712".parse().unwrap()), None);
        assert_eq!(heard(&packet[..30], client), None);
        let segment = segment(server, client, &told);
        assert_eq!(segment[4..12], [0x40, 0, 3, 232, 0, 0, 0, 105]);
        // A segment with its checksum in place sums up to nothing.
        assert_eq!(checksum(server.ip(), client.ip(), &segment), 0);
    }
}
