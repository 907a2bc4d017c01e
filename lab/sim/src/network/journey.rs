use std::net::{IpAddr, SocketAddr};

use super::HostId;
use crate::packet::Packet;
use crate::rules::target::RejectWith;
use crate::trace::{DropReason, ElementRef, NotModelled, Trace};

/// The end of one direction's path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum LegEnd {
    /// A machine accepted the packet, perhaps without a socket.
    Reached {
        host: HostId,
        packet: Packet,
    },
    Rejected {
        host: HostId,
        with: RejectWith,
    },
    Lost {
        /// The last machine.
        host: HostId,
        why: DropReason,
    },
}

/// One direction's path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct JourneyLeg {
    pub end: LegEnd,
    pub trace: Trace,
}

/// Why no valid reply arrived.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ReplyFailure {
    Lost {
        /// The last machine.
        host: HostId,
        why: DropReason,
    },
    Rejected {
        host: HostId,
        with: RejectWith,
    },
    /// The reply came from another address or port.
    WrongSource {
        from: SocketAddr,
    },
    /// The reply reached another machine.
    Strayed {
        host: HostId,
    },
    /// The packet asks for no reply.
    None,
}

/// The result of a packet and its reply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum PacketVerdict {
    /// The reply arrived.
    Answered {
        /// The machine with the socket.
        by: HostId,
        /// Destination at the socket.
        at: SocketAddr,
        /// Source at the socket.
        saw: SocketAddr,
    },
    /// The reply failed.
    Unanswered {
        /// The machine with the socket.
        by: HostId,
        /// Destination at the socket.
        at: SocketAddr,
        /// Source at the socket.
        saw: SocketAddr,
        why: ReplyFailure,
    },
    /// No socket listens.
    Refused {
        by: HostId,
        /// Called address and port.
        at: SocketAddr,
        /// Whether the caller received the reset or ICMP error.
        delivered: bool,
    },
    /// A rule, a route or IPVS rejected the packet.
    Rejected {
        by: HostId,
        with: RejectWith,
        /// Whether the caller received the error.
        delivered: bool,
    },
    Dropped {
        /// The last machine.
        by: HostId,
        why: DropReason,
    },
}

impl PacketVerdict {
    /// The machine and address of the socket that answered.
    #[must_use]
    pub fn answered(&self) -> Option<(HostId, SocketAddr)> {
        match self {
            PacketVerdict::Answered { by, at, .. } => Some((*by, *at)),
            _ => None,
        }
    }

    /// The source address at the socket.
    #[must_use]
    pub fn saw(&self) -> Option<IpAddr> {
        match self {
            PacketVerdict::Answered { saw, .. } | PacketVerdict::Unanswered { saw, .. } => Some(saw.ip()),
            _ => None,
        }
    }
}

/// A packet and its reply: an answer, reset or ICMP error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Journey {
    pub request: JourneyLeg,
    pub reply: Option<JourneyLeg>,
    pub verdict: PacketVerdict,
    /// The elements of nftables' named sets that lookups found, in both directions.
    pub elements: Vec<ElementRef>,
}

impl Journey {
    /// Fails if an unmodelled rule was reached.
    pub fn known(&self) -> Result<(), NotModelled> {
        match self.stopped_at() {
            Some(part) => Err(part.clone()),
            None => Ok(()),
        }
    }

    pub(super) fn stopped_at(&self) -> Option<&NotModelled> {
        self.legs().find_map(|leg| match &leg.end {
            LegEnd::Lost { why: DropReason::NotModelled(part), .. } => Some(&**part),
            _ => None,
        })
    }

    pub(super) fn legs(&self) -> impl Iterator<Item = &JourneyLeg> {
        std::iter::once(&self.request).chain(&self.reply)
    }
}
