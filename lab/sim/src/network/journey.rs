//! Results of a packet and its reply.

use std::net::{IpAddr, SocketAddr};

use super::HostId;
use crate::packet::Packet;
use crate::rules::target::RejectWith;
use crate::trace::{DropReason, NotModelled, Trace};

/// The end of a packet's path in one direction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum LegEnd {
    /// At a socket, or at a machine without one.
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

/// The path in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct JourneyLeg {
    pub end: LegEnd,
    pub trace: Trace,
}

/// Why the sender did not get a valid reply.
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
    /// Another source than the called address and port.
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

/// Equal paths have equal verdicts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum PacketVerdict {
    /// The caller got the reply.
    Answered {
        /// The machine with the socket.
        by: HostId,
        /// The destination that the socket sees.
        at: SocketAddr,
        /// The source that the socket sees.
        saw: SocketAddr,
    },
    /// The reply failed.
    Unanswered {
        /// The machine with the socket.
        by: HostId,
        /// The destination that the socket sees.
        at: SocketAddr,
        /// The source that the socket sees.
        saw: SocketAddr,
        why: ReplyFailure,
    },
    /// No socket listens at the destination.
    Refused {
        by: HostId,
        /// The called address and port.
        at: SocketAddr,
        /// Whether the reset or ICMP error reached the caller.
        delivered: bool,
    },
    /// By a rule, a route or IPVS.
    Rejected {
        by: HostId,
        with: RejectWith,
        /// Whether the error reached the caller.
        delivered: bool,
    },
    Dropped {
        /// The last machine.
        by: HostId,
        why: DropReason,
    },
}

impl PacketVerdict {
    /// The machine and address of the socket.
    #[must_use]
    pub fn answered(&self) -> Option<(HostId, SocketAddr)> {
        match self {
            PacketVerdict::Answered { by, at, .. } => Some((*by, *at)),
            _ => None,
        }
    }

    /// The source that the socket saw.
    #[must_use]
    pub fn saw(&self) -> Option<IpAddr> {
        match self {
            PacketVerdict::Answered { saw, .. } | PacketVerdict::Unanswered { saw, .. } => Some(saw.ip()),
            _ => None,
        }
    }
}

/// The reply is an answer, a reset or an ICMP error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Journey {
    pub request: JourneyLeg,
    pub reply: Option<JourneyLeg>,
    pub verdict: PacketVerdict,
}

impl Journey {
    /// Fails if the packet reached an unmodelled rule.
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
