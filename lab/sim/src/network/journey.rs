//! What became of a packet and of the answer to it.

use std::net::{IpAddr, SocketAddr};

use super::HostId;
use crate::packet::Packet;
use crate::rules::target::RejectWith;
use crate::trace::{DropReason, NotModelled, Trace};

/// How one way ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LegEnd {
    /// At a socket, or where one was expected.
    Reached {
        /// The machine.
        host: HostId,
        /// The packet as it arrived.
        packet: Packet,
    },
    /// It was rejected on a machine.
    Rejected {
        /// The machine.
        host: HostId,
        /// How.
        with: RejectWith,
    },
    /// It was lost.
    Lost {
        /// The machine on which it was last.
        host: HostId,
        /// Why.
        why: DropReason,
    },
}

/// One way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JourneyLeg {
    /// How it ends.
    pub end: LegEnd,
    /// What happened on it.
    pub trace: Trace,
}

/// What is wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplyFailure {
    /// It was lost.
    Lost {
        /// The machine on which it was last.
        host: HostId,
        /// Why.
        why: DropReason,
    },
    /// It was rejected.
    Rejected {
        /// The machine.
        host: HostId,
        /// How.
        with: RejectWith,
    },
    /// It reached the caller from another address or port than was called: a way back that is not the way there.
    WrongSource {
        /// The address and port that it came from.
        from: SocketAddr,
    },
    /// It reached somebody else.
    Strayed {
        /// The machine.
        host: HostId,
    },
    /// The packet asks for no answer.
    None,
}

/// Everything in one word; equal ways have equal verdicts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketVerdict {
    /// A socket answered, and the caller has the answer.
    Answered {
        /// The machine with the socket.
        by: HostId,
        /// The address and port that the socket waits at.
        at: SocketAddr,
        /// The source that it saw.
        saw: SocketAddr,
    },
    /// A socket took it, but the answer went wrong.
    Unanswered {
        /// The machine with the socket.
        by: HostId,
        /// The address and port that the socket waits at.
        at: SocketAddr,
        /// The source that it saw.
        saw: SocketAddr,
        /// What went wrong.
        why: ReplyFailure,
    },
    /// It reached a machine where nothing waits.
    Refused {
        /// The machine.
        by: HostId,
        /// The address that was called there, and the port.
        at: SocketAddr,
        /// Whether that reached the caller.
        delivered: bool,
    },
    /// A rule, a route or IPVS rejected it.
    Rejected {
        /// The machine.
        by: HostId,
        /// How.
        with: RejectWith,
        /// Whether that reached the caller.
        delivered: bool,
    },
    /// It was lost without a word.
    Dropped {
        /// The machine on which it was last.
        by: HostId,
        /// Why.
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

    /// The source address that the socket saw.
    #[must_use]
    pub fn saw(&self) -> Option<IpAddr> {
        match self {
            PacketVerdict::Answered { saw, .. } | PacketVerdict::Unanswered { saw, .. } => Some(saw.ip()),
            _ => None,
        }
    }
}

/// A packet's way, and the way back of what it called forth: an answer, a reset, an ICMP error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journey {
    /// The way there.
    pub request: JourneyLeg,
    /// The way back, if anything came back.
    pub reply: Option<JourneyLeg>,
    /// The whole.
    pub verdict: PacketVerdict,
}

impl Journey {
    /// Whether everything on the way is modelled.
    ///
    /// # Errors
    /// The rule that is not.
    pub fn known(&self) -> Result<(), NotModelled> {
        match self.stopped_at() {
            Some(part) => Err(part.clone()),
            None => Ok(()),
        }
    }

    /// What a leg ends at that is not modelled.
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
