//! A directory is watched before its entries are read. Directories of link targets and the root's parent are watched,
//! too: the root may be removed, recreated or a swapped link.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::sync::mpsc::Sender;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::SourceError;
use super::directory::{WalkObserver, is_manifest, target};

#[derive(Debug)]
pub(super) enum WatchEvent {
    Seen(notify::Result<Event>),
    Stop,
}

#[derive(Debug)]
pub(super) struct DirectoryWatch {
    watcher: RecommendedWatcher,
    root: PathBuf,
    /// The root's name in its parent's canonical path.
    root_event: Option<PathBuf>,
    armed: BTreeSet<PathBuf>,
    pass: BTreeSet<PathBuf>,
    /// Directories in which every entry is relevant.
    listed: BTreeSet<PathBuf>,
    /// Canonical paths of link targets.
    targets: BTreeSet<PathBuf>,
    failure: Option<SourceError>,
}

impl DirectoryWatch {
    /// Watches nothing until the first walk.
    pub(super) fn new(root: &Path, events: Sender<WatchEvent>) -> Result<Self, SourceError> {
        let watcher = notify::recommended_watcher(move |event| {
            // Sending fails if the source was dropped.
            let _ = events.send(WatchEvent::Seen(event));
        });
        Ok(Self {
            watcher: watcher.map_err(|error| failed(root, &error))?,
            root: absolute(root).unwrap_or_else(|_| root.to_owned()),
            root_event: None,
            armed: BTreeSet::new(),
            pass: BTreeSet::new(),
            listed: BTreeSet::new(),
            targets: BTreeSet::new(),
            failure: None,
        })
    }

    pub(super) fn settle(&mut self) -> Result<(), SourceError> {
        for path in self.armed.difference(&self.pass) {
            // The watch may have ended with its directory.
            let _ = self.watcher.unwatch(path);
        }
        self.armed.clone_from(&self.pass);
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Whether an event may change a walk. `open` collects files that were written and not closed.
    pub(super) fn concerns(&self, event: &notify::Result<Event>, open: &mut BTreeSet<PathBuf>) -> bool {
        let Ok(event) = event else { return true };
        if event.need_rescan() {
            return true;
        }
        let content_only = match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
                open.retain(|path| !event.paths.contains(path));
                true
            }
            EventKind::Access(_) => return false,
            EventKind::Modify(ModifyKind::Data(_)) => true,
            _ => {
                open.retain(|path| !event.paths.contains(path));
                false
            }
        };
        let mut concerned = false;
        for path in event.paths.iter().filter(|path| self.is_ours(path, content_only)) {
            concerned = true;
            if matches!(event.kind, EventKind::Modify(ModifyKind::Data(_))) {
                open.insert(path.clone());
            }
        }
        concerned
    }

    fn is_ours(&self, path: &Path, content_only: bool) -> bool {
        if self.targets.contains(path) {
            return true;
        }
        let listed = path.parent().is_some_and(|parent| self.listed.contains(parent));
        if content_only {
            return listed && is_manifest(path);
        }
        // An added, removed or renamed entry may be a link to other directories.
        listed || self.listed.contains(path) || self.root_event.as_deref() == Some(path)
    }

    fn arm(&mut self, path: PathBuf) {
        // The watch is renewed: another directory may have the name now.
        if let Err(error) = self.watcher.watch(&path, RecursiveMode::NonRecursive)
            && path.exists()
        {
            self.failure = Some(failed(&path, &error));
        }
        self.pass.insert(path);
    }
}

impl WalkObserver for DirectoryWatch {
    fn start(&mut self) -> PathBuf {
        self.pass.clear();
        self.listed.clear();
        self.targets.clear();
        self.failure = None;
        if let (Some(parent), Some(name)) = (self.root.parent(), self.root.file_name())
            && let Ok(parent) = fs::canonicalize(parent)
        {
            self.root_event = Some(parent.join(name));
            self.arm(parent);
        }
        self.root.clone()
    }

    fn directory(&mut self, path: &Path) {
        if let Ok(path) = fs::canonicalize(path) {
            self.listed.insert(path.clone());
            self.arm(path);
        }
    }

    fn file(&mut self, path: &Path) {
        if fs::read_link(path).is_err() {
            return;
        }
        let Some(target) = target(path) else { return };
        if let Some(directory) = target.parent().and_then(|d| fs::canonicalize(d).ok()) {
            if let Some(name) = target.file_name() {
                self.targets.insert(directory.join(name));
            }
            if !self.pass.contains(&directory) {
                self.arm(directory);
            }
        }
    }
}

fn failed(path: &Path, error: &notify::Error) -> SourceError {
    SourceError::Directory { operation: "watch", path: path.display().to_string(), cause: error.to_string() }
}
