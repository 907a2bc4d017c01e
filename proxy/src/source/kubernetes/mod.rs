//! The Kubernetes API as a source of objects.
//!
//! - Does not use `kube`'s watcher: it hides bookmarks, which advance the versions that `/healthz` reports.
//! - Stores only a fingerprint per object (see [`seen`]); reports a list after an outage as a difference.

mod access;
mod answer;
mod backoff;
mod client;
mod connector;
mod decode;
mod events;
mod exec;
mod failure_log;
mod list;
mod log_limit;
mod media_type;
mod probe;
mod protobuf;
mod prune;
mod rate_limit;
mod reflect;
mod seen;
mod state_file;
mod unverified;
mod watching;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::object::ObjectKind;
use super::{Batch, Change, ObjectSource, SkippedObjects, SourceError};
use crate::events::Recorder;
use crate::metrics::ApiFailures;
use failure_log::ApiFailureLog;
use media_type::Encoding;
use reflect::Reflector;
use seen::SeenObjects;

pub(crate) use access::without_password;
pub use access::{Access, AccessError};
pub use connector::Connector;
pub use events::record_events;
pub use media_type::AcceptedTypes;
pub use probe::{ApiProbe, ApiProblem, probe_api, read_api};
pub use state_file::{StateFileCounts, StateFileSettings, StateFileSource, StateFileTiming, has_usable_file};

/// The most updates that wait in memory; during a sync, further ones wait in the connections to the API server.
const WAITING: usize = 4;

/// The longest time to gather a batch, in multiples of the wait for the next change.
const GATHER_AT_MOST: u32 = 10;

#[derive(Debug, Clone)]
pub struct ReflectorTiming {
    /// The first wait, plus up to as much at random; doubles with each retry. 0.8 seconds in client-go's reflectors.
    pub first_retry: Duration,
    /// The longest wait before a retry, plus up to as much at random; 30 seconds in client-go's reflectors.
    pub longest_retry: Duration,
    /// The longest wait before asking again for an optional kind that the server lacks or forbids.
    pub longest_absence: Duration,
    /// Timeout of a page of the first list. Doubles with each attempt.
    pub first_list: Duration,
    pub list: Duration,
    /// The longest random wait before a list that replaces another: after a restart of the API server all nodes list again.
    pub relist: Duration,
    /// A watch without an event for this long is restarted. API servers send a bookmark about once a minute.
    pub silence: Duration,
    /// A watch that lasts this long resets the backoff.
    pub settled: Duration,
    pub gather: Duration,
    /// Objects per page. `None` asks for whole lists of servers that answer in protobuf, and for pages of 500 objects otherwise.
    pub page: Option<u32>,
}

