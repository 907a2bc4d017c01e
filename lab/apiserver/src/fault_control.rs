use super::faults::{AddedEvent, ServerFault};
use super::shared::{ServerState, SharedStore};
use crate::objects::ObjectKind;

/// Begins a fault of a relay whose upstream has sent `version_of` to watches of a kind. Before
/// [`ServerFault::BookmarkAhead`] the caller must increase the upstream's version.
pub(super) fn misbehave_before(shared: &SharedStore, what: ServerFault, version_of: impl Fn(ObjectKind) -> u64) {
    match what {
        // The upstream still lists a kind at the version of its newest event, which must then be a version to watch.
        ServerFault::Compact => shared.update(|state| {
            state.faults.oldest_versions = ObjectKind::ALL.iter().map(|kind| (*kind, version_of(*kind))).collect();
        }),
        ServerFault::Repeat(kind) => shared.update(|state| state.faults.added.push((kind, AddedEvent::Repeat))),
        ServerFault::BookmarkAhead { kind, .. } => {
            shared.update(|state| state.faults.added.push((kind, AddedEvent::Bookmark(version_of(kind)))));
        }
        other => misbehave(shared, other),
    }
    shared.wake();
}

pub(super) fn misbehave(shared: &SharedStore, what: ServerFault) {
    shared.update(|state| {
        let ServerState { store, log, faults } = state;
        match what {
            ServerFault::CloseWatches { abrupt } => faults.closed = (faults.closed.0 + 1, abrupt),
            ServerFault::Compact => log.compact(store.version()),
            ServerFault::Expire { requests } => faults.expire = requests,
            ServerFault::Refuse(refusal) => faults.refusal = Some(refusal),
            ServerFault::Accept => {
                // Watches with a hostile answer end.
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
            ServerFault::DisableWatchList => faults.watch_list_disabled = true,
            ServerFault::EnableWatchList => faults.watch_list_disabled = false,
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
