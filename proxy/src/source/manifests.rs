use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc as batches;

use super::catalog::Catalog;
use super::directory::{self, FileStamp, OUTSIDE, ReadOutcome, WalkObserver};
use super::problem::DocumentError;
use super::watch::{DirectoryWatch, WatchEvent};
use super::{Batch, ObjectSource, SkippedObjects, SourceError};

/// Events within this time are handled together: an editor or a copy causes several.
const QUIET: Duration = Duration::from_millis(15);
/// The longest wait after the first event in a busy directory.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest wait while a file is written: half a file would remove live Services.
const PATIENCE_WITH_WRITERS: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct DirectoryReading {
    pub batch: Batch,
    pub problems: Vec<DocumentError>,
    pub remarks: Vec<DocumentError>,
    pub skipped: Vec<String>,
}

/// Reads `*.yaml`, `*.yml` and `*.json`, except hidden files. Faults in files are in [`DirectoryReading::problems`].
pub fn read_directory(directory: &Path) -> Result<DirectoryReading, SourceError> {
    let mut catalog = Catalog::default();
    rescan(&mut catalog, &mut directory::SingleWalk(directory))?;
    Ok(DirectoryReading {
        batch: catalog.next_batch().unwrap_or_default(),
        problems: catalog.problems(),
        remarks: catalog.remarks(),
        skipped: catalog.skipped(),
    })
}

/// Faults are logged once while they last. Invalid objects, unreadable files and a missing directory change no object;
/// a removed file removes its objects.
#[derive(Debug)]
pub struct ManifestSource {
    first: Option<Batch>,
    batches: batches::Receiver<Batch>,
    problems: Arc<Mutex<Vec<DocumentError>>>,
    skipped: SkippedObjects,
    events: Sender<WatchEvent>,
    path: String,
}

impl ManifestSource {
    /// The watching thread ends with the source.
    pub fn open(directory: &Path) -> Result<Self, SourceError> {
        let (events, received) = mpsc::channel();
        let watch = DirectoryWatch::new(directory, events.clone())?;
        // Capacity one: further changes accumulate in the directory.
        let (sender, batches) = batches::channel(1);
        let problems = Arc::new(Mutex::new(Vec::new()));
        let skipped = SkippedObjects::default();
        let mut watcher = Watcher {
            catalog: Catalog::default(),
            watch,
            received,
            sender,
            problems: Arc::clone(&problems),
            skipped: skipped.clone(),
            logged: HashSet::new(),
        };
        rescan(&mut watcher.catalog, &mut watcher.watch)?;
        watcher.watch.settle()?;
        let first = watcher.catalog.next_batch();
        watcher.report(None);
        let path = directory.display().to_string();
        let failed = |error: std::io::Error| SourceError::Directory {
            operation: "watch",
            path: path.clone(),
            cause: error.to_string(),
        };
        let thread = thread::Builder::new().name("manifests".to_owned());
        thread.spawn(move || watcher.run()).map_err(failed)?;
        Ok(Self { first, batches, problems, skipped, events, path })
    }

    #[must_use]
    pub fn problems(&self) -> Vec<DocumentError> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ObjectSource for ManifestSource {
    fn skipped(&self) -> SkippedObjects {
        self.skipped.clone()
    }

    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        match self.batches.recv().await {
            Some(batch) => Ok(Some(batch)),
            None => Err(SourceError::Directory {
                operation: "watch",
                path: self.path.clone(),
                cause: "its watcher has stopped".to_owned(),
            }),
        }
    }
}

impl Drop for ManifestSource {
    fn drop(&mut self) {
        // Sending fails if the thread has ended.
        let _ = self.events.send(WatchEvent::Stop);
    }
}

struct Watcher {
    catalog: Catalog,
    watch: DirectoryWatch,
    received: Receiver<WatchEvent>,
    sender: batches::Sender<Batch>,
    problems: Arc<Mutex<Vec<DocumentError>>>,
    skipped: SkippedObjects,
    logged: HashSet<String>,
}

