use std::fmt;
use std::net::IpAddr;

use crate::packet::{Packet, PacketBody, endpoint};
use crate::protocol::Protocol;

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    pub protocol: Protocol,
    pub source: IpAddr,
    /// For echo packets, the identifier.
    pub source_port: u16,
    pub destination: IpAddr,
    pub destination_port: u16,
}

impl Tuple {
    /// Returns the opposite direction. Echo packets keep their identifier.
    #[must_use]
    pub fn inverted(&self) -> Tuple {
        let ports = if self.protocol.is_icmp() {
            (self.source_port, self.destination_port)
        } else {
            (self.destination_port, self.source_port)
        };
        Tuple {
            protocol: self.protocol,
            source: self.destination,
            source_port: ports.0,
            destination: self.source,
            destination_port: ports.1,
        }
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = |port: u16| self.protocol.has_ports().then_some(port);
        let from = endpoint(self.source, port(self.source_port));
        write!(f, "{} {from} -> {}", self.protocol, endpoint(self.destination, port(self.destination_port)))
    }
}

/// Returns a packet's tuple; `None` for ICMP errors and neighbour discovery.
pub(crate) fn tuple_of(packet: &Packet) -> Option<Tuple> {
    let (source_port, destination_port) = match packet.body {
        PacketBody::Error { .. } | PacketBody::Neighbour { .. } => return None,
        PacketBody::Echo { id, .. } => (id, 0),
        _ => packet.ports().unwrap_or((0, 0)),
    };
    Some(Tuple {
        protocol: packet.protocol(),
        source: packet.source,
        source_port,
        destination: packet.destination,
        destination_port,
    })
}
