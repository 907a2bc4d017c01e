//! Packets as rules see them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::protocol::{Family, Protocol};

/// The flags byte of a TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// FIN.
    pub const FIN: u8 = 0x01;
    /// SYN.
    pub const SYN: u8 = 0x02;
    /// RST.
    pub const RST: u8 = 0x04;
    /// ACK.
    pub const ACK: u8 = 0x10;

    /// Whether all of `bits` are set.
    #[must_use]
    pub fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }
}

/// ICMP type and code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IcmpKind {
    /// The type's number in the packet's family.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
}

/// The part after the IP header.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketBody {
    /// A TCP segment.
    Tcp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Flags.
        flags: TcpFlags,
        /// Whether the segment is outside the window that conntrack expects.
        out_of_window: bool,
    },
    /// A UDP datagram.
    Udp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// An SCTP packet.
    Sctp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Whether the packet has an INIT chunk.
        init: bool,
    },
    /// An echo request or reply of either family.
    Echo {
        /// Identifier.
        id: u16,
        /// Whether it is the reply.
        reply: bool,
    },
    /// ICMP error.
    Error {
        /// Type and code.
        kind: IcmpKind,
        /// The quoted packet, as its sender saw it.
        about: Box<Packet>,
    },
    /// A neighbour solicitation or advertisement (RFC 4861).
    Neighbour {
        /// Whether it is the advertisement.
        advertisement: bool,
    },
    /// Another protocol, without content.
    Other(Protocol),
}

/// An IP packet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packet {
    /// Source address.
    pub source: IpAddr,
    /// Destination address; of the source's family.
    pub destination: IpAddr,
    /// The part after the IP header.
    pub body: PacketBody,
}

impl Packet {
    /// Returns a connection's first packet: SYN, UDP datagram or INIT. `None` without ports, or for two families.
    #[must_use]
    pub fn first(protocol: Protocol, source: SocketAddr, destination: SocketAddr) -> Option<Packet> {
        let (from, to) = (source.port(), destination.port());
        let body = match protocol {
            Protocol::TCP => {
                PacketBody::Tcp { source: from, destination: to, flags: TcpFlags(TcpFlags::SYN), out_of_window: false }
            }
            Protocol::UDP => PacketBody::Udp { source: from, destination: to },
            Protocol::SCTP => PacketBody::Sctp { source: from, destination: to, init: true },
            _ => return None,
        };
        let same = source.is_ipv4() == destination.is_ipv4();
        same.then(|| Packet { source: source.ip(), destination: destination.ip(), body })
    }

    /// Turns the packet into a later one: ACK, UDP datagram, SCTP data.
    #[must_use]
    pub fn later(mut self) -> Packet {
        match &mut self.body {
            PacketBody::Tcp { flags, .. } => *flags = TcpFlags(TcpFlags::ACK),
            PacketBody::Sctp { init, .. } => *init = false,
            _ => {}
        }
        self
    }

    /// Sets RST; `None` if not TCP.
    #[must_use]
    pub fn reset(mut self) -> Option<Packet> {
        let PacketBody::Tcp { flags, .. } = &mut self.body else { return None };
        *flags = TcpFlags(TcpFlags::RST);
        Some(self)
    }

    /// Returns the reply, if the packet asks for one.
    #[must_use]
    pub fn answer(&self) -> Option<Packet> {
        let body = match self.body {
            PacketBody::Tcp { flags, .. } if flags.has(TcpFlags::RST) => return None,
            PacketBody::Tcp { source, destination, flags, .. } => {
                let flags = TcpFlags(flags.0 & (TcpFlags::SYN | TcpFlags::FIN) | TcpFlags::ACK);
                PacketBody::Tcp { source: destination, destination: source, flags, out_of_window: false }
            }
            PacketBody::Udp { source, destination } => PacketBody::Udp { source: destination, destination: source },
            PacketBody::Sctp { source, destination, .. } => {
                PacketBody::Sctp { source: destination, destination: source, init: false }
            }
            PacketBody::Echo { id, reply: false } => PacketBody::Echo { id, reply: true },
            PacketBody::Echo { .. }
            | PacketBody::Error { .. }
            | PacketBody::Neighbour { .. }
            | PacketBody::Other(_) => return None,
        };
        Some(Packet { source: self.destination, destination: self.source, body })
    }

