//! Begins and ends faults.

use super::faults::{Added, Fault};
use super::shared::{SharedStore, State};

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
