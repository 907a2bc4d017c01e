//! Begins and ends faults.

use super::faults::{AddedEvent, ServerFault};
use super::shared::{ServerState, SharedStore};

/// Does `what` in front of another server, whose newest version is `version`. That server's history is not changed: only clients
/// see events that are missing, repeated or out of order. [`ServerFault::BookmarkAhead`] sends `version`: the caller has written objects
/// before, so that the version is ahead.
pub(super) fn misbehave_before(shared: &SharedStore, what: ServerFault, version: u64) {
    match what {
        ServerFault::Compact => shared.with(|state| state.faults.forgotten = version),
        ServerFault::Repeat(kind) => shared.with(|state| state.faults.added.push((kind, AddedEvent::Repeat))),
        ServerFault::BookmarkAhead { kind, .. } => {
            shared.with(|state| state.faults.added.push((kind, AddedEvent::Bookmark(version))));
        }
        other => misbehave(shared, other),
    }
    shared.wake();
}

/// Does `what`, at once.
pub(super) fn misbehave(shared: &SharedStore, what: ServerFault) {
    shared.with(|state| {
        let ServerState { store, log, faults } = state;
        match what {
            ServerFault::CloseWatches { abrupt } => faults.closed = (faults.closed.0 + 1, abrupt),
            ServerFault::Compact => log.compact(store.version()),
            ServerFault::Expire { requests } => faults.expire = requests,
            ServerFault::Refuse(refusal) => faults.refusal = Some(refusal),
            ServerFault::Accept => {
                // Watches that were answered badly end.
                if faults.hostile.take().is_some() {
                    faults.closed = (faults.closed.0 + 1, false);
                }
                faults.refusal = None;
            }
            ServerFault::Answer(answer) => {
                faults.hostile = Some(answer);
                faults.closed = (faults.closed.0 + 1, false);
                (faults.hostile_answers, faults.hostile_bytes) = (0, 0);
            }
            ServerFault::Stall => faults.stalled = true,
            ServerFault::Resume => faults.stalled = false,
            ServerFault::Hold(kind) => {
                faults.held.insert(kind);
            }
            ServerFault::Release(kind) => {
                faults.held.remove(&kind);
            }
            ServerFault::Repeat(kind) => {
                log.repeat(kind);
            }
            ServerFault::BookmarkAhead { kind, by } => {
                store.skip_versions(by);
                log.bookmark(kind, store.version());
            }
        }
    });
    shared.wake();
}
