use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::disk::{self, DiskError};
use super::format::{self, FormatError, SavedState};
use super::objects::EncodedObjects;
use super::saver::StateSaver;
use super::{Origin, StateFileCounts, StateFileSettings};
use crate::habits::{self, Habit};
use crate::model::Batch;
use crate::source::kubernetes::{Access, AccessError, Connector, WatchScope};
use crate::source::object::ObjectKind;
use crate::source::{ObjectSource, SkippedObjects, SourceError};

/// Records what the API says in the state file. If the API does not answer at the start, the first batch has the file's objects, and the
/// next one is the difference to what the API says.
#[derive(Debug)]
pub struct StateFileSource<S> {
    source: S,
    settings: StateFileSettings,
    /// `None` if its thread could not be started.
    saver: Option<StateSaver>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The API has a head start. `held` are its batches so far.
    HeadStart { until: Instant, reading: FileReading, held: Batch },
    /// The file's objects are the state. `held` are versions.
    Recalled { objects: EncodedObjects, held: Batch },
    /// The file is not needed any more.
    Api,
}

#[derive(Debug)]
enum FileReading {
    UnderWay(JoinHandle<Result<Option<SavedState>, Unusable>>),
    Done(Option<SavedState>),
}

#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error("it is of node {0}")]
    Node(String),
    #[error("it is of another cluster: of another API server's address, or another certificate authority")]
    Cluster,
    #[error("its cluster cannot be compared: {0}")]
    Access(#[from] AccessError),
    #[error("it is {age:?} old; stateFile.maxAge (--state-file-max-age) is {most:?}")]
    Old { age: Duration, most: Duration },
    #[error("it has no objects")]
    Empty,
}

impl<S: ObjectSource> StateFileSource<S> {
    /// Needs a tokio runtime.
    pub fn start(
        source: S,
        settings: StateFileSettings,
        (access, connector, scope): (&Access, &Connector, &WatchScope),
        counts: &StateFileCounts,
    ) -> StateFileSource<S> {
        let (node, of_connector) = (scope.node_name.clone(), connector.clone());
        let origin = Box::new(move || Some(Origin { node: node.clone(), cluster: of_connector.cluster()? }));
        let saver = StateSaver::start(settings.clone(), counts.clone(), origin)
            .inspect_err(|error| warn!("the state file {} is not written: {error}", settings.path.display()))
            .ok();
        let (path, max_age, access, scope) = (settings.path.clone(), settings.max_age, access.clone(), scope.clone());
        let reading = spawn_blocking(move || read(&path, &access, &scope, SystemTime::now(), max_age));
        let until = Instant::now() + settings.timing.head_start;
        let phase = Phase::HeadStart { until, reading: FileReading::UnderWay(reading), held: Batch::default() };
        StateFileSource { source, settings, saver, phase }
    }

    /// Returns the next batch of the phase, if `batch` completes one.
    fn take(&mut self, mut batch: Batch) -> Option<Batch> {
        if let Some(saver) = &self.saver {
            saver.record(&batch, SystemTime::now(), self.settings.max_age);
        }
        match &mut self.phase {
            Phase::Api => Some(batch),
            Phase::HeadStart { held, .. } => {
                gather(held, batch);
                if held.partial {
                    return None;
                }
                let held = std::mem::take(held);
                self.phase = Phase::Api;
                Some(held)
            }
            Phase::Recalled { objects, held } => {
                batch.changes.clear();
                gather(held, batch);
                if held.partial {
                    return None;
                }
                let (objects, held) = (std::mem::take(objects), std::mem::take(held));
                self.phase = Phase::Api;
                Some(self.replacement(&objects, held))
            }
        }
    }

    /// Returns the batch that replaces the file's objects at once.
    fn replacement(&self, objects: &EncodedObjects, versions: Batch) -> Batch {
        let changes = self.saver.as_ref().map(|saver| saver.since(objects)).unwrap_or_default();
        info!(changes = changes.len(), "the API server has answered: its objects replace those of the state file");
        Batch { changes, ..versions }
    }