    /// The family.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(self.destination)
    }

    /// The protocol.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        match (&self.body, self.family()) {
            (PacketBody::Tcp { .. }, _) => Protocol::TCP,
            (PacketBody::Udp { .. }, _) => Protocol::UDP,
            (PacketBody::Sctp { .. }, _) => Protocol::SCTP,
            (PacketBody::Echo { .. } | PacketBody::Error { .. }, Family::V4) => Protocol::ICMP,
            (PacketBody::Echo { .. } | PacketBody::Error { .. }, Family::V6) => Protocol::ICMPV6,
            (PacketBody::Neighbour { .. }, _) => Protocol::ICMPV6,
            (PacketBody::Other(protocol), _) => *protocol,
        }
    }

    /// Source and destination port.
    #[must_use]
    pub fn ports(&self) -> Option<(u16, u16)> {
        match self.body {
            PacketBody::Tcp { source, destination, .. }
            | PacketBody::Udp { source, destination }
            | PacketBody::Sctp { source, destination, .. } => Some((source, destination)),
            PacketBody::Echo { .. }
            | PacketBody::Error { .. }
            | PacketBody::Neighbour { .. }
            | PacketBody::Other(_) => None,
        }
    }

    /// ICMP type and code.
    #[must_use]
    pub fn icmp(&self) -> Option<IcmpKind> {
        match (&self.body, self.family()) {
            (PacketBody::Echo { reply, .. }, Family::V4) => {
                Some(IcmpKind { kind: if *reply { 0 } else { 8 }, code: 0 })
            }
            (PacketBody::Echo { reply, .. }, Family::V6) => {
                Some(IcmpKind { kind: if *reply { 129 } else { 128 }, code: 0 })
            }
            (PacketBody::Error { kind, .. }, _) => Some(*kind),
            (PacketBody::Neighbour { advertisement }, _) => {
                Some(IcmpKind { kind: if *advertisement { 136 } else { 135 }, code: 0 })
            }
            _ => None,
        }
    }

    pub(crate) fn set_source_port(&mut self, port: u16) {
        match &mut self.body {
            PacketBody::Tcp { source, .. } | PacketBody::Udp { source, .. } | PacketBody::Sctp { source, .. } => {
                *source = port
            }
            PacketBody::Echo { id, .. } => *id = port,
            PacketBody::Error { .. } | PacketBody::Neighbour { .. } | PacketBody::Other(_) => {}
        }
    }

    pub(crate) fn set_destination_port(&mut self, port: u16) {
        match &mut self.body {
            PacketBody::Tcp { destination, .. }
            | PacketBody::Udp { destination, .. }
            | PacketBody::Sctp { destination, .. } => {
                *destination = port;
            }
            PacketBody::Echo { id, .. } => *id = port,
            PacketBody::Error { .. } | PacketBody::Neighbour { .. } | PacketBody::Other(_) => {}
        }
    }
}

pub(crate) fn endpoint(address: IpAddr, port: Option<u16>) -> String {
    match port {
        Some(port) => SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.ports();
        let from = endpoint(self.source, ports.map(|(source, _)| source));
        let to = endpoint(self.destination, ports.map(|(_, destination)| destination));
        write!(f, "{} {from} -> {to}", self.protocol())?;
        match &self.body {
            PacketBody::Tcp { flags, out_of_window, .. } => {
                let names =
                    [(TcpFlags::SYN, "SYN"), (TcpFlags::FIN, "FIN"), (TcpFlags::RST, "RST"), (TcpFlags::ACK, "ACK")];
                for (bit, name) in names.into_iter().filter(|(bit, _)| flags.has(*bit)) {
                    let _ = bit;
                    write!(f, " {name}")?;
                }
                if *out_of_window { f.write_str(" (out of window)") } else { Ok(()) }
            }
            PacketBody::Echo { id, reply } => write!(f, " echo {} id {id}", if *reply { "reply" } else { "request" }),
            PacketBody::Error { kind, about } => write!(f, " type {} code {} about ({about})", kind.kind, kind.code),
            PacketBody::Sctp { init: true, .. } => f.write_str(" INIT"),
            PacketBody::Neighbour { advertisement: true } => f.write_str(" neighbour advertisement"),
            PacketBody::Neighbour { advertisement: false } => f.write_str(" neighbour solicitation"),
            PacketBody::Udp { .. } | PacketBody::Sctp { .. } | PacketBody::Other(_) => Ok(()),
        }
    }
}
