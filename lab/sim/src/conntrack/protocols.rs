//! What each protocol's packets do to a connection, and how long it is remembered then: the kernel's default time-outs.

use super::{Connection, Direction};
use crate::packet::{Body, Packet, TcpFlags};
use crate::sysctl::Sysctls;

/// How far a connection has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
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

impl Stage {
    /// Milliseconds: nf_conntrack_proto_tcp.c, _udp.c, _sctp.c, _icmp.c, _generic.c.
    pub(super) fn timeout(self) -> u64 {
        let seconds = match self {
            Stage::TcpSynSent | Stage::TcpFinWait | Stage::TcpTimeWait | Stage::UdpStream => 120,
            Stage::TcpSynReceived => 60,
            Stage::TcpEstablished => 432_000,
            Stage::TcpClosed => 10,
            Stage::Udp | Stage::Icmp => 30,
            Stage::SctpOpening => 3,
            Stage::SctpEstablished => 210,
            Stage::Other => 600,
        };
        seconds * 1000
    }
}

/// What a packet is to a connection whose tuple it has.
pub(super) enum Verdict {
    Belongs,
    Invalid,
    /// It opens a new one with the tuple of a closed one.
    Reopens,
}

/// The stage of the connection that the packet opens; none if it cannot open one.
pub(super) fn first(packet: &Packet, sysctls: &Sysctls) -> Option<Stage> {
    match packet.body {
        Body::Tcp { flags, .. } => {
            let ends = flags.0 & (TcpFlags::RST | TcpFlags::FIN) != 0;
            match (flags.has(TcpFlags::SYN), flags.has(TcpFlags::ACK)) {
                (true, false) if !ends => Some(Stage::TcpSynSent),
                (false, true) if !ends && sysctls.tcp_loose => Some(Stage::TcpEstablished),
                _ => None,
            }
        }
        Body::Udp { .. } => Some(Stage::Udp),
        Body::Sctp { init, .. } => init.then_some(Stage::SctpOpening),
        Body::Echo { reply, .. } => (!reply).then_some(Stage::Icmp),
        Body::Error { .. } => None,
        Body::Other(_) => Some(Stage::Other),
    }
}

/// Takes a packet into account.
pub(super) fn follow(
    connection: &mut Connection,
    direction: Direction,
    packet: &Packet,
    sysctls: &Sysctls,
    now: u64,
) -> Verdict {
    let original = direction == Direction::Original;
    let stage = match packet.body {
        Body::Tcp { flags, out_of_window, .. } => {
            let closed = matches!(connection.stage, Stage::TcpTimeWait | Stage::TcpClosed);
            let opens = flags.has(TcpFlags::SYN) && !flags.has(TcpFlags::ACK);
            if opens && closed && original {
                return Verdict::Reopens;
            }
            if out_of_window && !sysctls.tcp_be_liberal {
                return Verdict::Invalid;
            }
            match tcp(connection.stage, original, flags) {
                Some(stage) => stage,
                None => return Verdict::Invalid,
            }
        }
        // A stream is what is answered and lasts for more than two seconds (nf_conntrack_udp_packet).
        Body::Udp { .. } if connection.seen_reply && now > connection.started + 2000 => Stage::UdpStream,
        Body::Sctp { init, .. } if !init && (!original || connection.seen_reply) => Stage::SctpEstablished,
        _ => connection.stage,
    };
    connection.stage = stage;
    connection.assured |= matches!(stage, Stage::TcpEstablished | Stage::UdpStream | Stage::SctpEstablished);
    connection.expires = now + stage.timeout();
    Verdict::Belongs
}

/// The next stage (the table in nf_conntrack_proto_tcp.c, of which this is the part that matters here).
fn tcp(stage: Stage, original: bool, flags: TcpFlags) -> Option<Stage> {
    let (syn, ack) = (flags.has(TcpFlags::SYN), flags.has(TcpFlags::ACK));
    if flags.has(TcpFlags::RST) {
        return Some(Stage::TcpClosed);
    }
    if syn && ack {
        // From the opener's side it answers nothing.
        return match (stage, original) {
            (_, true) => None,
            (Stage::TcpSynSent, false) => Some(Stage::TcpSynReceived),
            (other, false) => Some(other),
        };
    }
    if syn {
        return if original { Some(stage) } else { None };
    }
    if flags.has(TcpFlags::FIN) {
        return Some(if stage == Stage::TcpFinWait { Stage::TcpTimeWait } else { Stage::TcpFinWait });
    }
    match (stage, original) {
        // An acknowledgement of what was never answered.
        (Stage::TcpSynSent, _) => None,
        (Stage::TcpSynReceived, true) => Some(Stage::TcpEstablished),
        (other, _) => Some(other),
    }
}
