//! The Kubernetes API as a source: Services, EndpointSlices and this node's own Node, listed and then watched.
//!
//! Two decisions shape this module:
//! - The loop of list and watch is its own (on `kube`'s client), because a bookmark must be seen here: it moves the
//!   version that `/healthz` tells. `kube`'s watcher keeps bookmarks and the versions of lists to itself.
//! - Objects are not kept. What stays in memory is a fingerprint of each (see [`kept`]), so a list after an outage is
//!   told as a difference, and a large cluster costs little.

mod access;
mod backoff;
mod decode;
mod events;
mod kept;
mod reflect;
mod slim;
mod trouble;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::object::Kind;
use super::{Batch, Change, SkippedObjects, Source, SourceError};
use crate::events::Recorder;
use crate::metrics::Requests;
use kept::Kept;
use reflect::Reflector;
use trouble::Trouble;

pub use access::{Access, AccessError};
pub use events::record_events;

/// Messages between the watches and the source. While the proxy is busy with a sync, further changes wait in the
/// connections to the API server rather than here.
const WAITING: usize = 4;

/// How long things take. The defaults are for real clusters; tests are less patient.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Wait before the first new try; each further one waits twice as long, and up to half as long again by chance.
    pub first_retry: Duration,
    /// The longest wait between two tries (client-go's reflectors: 30 seconds).
    pub longest_retry: Duration,
    /// A page of a list must have come after so long.
    pub list: Duration,
    /// A watch over which nothing has come for so long, not even a bookmark, is begun anew where it stood: the
    /// connection may be dead without anybody having said so. API servers send a bookmark about once a minute.
    pub silence: Duration,
    /// A watch that lasted so long was a good one: the next failure is a first one again.
    pub settled: Duration,
    /// Changes that come within so long of each other are told together.
    pub gather: Duration,
    /// Objects in a page of a list (client-go's default page).
    pub page: u32,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            first_retry: Duration::from_millis(200),
            longest_retry: Duration::from_secs(30),
            list: Duration::from_secs(60),
            silence: Duration::from_secs(150),
            settled: Duration::from_secs(5),
            gather: Duration::from_millis(10),
            page: 500,
        }
    }
}

/// Where a source tells what it meets.
#[derive(Debug, Clone, Default)]
pub struct Reports {
    /// Counts its requests.
    pub requests: Requests,
    /// Takes Events about objects that break the rules.
    pub events: Recorder,
}

/// What one watch tells the source: the changes since it last told something, and how far it has seen.
#[derive(Debug)]
struct Told {
    kind: Kind,
    changes: Vec<Change>,
    /// Nothing in the middle of a list.
    version: Option<String>,
    /// This ends a list.
    listed: bool,
}

/// A watched API server. Failures are logged, once per kind of failure; the source never ends because of one.
#[derive(Debug)]
pub struct KubernetesSource {
    received: mpsc::Receiver<Told>,
    pending: Batch,
    unlisted: BTreeSet<Kind>,
    due: Option<Instant>,
    gather: Duration,
    skipped: SkippedObjects,
    _watches: JoinSet<()>,
}

impl KubernetesSource {
    /// Begins to list and watch, in tasks that end with the source; must be called on a tokio runtime.
    pub fn start(access: Access, node_name: &str, timing: &Timing, reports: &Reports) -> KubernetesSource {
        let (sender, received) = mpsc::channel(WAITING);
        let skipped = SkippedObjects::default();
        let trouble = Arc::new(Trouble::new(access.describe()));
        let mut watches = JoinSet::new();
        for kind in Kind::ALL {
            let reflector = Reflector::new(kind, node_name, access.clone(), reports.requests.clone(), timing.clone());
            let kept = Kept::new(kind, skipped.clone(), reports.events.clone());
            watches.spawn(reflector.run(kept, Arc::clone(&trouble), sender.clone()));
        }
        KubernetesSource {
            received,
            pending: Batch::default(),
            unlisted: Kind::ALL.into(),
            due: None,
            gather: timing.gather,
            skipped,
            _watches: watches,
        }
    }

    fn take_in(&mut self, told: Told) {
        self.pending.changes.extend(told.changes);
        if let Some(version) = told.version {
            *self.pending.resource_versions.of(told.kind) = Some(version);
        }
        if told.listed {
            self.unlisted.remove(&told.kind);
        }
        self.pending.partial = !self.unlisted.is_empty();
        if self.due.is_none() {
            // A large cluster's first lists are given on piece by piece, so that they need not be held as a whole.
            let wait = if self.pending.partial { Duration::ZERO } else { self.gather };
            self.due = Some(Instant::now() + wait);
        }
    }
}

impl Source for KubernetesSource {
    fn skipped(&self) -> SkippedObjects {
        self.skipped.clone()
    }

    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        // Everything that was received is in `self`, so a dropped future loses nothing.
        loop {
            let due = self.due;
            tokio::select! {
                biased;
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.due = None;
                    return Ok(Some(std::mem::take(&mut self.pending)));
                }
                told = self.received.recv() => match told {
                    Some(told) => self.take_in(told),
                    None => return Err(SourceError::Watches),
                },
            }
        }
    }
}