impl Default for ReflectorTiming {
    fn default() -> ReflectorTiming {
        ReflectorTiming {
            first_retry: Duration::from_millis(800),
            longest_retry: Duration::from_secs(30),
            longest_absence: Duration::from_secs(300),
            first_list: Duration::from_secs(10),
            list: Duration::from_secs(60),
            relist: Duration::from_secs(5),
            silence: Duration::from_secs(150),
            settled: Duration::from_secs(5),
            gather: Duration::from_millis(10),
            page: None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct WatchScope {
    pub node_name: String,
    pub service_cidrs: bool,
}

impl From<&str> for WatchScope {
    /// Watches what every mode needs.
    fn from(node_name: &str) -> WatchScope {
        WatchScope { node_name: node_name.to_owned(), service_cidrs: false }
    }
}

impl WatchScope {
    fn kinds(&self) -> impl Iterator<Item = ObjectKind> {
        ObjectKind::ALL.into_iter().filter(|kind| self.service_cidrs || *kind != ObjectKind::ServiceCidr)
    }
}

#[derive(Debug, Clone, Default)]
pub struct SourceReports {
    pub failures: ApiFailures,
    pub events: Recorder,
}

#[derive(Debug)]
struct WatchUpdate {
    kind: ObjectKind,
    changes: Vec<Change>,
    /// The resource version; `None` within a list.
    version: Option<String>,
    /// Whether the update ends a list, or reports a missing optional kind.
    listed: bool,
}

/// Failures are logged once per class, and never end the source.
#[derive(Debug)]
pub struct KubernetesSource {
    received: mpsc::Receiver<WatchUpdate>,
    pending: Batch,
    unlisted: BTreeSet<ObjectKind>,
    due: Option<Instant>,
    latest: Instant,
    gather: Duration,
    skipped: SkippedObjects,
    _watches: JoinSet<()>,
}

impl KubernetesSource {
    /// The tasks of the watches end with the source. Needs a tokio runtime.
    pub fn start(
        connector: Connector,
        subjects: impl Into<WatchScope>,
        timing: &ReflectorTiming,
        reports: &SourceReports,
    ) -> KubernetesSource {
        let subjects = subjects.into();
        let (sender, received) = mpsc::channel(WAITING);
        let skipped = SkippedObjects::default();
        let failure_log = Arc::new(ApiFailureLog::new(connector.describe(), reports.failures.clone()));
        let mut watches = JoinSet::new();
        for kind in subjects.kinds() {
            let reflector = Reflector::new(kind, &subjects.node_name, connector.clone(), timing.clone());
            let seen = SeenObjects::new(kind, skipped.clone(), reports.events.clone());
            watches.spawn(reflector.run(seen, Arc::clone(&failure_log), sender.clone()));
        }
        KubernetesSource {
            received,
            pending: Batch::default(),
            unlisted: subjects.kinds().collect(),
            due: None,
            latest: Instant::now(),
            gather: timing.gather,
            skipped,
            _watches: watches,
        }
    }

    fn take_in(&mut self, updates: WatchUpdate) {
        let changes = !updates.changes.is_empty();
        self.pending.changes.extend(updates.changes);
        if let Some(version) = updates.version {
            *updates.kind.version_of(&mut self.pending.resource_versions) = Some(version);
        }
        if updates.listed {
            self.unlisted.remove(&updates.kind);
        }
        self.pending.partial = !self.unlisted.is_empty();
        if self.pending.partial {
            self.due = None;
        } else if self.due.is_none() {
            self.gather_from_now();
        } else if changes {
            self.due = Some((Instant::now() + self.gather).min(self.latest));
        }
    }

    fn gather_from_now(&mut self) {
        let now = Instant::now();
        self.due = Some(now + self.gather);
        self.latest = now + self.gather * GATHER_AT_MOST;
    }
}

impl ObjectSource for KubernetesSource {
    fn skipped(&self) -> SkippedObjects {
        self.skipped.clone()
    }

    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        // Cancel-safe. Gathering restarts after a sync, so that the next sync takes many changes.
        if !self.pending.partial && self.due.is_some_and(|due| due <= Instant::now()) {
            self.gather_from_now();
        }
        loop {
            let due = self.due;
            tokio::select! {
                biased;
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.due = None;
                    return Ok(Some(std::mem::take(&mut self.pending)));
                }
                updates = self.received.recv() => self.take_in(updates.ok_or(SourceError::Watches)?),
            }
            if self.pending.partial {
                // A first list may be large: each piece is passed on at once, before a timer could fire.
                return Ok(Some(std::mem::take(&mut self.pending)));
            }
        }
    }
}

/// Returns whether a list removed an object that it contains.
pub(crate) fn fuzz(bytes: &[u8]) -> bool {
    exec::fuzz(bytes);
    fuzz_in(Encoding::Json, bytes)
}

/// As [`fuzz`].
pub(crate) fn fuzz_protobuf(bytes: &[u8]) -> bool {
    fuzz_in(Encoding::Protobuf, bytes)
}

/// Returns whether a state file changes when it is read and written.
pub(crate) fn fuzz_state_file(bytes: &[u8]) -> bool {
    state_file::fuzz(bytes)
}

fn fuzz_in(encoding: Encoding, bytes: &[u8]) -> bool {
    let mut lost = false;
    for kind in ObjectKind::ALL {
        let mut seen = SeenObjects::new(kind, SkippedObjects::default(), Recorder::default());
        list::fuzz(kind, encoding, bytes, &mut seen);
        watching::fuzz(kind, encoding, bytes, &mut seen);
        if list::fuzz(kind, encoding, bytes, &mut seen) {
            lost |= !seen.list_is_whole().is_empty();
        }
    }
    lost
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_during_a_sync_are_one_batch() {
        let (sender, received) = mpsc::channel(WAITING);
        let gather = Duration::from_millis(10);
        let mut source = KubernetesSource {
            received,
            pending: Batch::default(),
            unlisted: BTreeSet::new(),
            due: None,
            latest: Instant::now(),
            gather,
            skipped: SkippedObjects::default(),
            _watches: JoinSet::new(),
        };
        let version = |number: u32| WatchUpdate {
            kind: ObjectKind::Node,
            changes: vec![Change::Node(format!("node-{number}"), None)],
            version: Some(number.to_string()),
            listed: false,
        };
        sender.send(version(0)).await.unwrap();
        assert!(source.next().now_or_never().is_none());
        tokio::time::advance(gather * 5).await;
        tokio::spawn(async move {
            for number in 1..=100 {
                sender.send(version(number)).await.unwrap();
            }
            std::future::pending::<()>().await;
        });
        let batch = source.next().await.unwrap().unwrap();
        assert_eq!(batch.changes.len(), 101);
    }
}
