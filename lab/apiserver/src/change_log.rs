//! The bounded history of changes, for watches and lists of an earlier version.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::objects::{ObjectKey, ObjectKind, Record, RecordChange, Store};

/// Bounds of the history of each kind. Requests for an older version get 410 Gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryBounds {
    /// Maximum number of changes.
    pub events: usize,
    /// Maximum size of their objects' JSON, in bytes.
    pub bytes: usize,
}

impl Default for HistoryBounds {
    fn default() -> Self {
        HistoryBounds { events: 10_000, bytes: 64 << 20 }
    }
}

#[derive(Debug)]
pub(super) enum LogEntry {
    Change(RecordChange),
    /// A change that a fault sends a second time.
    Repeat(RecordChange),
    /// A bookmark that a fault inserts.
    Bookmark(u64),
}

impl LogEntry {
    pub(super) fn version(&self) -> u64 {
        match self {
            LogEntry::Change(change) | LogEntry::Repeat(change) => change.record.version,
            LogEntry::Bookmark(version) => *version,
        }
    }

    fn size(&self) -> usize {
        match self {
            LogEntry::Change(change) | LogEntry::Repeat(change) => change.record.json.len(),
            LogEntry::Bookmark(_) => 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expired {
    pub(super) oldest: u64,
}

#[derive(Debug)]
pub(super) struct ChangeLog {
    bounds: HistoryBounds,
    /// Oldest version since which the history of every kind is complete.
    begin: u64,
    kinds: BTreeMap<ObjectKind, KindHistory>,
}

#[derive(Debug, Default)]
struct KindHistory {
    entries: VecDeque<Arc<LogEntry>>,
    /// Sequence number of the first entry.
    first: u64,
    /// Newest version that was dropped.
    compacted: u64,
    bytes: usize,
}

impl KindHistory {
    fn push(&mut self, entry: LogEntry, bounds: HistoryBounds) {
        self.bytes += entry.size();
        self.entries.push_back(Arc::new(entry));
        while self.entries.len() > bounds.events || (self.bytes > bounds.bytes && self.entries.len() > 1) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(oldest) = self.entries.pop_front() {
            self.first += 1;
            self.bytes -= oldest.size();
            self.compacted = self.compacted.max(oldest.version());
        }
    }

    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

impl ChangeLog {
    pub(super) fn new(bounds: HistoryBounds, version: u64) -> Self {
        ChangeLog { bounds, begin: version, kinds: BTreeMap::new() }
    }

    pub(super) fn append(&mut self, changes: Vec<RecordChange>) {
        for change in changes {
            self.push(change.record.kind, LogEntry::Change(change));
        }
    }

    fn push(&mut self, kind: ObjectKind, entry: LogEntry) {
        let bounds = self.bounds;
        self.kinds.entry(kind).or_default().push(entry, bounds);
    }

    pub(super) fn oldest(&self, kind: ObjectKind) -> u64 {
        self.kinds.get(&kind).map_or(0, |ring| ring.compacted).max(self.begin)
    }

    fn check(&self, kind: ObjectKind, version: u64) -> Result<(), Expired> {
        let oldest = self.oldest(kind);
        if version < oldest { Err(Expired { oldest }) } else { Ok(()) }
    }

    pub(super) fn end(&self, kind: ObjectKind) -> u64 {
        self.kinds.get(&kind).map_or(0, KindHistory::end)
    }

    pub(super) fn position_after(&self, kind: ObjectKind, version: u64) -> Result<u64, Expired> {
        self.check(kind, version)?;
        let Some(ring) = self.kinds.get(&kind) else { return Ok(0) };
        let index = ring.entries.partition_point(|entry| entry.version() <= version);
        Ok(ring.first + index as u64)
    }

    pub(super) fn entries_from(
        &self,
        kind: ObjectKind,
        position: u64,
        limit: usize,
    ) -> Result<Vec<Arc<LogEntry>>, Expired> {
        let Some(ring) = self.kinds.get(&kind) else { return Ok(Vec::new()) };
        let Some(skip) = position.checked_sub(ring.first) else { return Err(Expired { oldest: self.oldest(kind) }) };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        Ok(ring.entries.iter().skip(skip).take(limit).cloned().collect())
    }

    /// Undoes later changes to return the objects of `version`.
    pub(super) fn snapshot(&self, store: &Store, kind: ObjectKind, version: u64) -> Result<Vec<Arc<Record>>, Expired> {
        self.check(kind, version)?;
        let mut objects: BTreeMap<&ObjectKey, &Arc<Record>> =
            store.records(kind).map(|record| (&record.key, record)).collect();
        let entries = self.kinds.get(&kind).into_iter().flat_map(|ring| ring.entries.iter().rev());
        for entry in entries.take_while(|entry| entry.version() > version) {
            let LogEntry::Change(change) = entry.as_ref() else { continue };
            match &change.before {
                Some(before) => objects.insert(&before.key, before),
                None => objects.remove(&change.record.key),
            };
        }
        Ok(objects.into_values().cloned().collect())
    }

    pub(super) fn compact(&mut self, version: u64) {
        self.begin = self.begin.max(version);
        for ring in self.kinds.values_mut() {
            while ring.entries.front().is_some_and(|entry| entry.version() <= version) {
                ring.pop();
            }
        }
    }

    /// Returns `false` if the kind has no change to repeat.
    pub(super) fn repeat(&mut self, kind: ObjectKind) -> bool {
        let entries = self.kinds.get(&kind).into_iter().flat_map(|ring| ring.entries.iter().rev());
        let last = entries.into_iter().find_map(|entry| match entry.as_ref() {
            LogEntry::Change(change) => Some(change.clone()),
            _ => None,
        });
        last.map(|change| self.push(kind, LogEntry::Repeat(change))).is_some()
    }

    pub(super) fn bookmark(&mut self, kind: ObjectKind, version: u64) {
        self.push(kind, LogEntry::Bookmark(version));
    }
}
