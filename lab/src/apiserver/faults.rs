//! Misbehaviour on request: what real API servers, load balancers in front of them and etcd do to their clients.

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
pub enum Misbehaviour {
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
    /// Turns everybody away until [`Misbehaviour::Accept`].
    Refuse(Refusal),
    /// Lets everybody in again.
    Accept,
    /// Open and new watches of every kind stay silent until [`Misbehaviour::Resume`]; lists are answered.
    Stall,
    /// Watches tell what they missed.
    Resume,
    /// Watches of one kind stay silent until [`Misbehaviour::Release`]: other kinds' changes overtake.
    Hold(Kind),
    /// Watches of one kind tell what they missed.
    Release(Kind),
    /// Answers lists or watches of Services, EndpointSlices and Nodes with this, until [`Misbehaviour::Accept`]. Watches that are
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

/// Does `what`, at once.
pub(super) fn misbehave(shared: &SharedStore, what: Misbehaviour) {
    shared.with(|state| {
        let State { store, log, faults } = state;
        match what {
            Misbehaviour::CloseWatches { abrupt } => faults.closed = (faults.closed.0 + 1, abrupt),
            Misbehaviour::Compact => log.compact(store.version()),
            Misbehaviour::Expire { requests } => faults.expire = requests,
            Misbehaviour::Refuse(refusal) => faults.refusal = Some(refusal),
            Misbehaviour::Accept => {
                // Watches that were answered badly end.
                if faults.hostile.take().is_some() {
                    faults.closed = (faults.closed.0 + 1, false);
                }
                faults.refusal = None;
            }
            Misbehaviour::Answer(answer) => {
                faults.hostile = Some(answer);
                faults.closed = (faults.closed.0 + 1, false);
                (faults.hostile_answers, faults.hostile_bytes) = (0, 0);
            }
            Misbehaviour::Stall => faults.stalled = true,
            Misbehaviour::Resume => faults.stalled = false,
            Misbehaviour::Hold(kind) => {
                faults.held.insert(kind);
            }
            Misbehaviour::Release(kind) => {
                faults.held.remove(&kind);
            }
            Misbehaviour::Repeat(kind) => {
                log.repeat(kind);
            }
            Misbehaviour::BookmarkAhead { kind, by } => {
                store.skip_versions(by);
                log.bookmark(kind, store.version());
            }
        }
    });
    shared.wake();
}
