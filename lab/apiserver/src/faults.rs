//! ServerFault on request: what real API servers, load balancers in front of them and etcd do to their clients.

use std::collections::BTreeSet;

use super::hostile::HostileAnswer;
use crate::objects::ObjectKind;

/// How the server turns connections away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerRefusal {
    /// Every request is answered 503 Service Unavailable; watches that are open go on.
    Unavailable,
    /// Every connection is closed, new ones are reset before a byte is read.
    Reset,
}

/// Something to do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFault {
    /// Ends every open watch, as a restarted API server does; `abrupt` leaves the answer unfinished.
    CloseWatches {
        /// Break off instead of ending the body.
        abrupt: bool,
    },
    /// Forgets all history: watches and lists from an earlier version are answered 410 Gone. Open watches go on.
    Compact,
    /// Answers 410 Gone to the next requests that name a version (watches, exact lists, continued lists).
    Expire {
        /// How many requests.
        requests: u32,
    },
    /// Turns everybody away until [`ServerFault::Accept`].
    Refuse(ServerRefusal),
    /// Lets everybody in again.
    Accept,
    /// Open and new watches of every kind stay silent until [`ServerFault::Resume`]; lists are answered.
    Stall,
    /// Watches tell what they missed.
    Resume,
    /// Watches of one kind stay silent until [`ServerFault::Release`]: other kinds' changes overtake.
    Hold(ObjectKind),
    /// Watches of one kind tell what they missed.
    Release(ObjectKind),
    /// Answers lists or watches of Services, EndpointSlices and Nodes with this, until [`ServerFault::Accept`]. Watches that are
    /// open end.
    Answer(&'static HostileAnswer),
    /// Sends the last event of one kind again, to every watch that is open.
    Repeat(ObjectKind),
    /// Lets many versions go by, as if objects that nobody here watches had changed, and sends a bookmark.
    BookmarkAhead {
        /// Whose watches get it.
        kind: ObjectKind,
        /// How many versions go by.
        by: u64,
    },
}

/// What is wrong at the moment.
#[derive(Debug, Default)]
pub(super) struct ActiveFaults {
    pub(super) refusal: Option<ServerRefusal>,
    pub(super) stalled: bool,
    pub(super) held: BTreeSet<ObjectKind>,
    pub(super) expire: u32,
    /// What lists or watches are answered instead.
    pub(super) hostile: Option<&'static HostileAnswer>,
    /// How often, and with how many bytes.
    pub(super) hostile_answers: usize,
    pub(super) hostile_bytes: usize,
    /// How often watches were closed, and whether abruptly the last time.
    pub(super) closed: (u64, bool),
    /// In front of another server: versions before this one are answered 410 Gone.
    pub(super) forgotten: u64,
    /// In front of another server: what watches of a kind are sent beside its events, in order.
    pub(super) added: Vec<(ObjectKind, AddedEvent)>,
}

/// What a relay adds to a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddedEvent {
    /// Its last event once more.
    Repeat,
    /// A bookmark of this version.
    Bookmark(u64),
}

impl ActiveFaults {
    /// Whether anything at all is kept from clients.
    pub(super) fn withhold(&self) -> bool {
        self.refusal.is_some() || self.stalled || !self.held.is_empty() || self.hostile.is_some()
    }

    /// Whether watches of `kind` are to keep silent.
    pub(super) fn silent(&self, kind: ObjectKind) -> bool {
        // A connection that is about to be reset must not tell what happened since: its task may wake up late.
        self.stalled || self.held.contains(&kind) || self.refusal == Some(ServerRefusal::Reset)
    }

    /// Whether this request, which names a version, is to be told that the version is gone.
    pub(super) fn expires(&mut self) -> bool {
        let expires = self.expire > 0;
        self.expire = self.expire.saturating_sub(1);
        expires
    }
}
