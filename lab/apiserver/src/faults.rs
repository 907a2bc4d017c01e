//! Faults of API servers, load balancers and etcd.

use std::collections::{BTreeMap, BTreeSet};

use super::hostile::HostileAnswer;
use crate::objects::ObjectKind;

/// How the server refuses clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerRefusal {
    /// Answers every request with 503; open watches continue.
    Unavailable,
    /// Resets every open and new connection.
    Reset,
}

/// A fault that begins, or a command that ends one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFault {
    /// Ends every open watch.
    CloseWatches {
        /// Whether the body breaks off instead of ending.
        abrupt: bool,
    },
    /// Drops all history; later requests of an earlier version get 410 Gone.
    Compact,
    /// Answers 410 Gone to the next requests that name a version.
    Expire {
        /// Number of requests.
        requests: u32,
    },
    /// Refuses every client until [`ServerFault::Accept`].
    Refuse(ServerRefusal),
    /// Ends [`ServerFault::Refuse`] and [`ServerFault::Answer`].
    Accept,
    /// Withholds all events until [`ServerFault::Resume`].
    Stall,
    /// Ends [`ServerFault::Stall`]; watches send what they withheld.
    Resume,
    /// Withholds events of one kind until [`ServerFault::Release`]; events of other kinds overtake them.
    Hold(ObjectKind),
    /// Ends [`ServerFault::Hold`]; watches send what they withheld.
    Release(ObjectKind),
    /// Refuses watches with `sendInitialEvents`, as a server without the feature WatchList does, until
    /// [`ServerFault::EnableWatchList`].
    DisableWatchList,
    /// Ends [`ServerFault::DisableWatchList`].
    EnableWatchList,
    /// Ends watches, and sends this answer to lists or watches of Services, EndpointSlices and Nodes until
    /// [`ServerFault::Accept`].
    Answer(&'static HostileAnswer),
    /// Sends the last event of a kind again.
    Repeat(ObjectKind),
    /// Skips versions and sends a bookmark, as if unwatched objects had changed.
    BookmarkAhead {
        /// The kind whose watches get the bookmark.
        kind: ObjectKind,
        /// Number of versions.
        by: u64,
    },
}

#[derive(Debug, Default)]
pub(super) struct ActiveFaults {
    pub(super) refusal: Option<ServerRefusal>,
    pub(super) stalled: bool,
    pub(super) held: BTreeSet<ObjectKind>,
    pub(super) expire: u32,
    pub(super) watch_list_disabled: bool,
    pub(super) hostile: Option<&'static HostileAnswer>,
    pub(super) hostile_answers: usize,
    pub(super) hostile_bytes: usize,
    /// How often watches were closed, and whether abruptly last time.
    pub(super) closed: (u64, bool),
    /// Relay: older versions of a kind get 410 Gone.
    pub(super) oldest_versions: BTreeMap<ObjectKind, u64>,
    /// Relay: additional events for watches.
    pub(super) added: Vec<(ObjectKind, AddedEvent)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddedEvent {
    /// The last event of the watch.
    Repeat,
    Bookmark(u64),
}

impl ActiveFaults {
    pub(super) fn withholds_changes(&self) -> bool {
        self.refusal.is_some() || self.stalled || !self.held.is_empty() || self.hostile.is_some()
    }

    pub(super) fn is_silent(&self, kind: ObjectKind) -> bool {
        // After the fault "reset" begins, no newer event may be sent, even if the connection's task wakes up late.
        self.stalled || self.held.contains(&kind) || self.refusal == Some(ServerRefusal::Reset)
    }

    pub(super) fn take_expiry(&mut self) -> bool {
        let expires = self.expire > 0;
        self.expire = self.expire.saturating_sub(1);
        expires
    }
}
