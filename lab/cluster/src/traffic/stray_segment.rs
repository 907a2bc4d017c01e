//! TCP segments far outside the receive window, as a middlebox may deliver them.
//!
//! A raw socket in the server's namespace captures the sequence numbers.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// The distance to a stray segment: more than any window (2^30 bytes, RFC 7323).
const BEYOND: u32 = 1 << 30;
const PSH_ACK: u8 = 0x18;
const NO_OPTIONS: u8 = 5 << 4;
const PAYLOAD: &[u8] = b"stray";

/// Captures the TCP segments that a host receives.
pub struct TcpTap {
    socket: Socket,
    own: IpAddr,
}

/// The last captured segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClientSegment {
    server_port: u16,
    /// The client's next sequence number.
    next: u32,
    /// The client's next expected sequence number.
    expects: u32,
}

impl TcpTap {
    /// Opens a tap; call on the thread of the namespace.
    pub(crate) fn open(own: IpAddr) -> io::Result<TcpTap> {
        let domain = Domain::for_address(SocketAddr::new(own, 0));
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        Ok(TcpTap { socket, own })
    }

    /// Sends a stray segment on the client's last captured connection.
    ///
    /// # Errors
    /// No segment of the client was captured, or sending failed.
    pub fn send_stray(&self, client: SocketAddr) -> io::Result<()> {
        let mut last = None;
        let mut packet = vec![0; 65_536];
        loop {
            match (&self.socket).read(&mut packet) {
                Ok(length) => last = parse_segment(&packet[..length], client).or(last),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let heard = last.ok_or_else(|| io::Error::other(format!("no segment of {client} was captured")))?;
        let segment = segment(SocketAddr::new(self.own, heard.server_port), client, &heard);
        // The port must be 0 with IPv6 and is ignored otherwise.
        self.socket.send_to(&segment, &SocketAddr::new(client.ip(), 0).into()).map(|_| ())
    }
}

/// Parses a segment. A raw socket delivers the IP header for IPv4 only.
fn parse_segment(packet: &[u8], client: SocketAddr) -> Option<ClientSegment> {
    let header = if client.is_ipv4() { usize::from(packet.first()? & 0xf) * 4 } else { 0 };
    let segment = packet.get(header..)?;
    let short = |at: usize| Some(u16::from_be_bytes(segment.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_be_bytes(segment.get(at..at + 4)?.try_into().ok()?));
    let data = segment.len().checked_sub(usize::from(segment.get(12)? >> 4) * 4)?;
    let heard = ClientSegment { server_port: short(2)?, next: long(4)?.wrapping_add(data as u32), expects: long(8)? };
    (short(0)? == client.port()).then_some(heard)
}

/// Returns a segment with a correct acknowledgement number, so that the client accepts a reset in reply.
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

/// Returns the checksum of RFC 1071, with pseudo header.
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut text = [octets(from), octets(to)].concat();
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
    fn a_stray_segment_is_valid_but_outside_the_window() {
        let (server, client) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:4711".parse().unwrap());
        let mut packet = vec![0x45; 20];
        packet.extend([0x12, 0x67, 0, 80, 0, 0, 0, 100, 0, 0, 3, 232, 0x50, PSH_ACK, 0, 0, 0, 0, 0, 0]);
        packet.extend(b"who?\n");
        let captured = parse_segment(&packet, client).unwrap();
        assert_eq!(captured, ClientSegment { server_port: 80, next: 105, expects: 1000 });
        assert_eq!(parse_segment(&packet, "10.0.0.2:4712".parse().unwrap()), None);
        assert_eq!(parse_segment(&packet[..30], client), None);
        let segment = segment(server, client, &captured);
        assert_eq!(segment[4..12], [0x40, 0, 3, 232, 0, 0, 0, 105]);
        assert_eq!(checksum(server.ip(), client.ip(), &segment), 0);
    }
}
