//! When changes reach the rules, and which of them never do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Mode;
use crate::habits::Habit;
use crate::model::{Batch, Change, ObjectKey};
use crate::mutants::{Hook, Mutant};

const LATE: Duration = Duration::from_secs(3);
const SELDOM: Duration = Duration::from_secs(5);

const fn habit(id: &'static str, does: &'static str, scenario: &'static str, habit: Habit) -> Mutant {
    Mutant::new(id, does, scenario, Hook::Habit(habit))
}

fn is_deletion(change: &Change) -> bool {
    match change {
        Change::Service(_, object) => object.is_none(),
        Change::EndpointSlice(_, object) => object.is_none(),
        Change::Node(_, object) => object.is_none(),
        Change::ServiceCidr(_, object) => object.is_none(),
    }
}

/// Does something to a batch after the first lists.
fn after_lists(batch: &mut Batch, turn: impl FnOnce(&mut Vec<Change>)) {
    static HAS_LISTED: Mutex<bool> = Mutex::new(false);
    let mut has_listed = HAS_LISTED.lock().unwrap_or_else(PoisonError::into_inner);
    if *has_listed {
        turn(&mut batch.changes);
    }
    *has_listed |= !batch.partial;
}

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("time-late", "begins every sync three seconds late", "in-time", Hook::Delay(|_| LATE)),
    Mutant::new(
        "time-deletions-late",
        "removes a deleted Service three seconds late",
        "in-time",
        Hook::Pending(|state, names| {
            if names.iter().any(|name| state.service_port(name).is_none()) {
                std::thread::sleep(LATE);
            }
        }),
    ),
    Mutant::new(
        "time-changes-late",
        "applies changes of known Services and their endpoints three seconds late",
        "in-time",
        Hook::Pending(|state, names| {
            if names.iter().all(|name| state.service_port(name).is_some()) {
                std::thread::sleep(LATE);
            }
        }),
    ),
    Mutant::new(
        "time-seldom",
        "syncs once in five seconds at most, whatever minSyncPeriod says",
        "in-time",
        Hook::Delay(|_| {
            static NEXT: Mutex<Option<Instant>> = Mutex::new(None);
            let (mut next, now) = (NEXT.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
            let begins = next.map_or(now, |next| next.max(now));
            *next = Some(begins + SELDOM);
            begins - now
        }),
    ),
    habit(
        "time-reports-ahead",
        "reports a change as applied a second before it is in the rules",
        "in-time",
        Habit::ReportsAhead,
    ),
    Mutant::new(
        "time-no-sync-without-services",
        "does not sync while there is no Service, so that the last one stays in the rules",
        "first-and-last",
        Hook::Pending(|state, names| {
            if state.service_ports().next().is_none() {
                names.clear();
            }
        }),
    ),
    Mutant::new(
        "time-first-of-batch",
        "takes the first of several changes that arrive together",
        "passed-on",
        Hook::Batch(|batch| after_lists(batch, |changes| changes.truncate(1))),
    ),
    Mutant::new(
        "time-last-of-batch",
        "takes the last of several changes that arrive together",
        "passed-on",
        Hook::Batch(|batch| after_lists(batch, |changes| drop(changes.drain(..changes.len().saturating_sub(1))))),
    ),
    Mutant::new(
        "time-deletions-last",
        "applies the deletions among changes that arrive together after the others",
        "passed-on",
        Hook::Batch(|batch| after_lists(batch, |changes| changes.sort_by_key(is_deletion))),
    ),
    Mutant::new(
        "time-first-of-partial-sync",
        "updates the first of the Services that changed together",
        "partial-sync",
        Hook::Pending(|_, names| *names = names.pop_first().into_iter().collect()),
    ),
    habit(
        "time-partial-sync-forgets",
        "deletes the rules of every Service that did not change",
        "partial-sync",
        Habit::PartialSyncForgets,
    ),
    habit(
        "state-file-not-read",
        "writes its state file, and starts without it",
        "state-file",
        Habit::StateFileIsNotRead,
    ),
    habit(
        "state-file-stays",
        "keeps objects of its state file that the API does not have any more",
        "state-file",
        Habit::StateFileStays,
    ),
    habit(
        "state-file-ends-flows",
        "ends UDP flows to endpoints that its state file does not have, before the API has answered",
        "state-file",
        Habit::StateFileEndsFlows,
    )
    .only(&[Mode::Iptables, Mode::Nftables]),
    habit("time-gives-up", "does not try a failed sync again", "command-fails", Habit::GivesUp),
    habit("time-restart-flushes", "deletes all rules when it starts", "flapping", Habit::FlushesAtStart),
    habit(
        "api-gone-is-ignored",
        "goes on from the newest version after 410 Gone, and lists nothing",
        "first-and-last",
        Habit::GoesOnAfterGone,
    ),
    habit(
        "api-watches-from-now",
        "begins at the newest version after a watch broke off, and misses what changed between",
        "api-outage",
        Habit::WatchesFromNow,
    ),
    habit(
        "api-list-removes-nothing",
        "adds and changes what a new list has, and keeps what it lacks",
        "first-and-last",
        Habit::ListRemovesNothing,
    ),
    habit(
        "api-empty-list-ignored",
        "takes an empty list for a mistake of the server, and keeps everything",
        "first-and-last",
        Habit::EmptyListIsIgnored,
    ),
    habit(
        "api-repetition-removes",
        "takes an event that comes twice for a deletion",
        "api-faults",
        Habit::RepetitionRemoves,
    ),
    habit(
        "api-early-slices-dropped",
        "drops EndpointSlices that arrive before their Service",
        "api-faults",
        Habit::EarlySlicesAreDropped,
    ),
    habit(
        "api-moved-slices-stay",
        "leaves a slice that is given to another Service with the former one, too",
        "passed-on",
        Habit::MovedSlicesStay,
    ),
    Mutant::new(
        "api-no-second-service-of-a-name",
        "ignores a Service that has the name of a deleted one",
        "first-and-last",
        Hook::Change(|change| {
            static DELETED: Mutex<BTreeSet<ObjectKey>> = Mutex::new(BTreeSet::new());
            let mut deleted = DELETED.lock().unwrap_or_else(PoisonError::into_inner);
            match change {
                Change::Service(key, None) => drop(deleted.insert(key.clone())),
                Change::Service(key, object) if deleted.contains(key) => *object = None,
                _ => {}
            }
        }),
    )
    .remembering(),
    Mutant::new(
        "api-cluster-ip-is-not-passed-on",
        "leaves a cluster IP with the first Service that had it",
        "passed-on",
        Hook::Change(|change| {
            static OWNERS: Mutex<BTreeMap<String, ObjectKey>> = Mutex::new(BTreeMap::new());
            let Change::Service(key, object) = change else { return };
            let Some(address) = object.as_ref().and_then(|object| object.spec.as_ref()?.cluster_ip.clone()) else {
                return;
            };
            let mut owners = OWNERS.lock().unwrap_or_else(PoisonError::into_inner);
            if *owners.entry(address).or_insert_with(|| key.clone()) != *key {
                *object = None;
            }
        }),
    )
    .remembering(),
];
