//! Fault on request: what real API servers, load balancers in front of them and etcd do to their clients.

use std::collections::BTreeSet;

use super::hostile::HostileAnswer;
use super::shared::{SharedStore, State};
use crate::objects::Kind;

/// How the server turns connections away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Every request is answered 503 Service Unavailable; watches that are open go on.
    Unavailable,
    /// Every connection is closed, new ones are reset before a byte is read.
    Reset,
}

/// Something to do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
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
    /// Turns everybody away until [`Fault::Accept`].
    Refuse(Refusal),
    /// Lets everybody in again.
    Accept,
    /// Open and new watches of every kind stay silent until [`Fault::Resume`]; lists are answered.
    Stall,
    /// Watches tell what they missed.
    Resume,
    /// Watches of one kind stay silent until [`Fault::Release`]: other kinds' changes overtake.
    Hold(Kind),
    /// Watches of one kind tell what they missed.
    Release(Kind),
    /// Answers lists or watches of Services, EndpointSlices and Nodes with this, until [`Fault::Accept`]. Watches that are
    /// open end.
    Answer(&'static HostileAnswer),
    /// Sends the last event of one kind again, to every watch that is open.
    Repeat(Kind),
    /// Lets many versions go by, as if objects that nobody here watches had changed, and sends a bookmark.
    BookmarkAhead {
        /// Whose watches get it.
        kind: Kind,
        /// How many versions go by.
        by: u64,
    },
}

/// What is wrong at the moment.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) refusal: Option<Refusal>,
    stalled: bool,
    held: BTreeSet<Kind>,
    expire: u32,
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
    pub(super) added: Vec<(Kind, Added)>,
}

/// What a relay adds to a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// Its last event once more.
    Repeat,
    /// A bookmark of this version.
    Bookmark(u64),
}

impl Faults {
    /// Whether anything at all is kept from clients.
    pub(super) fn withhold(&self) -> bool {
        self.refusal.is_some() || self.stalled || !self.held.is_empty() || self.hostile.is_some()
    }

    /// Whether watches of `kind` are to keep silent.
    pub(super) fn silent(&self, kind: Kind) -> bool {
        // A connection that is about to be reset must not tell what happened since: its task may wake up late.
        self.stalled || self.held.contains(&kind) || self.refusal == Some(Refusal::Reset)
    }

    /// Whether this request, which names a version, is to be told that the version is gone.
    pub(super) fn expires(&mut self) -> bool {
        let expires = self.expire > 0;
        self.expire = self.expire.saturating_sub(1);
        expires
    }
}

/// Does `what` in front of another server, whose newest version is `version`. That server's history is not changed: only clients
/// see events that are missing, repeated or out of order. [`Fault::BookmarkAhead`] sends `version`: the caller has written objects
/// before, so that the version is ahead.
pub(super) fn misbehave_before(shared: &SharedStore, what: Fault, version: u64) {
    match what {
        Fault::Compact => shared.with(|state| state.faults.forgotten = version),
        Fault::Repeat(kind) => shared.with(|state| state.faults.added.push((kind, Added::Repeat))),
        Fault::BookmarkAhead { kind, .. } => {
            shared.with(|state| state.faults.added.push((kind, Added::Bookmark(version))));
        }
        other => misbehave(shared, other),
    }
    shared.wake();
}

/// Does `what`, at once.
pub(super) fn misbehave(shared: &SharedStore, what: Fault) {
    shared.with(|state| {
        let State { store, log, faults } = state;
        match what {
            Fault::CloseWatches { abrupt } => faults.closed = (faults.closed.0 + 1, abrupt),
            Fault::Compact => log.compact(store.version()),
            Fault::Expire { requests } => faults.expire = requests,
            Fault::Refuse(refusal) => faults.refusal = Some(refusal),
            Fault::Accept => {
                // Watches that were answered badly end.
                if faults.hostile.take().is_some() {
                    faults.closed = (faults.closed.0 + 1, false);
                }
                faults.refusal = None;
            }
            Fault::Answer(answer) => {
                faults.hostile = Some(answer);
                faults.closed = (faults.closed.0 + 1, false);
                (faults.hostile_answers, faults.hostile_bytes) = (0, 0);
            }
            Fault::Stall => faults.stalled = true,
            Fault::Resume => faults.stalled = false,
            Fault::Hold(kind) => {
                faults.held.insert(kind);
            }
            Fault::Release(kind) => {
                faults.held.remove(&kind);
            }
            Fault::Repeat(kind) => {
                log.repeat(kind);
            }
            Fault::BookmarkAhead { kind, by } => {
                store.skip_versions(by);
                log.bookmark(kind, store.version());
            }
        }
    });
    shared.wake();
}