impl Watcher {
    fn run(mut self) {
        let mut trouble = false;
        while self.changed(trouble) {
            let read = rescan(&mut self.catalog, &mut self.watch);
            let outcome = read.and_then(|()| self.watch.settle());
            let batch = self.catalog.next_batch();
            self.report(outcome.as_ref().err());
            trouble = outcome.is_err();
            if let Some(batch) = batch
                && self.sender.blocking_send(batch).is_err()
            {
                return;
            }
        }
    }

    /// Waits for changes; returns false when the source is gone.
    fn changed(&mut self, trouble: bool) -> bool {
        let retry = trouble.then(|| Instant::now() + RETRY);
        let mut open = BTreeSet::new();
        let mut since: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let until = match since {
                Some(since) if open.is_empty() => Some((now + QUIET).min(since + PATIENCE)),
                Some(since) => Some(since + PATIENCE_WITH_WRITERS),
                None => retry,
            };
            let event = match until {
                Some(until) if until <= now => return true,
                Some(until) => self.received.recv_timeout(until - now),
                None => self.received.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(WatchEvent::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
                Ok(WatchEvent::Seen(event)) => {
                    if self.watch.concerns(&event, &mut open) {
                        since.get_or_insert_with(Instant::now);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return true,
            }
        }
    }

    fn report(&mut self, outcome: Option<&SourceError>) {
        let problems = self.catalog.problems();
        let mut current = HashSet::new();
        for line in problems.iter().map(ToString::to_string) {
            if !self.logged.contains(&line) {
                tracing::warn!("{line}");
                self.skipped.add();
            }
            current.insert(line);
        }
        for line in self.catalog.remarks().iter().map(ToString::to_string) {
            if !self.logged.contains(&line) {
                tracing::warn!("{line}");
            }
            current.insert(line);
        }
        if let Some(error) = outcome {
            let line = format!("{error}; its objects are kept as they were");
            if !self.logged.contains(&line) {
                tracing::warn!("{line}");
            }
            current.insert(line);
        }
        for line in self.catalog.skipped() {
            if !self.logged.contains(&line) {
                tracing::info!("{line}");
            }
            current.insert(line);
        }
        self.logged = current;
        *self.problems.lock().unwrap_or_else(PoisonError::into_inner) = problems;
    }
}

fn rescan(catalog: &mut Catalog, observer: &mut dyn WalkObserver) -> Result<(), SourceError> {
    let walk = directory::walk(observer)?;
    let mut present = BTreeSet::new();
    for found in walk.files {
        if found.is_outside {
            catalog.file(&found.name, Err(OUTSIDE.to_owned()));
            present.insert(found.name);
            continue;
        }
        observer.file(&found.path);
        let known = catalog.stamp(&found.name);
        if known.is_some() && known == FileStamp::at(&found.path) {
            present.insert(found.name);
            continue;
        }
        match directory::read(&found.path) {
            ReadOutcome::Gone => continue,
            ReadOutcome::Bytes(bytes, stamp) => {
                catalog.file(&found.name, Ok(&bytes));
                catalog.read_at(&found.name, stamp);
            }
            ReadOutcome::Failed(message) => catalog.file(&found.name, Err(message)),
        }
        present.insert(found.name);
    }
    catalog.retain(&present, walk.closed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_unchanged_file_is_not_read_again() {
        let root = tempfile::TempDir::new().unwrap();
        let path = root.path().join("x.yaml");
        fs::write(&path, "one").unwrap();
        let mut catalog = Catalog::default();
        let faults = |catalog: &mut Catalog| {
            rescan(catalog, &mut directory::SingleWalk(root.path())).unwrap();
            catalog.problems().len()
        };
        assert_eq!(faults(&mut catalog), 1);
        catalog.file("x.yaml", Ok(b""));
        catalog.read_at("x.yaml", FileStamp::at(&path));
        assert_eq!(faults(&mut catalog), 0);
        fs::write(&path, "other").unwrap();
        assert_eq!(faults(&mut catalog), 1);
    }
}
