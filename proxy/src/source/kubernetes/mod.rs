//! The Kubernetes API as a source: Services, EndpointSlices, this node's own Node and, where a mode asks for them, ServiceCIDRs, listed
//! and then watched.
//!
//! Two decisions shape this module:
//! - The loop of list and watch is its own (on `kube`'s client), because a bookmark must be seen here: it moves the
//!   version that `/healthz` tells. `kube`'s watcher keeps bookmarks and the versions of lists to itself.
//! - Objects are not kept. What stays in memory is a fingerprint of each (see [`kept`]), so a list after an outage is
//!   reported as a difference, and a large cluster costs little.

mod access;
mod answer;
mod backoff;
mod connector;
mod decode;
mod events;
mod exec;
mod kept;
mod list;
mod quiet;
mod reflect;
mod slim;
mod trouble;
mod watching;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::object::Kind;
use super::{Batch, Change, SkippedObjects, Source, SourceError};
use crate::events::Recorder;
use crate::metrics::ApiFailures;
use kept::Kept;
use reflect::Reflector;
use trouble::Trouble;

pub(crate) use access::without_password;
pub use access::{Access, AccessError};
pub use connector::Connector;
pub use events::record_events;

/// Messages between the watches and the source. While the proxy is busy with a sync, further changes wait in the
/// connections to the API server rather than here.
const WAITING: usize = 4;

/// How much longer changes are gathered than one of them waits for the next, at most.
const GATHER_AT_MOST: u32 = 10;

/// How long things take. The defaults are for real clusters; tests are less patient.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Wait before the first new try; each further one waits twice as long, and up to half as long again by chance.
    pub first_retry: Duration,
    /// The longest wait between two tries (client-go's reflectors: 30 seconds).
    pub longest_retry: Duration,
    /// The same where the server does not serve a kind that a proxy can do without, or does not allow to ask for it: a cluster may stay
    /// so for years.
    pub longest_absence: Duration,
    /// A page of the first list must have come after so long: a connection that nobody answers should not keep a new node without rules.
    /// Each further try has twice the time.
    pub first_list: Duration,
    /// The longest time for a page of a list.
    pub list: Duration,
    /// A watch over which nothing has come for so long, not even a bookmark, is begun anew where it stood: the
    /// connection may be dead without anybody having said so. API servers send a bookmark about once a minute.
    pub silence: Duration,
    /// A watch that lasted so long was a good one: the server is well, and the next failure is a first one again.
    pub settled: Duration,
    /// Changes that come within so long of each other are reported together, up to ten times as long after the first.
    pub gather: Duration,
    /// Objects in a page of a list (client-go's default page).
    pub page: u32,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            first_retry: Duration::from_millis(200),
            longest_retry: Duration::from_secs(30),
            longest_absence: Duration::from_secs(300),
            first_list: Duration::from_secs(10),
            list: Duration::from_secs(60),
            silence: Duration::from_secs(150),
            settled: Duration::from_secs(5),
            gather: Duration::from_millis(10),
            page: 500,
        }
    }
}

/// What of the API is watched.
#[derive(Debug, Clone)]
pub struct Subjects {
    /// This node's name: of the Nodes its own is watched alone.
    pub node_name: String,
    /// ServiceCIDRs, too.
    pub service_cidrs: bool,
}

impl From<&str> for Subjects {
    /// What every mode asks for, on the node of this name.
    fn from(node_name: &str) -> Subjects {
        Subjects { node_name: node_name.to_owned(), service_cidrs: false }
    }
}

impl Subjects {
    fn kinds(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| self.service_cidrs || *kind != Kind::ServiceCidr)
    }
}

/// Where a source tells what it meets.
#[derive(Debug, Clone, Default)]
pub struct Reports {
    /// Counts what fails.
    pub failures: ApiFailures,
    /// Takes Events about objects that break the rules.
    pub events: Recorder,
}

/// What one watch reports to the source: the changes since its last report, and how far it has seen.
#[derive(Debug)]
struct WatchUpdate {
    kind: Kind,
    changes: Vec<Change>,
    /// Nothing in the middle of a list.
    version: Option<String>,
    /// This ends a list, or there is none to be had of a kind that a proxy can do without.
    listed: bool,
}

/// A watched API server. Failures are logged, once per kind of failure; the source never ends because of one.
#[derive(Debug)]
pub struct KubernetesSource {
    received: mpsc::Receiver<WatchUpdate>,
    pending: Batch,
    unlisted: BTreeSet<Kind>,
    due: Option<Instant>,
    /// However many changes go on coming, nothing is held back after this.
    latest: Instant,
    gather: Duration,
    skipped: SkippedObjects,
    _watches: JoinSet<()>,
}

impl KubernetesSource {
    /// Begins to list and watch, in tasks that end with the source; must be called on a tokio runtime.
    pub fn start(
        connector: Connector,
        subjects: impl Into<Subjects>,
        timing: &Timing,
        reports: &Reports,
    ) -> KubernetesSource {
        let subjects = subjects.into();
        let (sender, received) = mpsc::channel(WAITING);
        let skipped = SkippedObjects::default();
        let trouble = Arc::new(Trouble::new(connector.describe(), reports.failures.clone()));
        let mut watches = JoinSet::new();
        for kind in subjects.kinds() {
            let reflector = Reflector::new(kind, &subjects.node_name, connector.clone(), timing.clone());
            let kept = Kept::new(kind, skipped.clone(), reports.events.clone());
            watches.spawn(reflector.run(kept, Arc::clone(&trouble), sender.clone()));
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
            // A large cluster's first lists are given on piece by piece, so that they need not be held as a whole.
            self.due = Some(Instant::now());
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

impl Source for KubernetesSource {
    fn skipped(&self) -> SkippedObjects {
        self.skipped.clone()
    }

    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        // Everything that was received is in `self`, so a dropped future loses nothing.
        // After a sync the caller finds that the time to gather has passed meanwhile, though the watches could tell no
        // more than the channel holds: it begins anew, or each sync would take only a handful of many changes that wait.
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
                updates = self.received.recv() => match updates {
                    Some(updates) => self.take_in(updates),
                    None => return Err(SourceError::Watches),
                },
            }
        }
    }
}

/// Reads these bytes as what an API server may answer, and says whether anything was taken away by what is no list, for
/// [`crate::fuzzing`].
pub(crate) fn fuzz(bytes: &[u8]) -> bool {
    let mut lost = false;
    for kind in Kind::ALL {
        let mut kept = Kept::new(kind, SkippedObjects::default(), Recorder::default());
        list::fuzz(kind, bytes, &mut kept);
        for line in bytes.split(|byte| *byte == b'\n') {
            watching::fuzz(kind, line, &mut kept);
        }
        if list::fuzz(kind, bytes, &mut kept) {
            lost |= !kept.list_is_whole().is_empty();
        }
    }
    exec::fuzz(bytes);
    lost
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_piled_up_during_a_sync_is_told_together() {
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
            kind: Kind::Node,
            changes: vec![Change::Node(format!("node-{number}"), None)],
            version: Some(number.to_string()),
            listed: false,
        };
        sender.send(version(0)).await.unwrap();
        // The first change was taken in when the sync begins, and the others wait in the connection.
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
