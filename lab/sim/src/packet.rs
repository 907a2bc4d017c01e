//! A packet, as far as rules can see it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::protocol::{Family, Protocol};

/// Flags of a TCP segment, in the bits of the header.
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

/// Why an ICMP error was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IcmpKind {
    /// ICMP type; the family of the packet says which table of numbers.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
}

/// What follows the IP header.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Body {
    /// A TCP segment.
    Tcp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Flags.
        flags: TcpFlags,
        /// Whether its sequence number lies outside the window that connection tracking expects.
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
        /// Whether it opens an association (an INIT chunk).
        init: bool,
    },
    /// An echo request or its answer, of either family.
    Echo {
        /// Identifier.
        id: u16,
        /// The answer.
        reply: bool,
    },
    /// An ICMP error about another packet.
    Error {
        /// Type and code.
        kind: IcmpKind,
        /// The packet that it is about, as the sender of the error saw it.
        about: Box<Packet>,
    },
    /// Anything else, by its protocol alone.
    Other(Protocol),
}

/// A packet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packet {
    /// Source address.
    pub source: IpAddr,
    /// Destination address; of the source's family.
    pub destination: IpAddr,
    /// The rest.
    pub body: Body,
}

impl Packet {
    /// The first packet of a connection: TCP SYN, a UDP datagram, SCTP INIT.
    ///
    /// None if the protocol has no ports, or the addresses are of different families.
    #[must_use]
    pub fn first(protocol: Protocol, source: SocketAddr, destination: SocketAddr) -> Option<Packet> {
        let (from, to) = (source.port(), destination.port());
        let body = match protocol {
            Protocol::TCP => {
                Body::Tcp { source: from, destination: to, flags: TcpFlags(TcpFlags::SYN), out_of_window: false }
            }
            Protocol::UDP => Body::Udp { source: from, destination: to },
            Protocol::SCTP => Body::Sctp { source: from, destination: to, init: true },
            _ => return None,
        };
        let same = source.is_ipv4() == destination.is_ipv4();
        same.then(|| Packet { source: source.ip(), destination: destination.ip(), body })
    }

    /// The same connection's later packet: TCP ACK, another datagram, SCTP data.
    #[must_use]
    pub fn later(mut self) -> Packet {
        match &mut self.body {
            Body::Tcp { flags, .. } => *flags = TcpFlags(TcpFlags::ACK),
            Body::Sctp { init, .. } => *init = false,
            _ => {}
        }
        self
    }

    /// The same connection broken off: TCP RST; nothing of the other protocols ends one.
    #[must_use]
    pub fn reset(mut self) -> Option<Packet> {
        let Body::Tcp { flags, .. } = &mut self.body else { return None };
        *flags = TcpFlags(TcpFlags::RST);
        Some(self)
    }

    /// What a socket that took this packet answers, an end with its own; nothing to what asks for no answer.
    #[must_use]
    pub fn answer(&self) -> Option<Packet> {
        let body = match self.body {
            Body::Tcp { flags, .. } if flags.has(TcpFlags::RST) => return None,
            Body::Tcp { source, destination, flags, .. } => {
                let flags = TcpFlags(flags.0 & (TcpFlags::SYN | TcpFlags::FIN) | TcpFlags::ACK);
                Body::Tcp { source: destination, destination: source, flags, out_of_window: false }
            }
            Body::Udp { source, destination } => Body::Udp { source: destination, destination: source },
            Body::Sctp { source, destination, .. } => {
                Body::Sctp { source: destination, destination: source, init: false }
            }
            Body::Echo { id, reply: false } => Body::Echo { id, reply: true },
            Body::Echo { .. } | Body::Error { .. } | Body::Other(_) => return None,
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
            (Body::Tcp { .. }, _) => Protocol::TCP,
            (Body::Udp { .. }, _) => Protocol::UDP,
            (Body::Sctp { .. }, _) => Protocol::SCTP,
            (Body::Echo { .. } | Body::Error { .. }, Family::V4) => Protocol::ICMP,
            (Body::Echo { .. } | Body::Error { .. }, Family::V6) => Protocol::ICMPV6,
            (Body::Other(protocol), _) => *protocol,
        }
    }

    /// Source and destination port, if it has ports.
    #[must_use]
    pub fn ports(&self) -> Option<(u16, u16)> {
        match self.body {
            Body::Tcp { source, destination, .. }
            | Body::Udp { source, destination }
            | Body::Sctp { source, destination, .. } => Some((source, destination)),
            Body::Echo { .. } | Body::Error { .. } | Body::Other(_) => None,
        }
    }

    /// Type and code, if it is ICMP.
    #[must_use]
    pub fn icmp(&self) -> Option<IcmpKind> {
        match (&self.body, self.family()) {
            (Body::Echo { reply, .. }, Family::V4) => Some(IcmpKind { kind: if *reply { 0 } else { 8 }, code: 0 }),
            (Body::Echo { reply, .. }, Family::V6) => Some(IcmpKind { kind: if *reply { 129 } else { 128 }, code: 0 }),
            (Body::Error { kind, .. }, _) => Some(*kind),
            _ => None,
        }
    }

    /// Sets the source's port, or an echo's identifier.
    pub(crate) fn set_source_port(&mut self, port: u16) {
        match &mut self.body {
            Body::Tcp { source, .. } | Body::Udp { source, .. } | Body::Sctp { source, .. } => *source = port,
            Body::Echo { id, .. } => *id = port,
            Body::Error { .. } | Body::Other(_) => {}
        }
    }

    /// Sets the destination's port, or an echo's identifier.
    pub(crate) fn set_destination_port(&mut self, port: u16) {
        match &mut self.body {
            Body::Tcp { destination, .. } | Body::Udp { destination, .. } | Body::Sctp { destination, .. } => {
                *destination = port;
            }
            Body::Echo { id, .. } => *id = port,
            Body::Error { .. } | Body::Other(_) => {}
        }
    }
}

/// An address with its port, if there is one: `10.0.0.1:80`, `[fd00::1]:80`, `10.0.0.1`.
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
            Body::Tcp { flags, out_of_window, .. } => {
                let names =
                    [(TcpFlags::SYN, "SYN"), (TcpFlags::FIN, "FIN"), (TcpFlags::RST, "RST"), (TcpFlags::ACK, "ACK")];
                for (bit, name) in names.into_iter().filter(|(bit, _)| flags.has(*bit)) {
                    let _ = bit;
                    write!(f, " {name}")?;
                }
                if *out_of_window { f.write_str(" (out of window)") } else { Ok(()) }
            }
            Body::Echo { id, reply } => write!(f, " echo {} id {id}", if *reply { "reply" } else { "request" }),
            Body::Error { kind, about } => write!(f, " type {} code {} about ({about})", kind.kind, kind.code),
            Body::Sctp { init: true, .. } => f.write_str(" INIT"),
            Body::Udp { .. } | Body::Sctp { .. } | Body::Other(_) => Ok(()),
        }
    }
}
