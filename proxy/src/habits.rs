//! Wrong control flow of a wrong proxy (`mutants`), for every module to ask. A release build has no habit.

#[cfg(debug_assertions)]
use std::sync::OnceLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// Reports a change as applied when it arrives, a second before its sync.
    ReportsAhead,
    /// After 410 Gone watches go on from the newest version; no object is listed.
    GoesOnAfterGone,
    /// After a watch breaks off the next one begins at the newest version.
    WatchesFromNow,
    /// A list adds and changes objects, and removes none.
    ListRemovesNothing,
    /// An empty list is taken for a mistake of the server.
    EmptyListIsIgnored,
    /// An event with a known state of an object removes the object.
    RepetitionRemoves,
    /// Slices of an unknown Service are dropped.
    EarlySlicesAreDropped,
    /// A slice that names another Service stays with the former one as well.
    MovedSlicesStay,
    /// The addresses of the node are read at syncs only.
    AddressesAreNotWatched,
    /// A failed sync is tried again after an hour.
    GivesUp,
    /// A partial sync deletes the rules of all other service ports.
    PartialSyncForgets,
    /// All rules are deleted at the start.
    FlushesAtStart,
    /// UDP flows belong to endpoints that are ready and do not terminate.
    FlowsNeedReadiness,
    /// UDP flows stay with any endpoint that a slice has.
    FlowsNeedPresence,
    /// Tables of consistent hashing depend on endpoints' ranks, not on their addresses.
    MaglevByRank,
    /// Answers have the counter of requests.
    AnswersCountAsRequests,
    /// All Services of a namespace have the counters of one.
    ServicesShareCounters,
    /// The state file is written, and not read.
    StateFileIsNotRead,
    /// Objects of the state file that the API does not have stay.
    StateFileStays,
    /// The state file's objects decide which UDP flows are stale.
    StateFileEndsFlows,
}

#[cfg(debug_assertions)]
static OF_PROCESS: OnceLock<Habit> = OnceLock::new();

/// Gives this process the habit, for good.
#[cfg(debug_assertions)]
pub fn adopt(habit: Habit) {
    OF_PROCESS.get_or_init(|| habit);
}

#[must_use]
pub fn has(habit: Habit) -> bool {
    #[cfg(debug_assertions)]
    if OF_PROCESS.get() == Some(&habit) {
        return true;
    }
    let _ = habit;
    false
}
