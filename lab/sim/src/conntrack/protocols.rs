use super::{ConntrackEntry, FlowDirection};
use crate::packet::{Packet, PacketBody, TcpFlags};
use crate::sysctl::Sysctls;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionStage {
    TcpSynSent,
    TcpSynReceived,
    TcpEstablished,
    TcpFinWait,
    TcpTimeWait,
    TcpClosed,
    Udp,
    UdpStream,
    SctpOpening,
    SctpEstablished,
    Icmp,
    Other,
}

impl ConnectionStage {
    /// In milliseconds (nf_conntrack_proto_tcp.c, _udp.c, _sctp.c, _icmp.c, _generic.c).
    pub(super) fn timeout(self) -> u64 {
        let seconds = match self {
            ConnectionStage::TcpSynSent
            | ConnectionStage::TcpFinWait
            | ConnectionStage::TcpTimeWait
            | ConnectionStage::UdpStream => 120,
            ConnectionStage::TcpSynReceived => 60,
            ConnectionStage::TcpEstablished => 432_000,
            ConnectionStage::TcpClosed => 10,
            ConnectionStage::Udp | ConnectionStage::Icmp => 30,
            ConnectionStage::SctpOpening => 3,
            ConnectionStage::SctpEstablished => 210,
            ConnectionStage::Other => 600,
        };
        seconds * 1000
    }
}

pub(super) enum PacketEffect {
    Belongs,
    Invalid,
    /// The packet replaces a closed connection.
    Reopens,
}

pub(super) fn first(packet: &Packet, sysctls: &Sysctls) -> Option<ConnectionStage> {
    match packet.body {
        PacketBody::Tcp { flags, .. } => {
            let ends = flags.0 & (TcpFlags::RST | TcpFlags::FIN) != 0;
            match (flags.has(TcpFlags::SYN), flags.has(TcpFlags::ACK)) {
                (true, false) if !ends => Some(ConnectionStage::TcpSynSent),
                (false, true) if !ends && sysctls.tcp_loose => Some(ConnectionStage::TcpEstablished),
                _ => None,
            }
        }
        PacketBody::Udp { .. } => Some(ConnectionStage::Udp),
        PacketBody::Sctp { init, .. } => init.then_some(ConnectionStage::SctpOpening),
        PacketBody::Echo { reply, .. } => (!reply).then_some(ConnectionStage::Icmp),
        PacketBody::Error { .. } | PacketBody::Neighbour { .. } => None,
        PacketBody::Other(_) => Some(ConnectionStage::Other),
    }
}

pub(super) fn follow(
    connection: &mut ConntrackEntry,
    direction: FlowDirection,
    packet: &Packet,
    sysctls: &Sysctls,
    now: u64,
) -> PacketEffect {
    let original = direction == FlowDirection::Original;
    let stage = match packet.body {
        PacketBody::Tcp { flags, out_of_window, .. } => {
            let closed = matches!(connection.stage, ConnectionStage::TcpTimeWait | ConnectionStage::TcpClosed);
            let opens = flags.has(TcpFlags::SYN) && !flags.has(TcpFlags::ACK);
            if opens && closed && original {
                return PacketEffect::Reopens;
            }
            if out_of_window && !sysctls.tcp_be_liberal {
                return PacketEffect::Invalid;
            }
            match tcp(connection.stage, original, flags) {
                Some(stage) => stage,
                None => return PacketEffect::Invalid,
            }
        }
        // Streams have replies and last over two seconds (nf_conntrack_udp_packet).
        PacketBody::Udp { .. } if connection.seen_reply && now > connection.started + 2000 => {
            ConnectionStage::UdpStream
        }
        PacketBody::Sctp { init, .. } if !init && (!original || connection.seen_reply) => {
            ConnectionStage::SctpEstablished
        }
        _ => connection.stage,
    };
    connection.stage = stage;
    connection.assured |= matches!(
        stage,
        ConnectionStage::TcpEstablished | ConnectionStage::UdpStream | ConnectionStage::SctpEstablished
    );
    connection.expires = now + stage.timeout();
    PacketEffect::Belongs
}

/// Returns the next stage, by a subset of the table in nf_conntrack_proto_tcp.c.
fn tcp(stage: ConnectionStage, original: bool, flags: TcpFlags) -> Option<ConnectionStage> {
    let (syn, ack) = (flags.has(TcpFlags::SYN), flags.has(TcpFlags::ACK));
    if flags.has(TcpFlags::RST) {
        return Some(ConnectionStage::TcpClosed);
    }
    if syn && ack {
        // Only responders send SYN-ACK.
        return match (stage, original) {
            (_, true) => None,
            (ConnectionStage::TcpSynSent, false) => Some(ConnectionStage::TcpSynReceived),
            (other, false) => Some(other),
        };
    }
    if syn {
        return if original { Some(stage) } else { None };
    }
    if flags.has(TcpFlags::FIN) {
        return Some(if stage == ConnectionStage::TcpFinWait {
            ConnectionStage::TcpTimeWait
        } else {
            ConnectionStage::TcpFinWait
        });
    }
    match (stage, original) {
        (ConnectionStage::TcpSynSent, _) => None,
        (ConnectionStage::TcpSynReceived, true) => Some(ConnectionStage::TcpEstablished),
        (other, _) => Some(other),
    }
}