    /// Ends the head start, unless the file is being read.
    fn end_head_start(&mut self, file: Option<SavedState>, held: Batch) -> Option<Batch> {
        // Without the saver nothing knows what the API has said.
        let Some(file) = file.filter(|_| self.saver.is_some()) else {
            self.phase = Phase::Api;
            return (!held.changes.is_empty() || held.resource_versions != Default::default()).then_some(held);
        };
        let count = |kind| file.objects.count(kind);
        warn!(
            services = count(ObjectKind::Service),
            endpoint_slices = count(ObjectKind::EndpointSlice),
            of = %rfc3339(file.confirmed),
            "the API server has not answered yet: programming the objects of the state file {}",
            self.settings.path.display()
        );
        let recalled = Batch {
            changes: file.objects.since(&EncodedObjects::default()),
            recalled: Some(file.confirmed),
            ..Batch::default()
        };
        let held = Batch { changes: Vec::new(), ..held };
        self.phase = Phase::Recalled { objects: file.objects, held };
        Some(recalled)
    }
}

impl<S: ObjectSource + Send> ObjectSource for StateFileSource<S> {
    fn skipped(&self) -> SkippedObjects {
        self.source.skipped()
    }

    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        loop {
            let batch = match &mut self.phase {
                Phase::HeadStart { until, reading, held } => {
                    let (until, path) = (*until, &self.settings.path);
                    let file = async {
                        // Both futures can be dropped and made anew.
                        let file = reading.done(path).await;
                        sleep_until(until).await;
                        file
                    };
                    tokio::select! {
                        biased;
                        batch = self.source.next() => batch?,
                        file = file => {
                            let (file, held) = (file.take(), std::mem::take(held));
                            match self.end_head_start(file, held) {
                                Some(batch) => return Ok(Some(batch)),
                                None => continue,
                            }
                        }
                    }
                }
                Phase::Recalled { .. } | Phase::Api => self.source.next().await?,
            };
            let Some(batch) = batch else { return Ok(None) };
            if let Some(batch) = self.take(batch) {
                return Ok(Some(batch));
            }
        }
    }
}

impl FileReading {
    async fn done(&mut self, path: &Path) -> &mut Option<SavedState> {
        if let FileReading::UnderWay(handle) = self {
            // A panic in the reader is a file that is of no use.
            let read = handle.await.unwrap_or(Ok(None));
            *self = FileReading::Done(usable(read, path));
        }
        match self {
            FileReading::Done(file) => file,
            FileReading::UnderWay(_) => std::future::pending().await,
        }
    }
}

fn gather(held: &mut Batch, batch: Batch) {
    held.changes.extend(batch.changes);
    held.resource_versions.advance(&batch.resource_versions);
    held.partial = batch.partial;
}

/// Logs what is wrong with a file.
fn usable(read: Result<Option<SavedState>, Unusable>, path: &Path) -> Option<SavedState> {
    let path = path.display();
    match read {
        Ok(None) => {
            info!("there is no state file {path} yet");
            None
        }
        Ok(Some(file)) => {
            if file.refused > 0 {
                warn!("{} objects of the state file {path} are invalid and left out", file.refused);
            }
            Some(file).filter(|_| !habits::has(Habit::StateFileIsNotRead))
        }
        Err(reason) => {
            warn!("the state file {path} is ignored: {reason}");
            None
        }
    }
}

/// Whether a start without the API would program the file's objects. Logs why not.
pub fn has_usable_file(settings: &StateFileSettings, access: &Access, scope: &WatchScope) -> bool {
    let read = read(&settings.path, access, scope, SystemTime::now(), settings.max_age);
    usable(read, &settings.path).is_some()
}

fn read(
    path: &Path,
    access: &Access,
    scope: &WatchScope,
    now: SystemTime,
    max_age: Duration,
) -> Result<Option<SavedState>, Unusable> {
    let Some(bytes) = disk::read(path)? else { return Ok(None) };
    let mut file = format::decode(bytes.into())?;
    // The mode may have been another one.
    file.objects.retain_kinds(&scope.kinds().collect());
    judge(&file, &scope.node_name, now, max_age)?;
    if file.origin.cluster != access.cluster()? {
        return Err(Unusable::Cluster);
    }
    Ok(Some(file))
}

/// A time in the future has no age: a node without a clock that runs while it is off starts in the past.
fn judge(file: &SavedState, node: &str, now: SystemTime, most: Duration) -> Result<(), Unusable> {
    if file.origin.node != node {
        return Err(Unusable::Node(crate::source::problem::one_line(&file.origin.node)));
    }
    let age = now.duration_since(file.confirmed).unwrap_or_default();
    if age > most {
        return Err(Unusable::Old { age: Duration::from_secs(age.as_secs()), most });
    }
    if file.objects.is_empty() { Err(Unusable::Empty) } else { Ok(()) }
}

fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map(|time| time.to_string()).unwrap_or_default()
}
