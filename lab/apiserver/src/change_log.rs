//! The history of changes, as far back as its bounds allow: what watches read, and what lists of an earlier version
//! are reconstructed from.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::objects::{ObjectKey, ObjectKind, Record, RecordChange, Store};

/// How much history is kept for each kind. What is older is compacted: whoever asks for it gets 410 Gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryBounds {
    /// Changes.
    pub events: usize,
    /// Bytes of JSON in these changes.
    pub bytes: usize,
}

impl Default for HistoryBounds {
    fn default() -> Self {
        HistoryBounds { events: 10_000, bytes: 64 << 20 }
    }
}

/// Something that watches are to tell.
#[derive(Debug)]
pub(super) enum LogEntry {
    /// A change.
    Change(RecordChange),
    /// A change told once more (misbehaviour).
    Repeat(RecordChange),
    /// A bookmark out of turn (misbehaviour).
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

/// The version asked for is older than the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expired {
    /// The oldest version that can still be asked for.
    pub(super) oldest: u64,
}

/// History by kind.
#[derive(Debug)]
pub(super) struct ChangeLog {
    bounds: HistoryBounds,
    /// Every kind's history begins after this version at the latest.
    begin: u64,
    kinds: BTreeMap<ObjectKind, KindHistory>,
}

#[derive(Debug, Default)]
struct KindHistory {
    entries: VecDeque<Arc<LogEntry>>,
    /// Place of the first entry in the sequence of all entries that ever were.
    first: u64,
    /// Changes up to this version are forgotten.
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
    /// An empty history that begins at `version`.
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

    /// The oldest version of `kind` that can be asked for.
    pub(super) fn oldest(&self, kind: ObjectKind) -> u64 {
        self.kinds.get(&kind).map_or(0, |ring| ring.compacted).max(self.begin)
    }

    fn check(&self, kind: ObjectKind, version: u64) -> Result<(), Expired> {
        let oldest = self.oldest(kind);
        if version < oldest { Err(Expired { oldest }) } else { Ok(()) }
    }

    /// The place behind the last entry.
    pub(super) fn end(&self, kind: ObjectKind) -> u64 {
        self.kinds.get(&kind).map_or(0, KindHistory::end)
    }

    /// The place of the first entry after `version`.
    pub(super) fn place(&self, kind: ObjectKind, version: u64) -> Result<u64, Expired> {
        self.check(kind, version)?;
        let Some(ring) = self.kinds.get(&kind) else { return Ok(0) };
        let index = ring.entries.partition_point(|entry| entry.version() <= version);
        Ok(ring.first + index as u64)
    }

    /// Up to `limit` entries from `place` on.
    pub(super) fn from(&self, kind: ObjectKind, place: u64, limit: usize) -> Result<Vec<Arc<LogEntry>>, Expired> {
        let Some(ring) = self.kinds.get(&kind) else { return Ok(Vec::new()) };
        let Some(skip) = place.checked_sub(ring.first) else { return Err(Expired { oldest: self.oldest(kind) }) };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        Ok(ring.entries.iter().skip(skip).take(limit).cloned().collect())
    }

    /// The objects of `kind` as they were at `version`: those of today with the changes since taken back.
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

    /// Forgets everything up to `version`.
    pub(super) fn compact(&mut self, version: u64) {
        self.begin = self.begin.max(version);
        for ring in self.kinds.values_mut() {
            while ring.entries.front().is_some_and(|entry| entry.version() <= version) {
                ring.pop();
            }
        }
    }

    /// Tells the last change of `kind` once more; `false` when there is none to tell.
    pub(super) fn repeat(&mut self, kind: ObjectKind) -> bool {
        let entries = self.kinds.get(&kind).into_iter().flat_map(|ring| ring.entries.iter().rev());
        let last = entries.into_iter().find_map(|entry| match entry.as_ref() {
            LogEntry::Change(change) => Some(change.clone()),
            _ => None,
        });
        last.map(|change| self.push(kind, LogEntry::Repeat(change))).is_some()
    }

    /// Sends a bookmark to the watches of `kind`.
    pub(super) fn bookmark(&mut self, kind: ObjectKind, version: u64) {
        self.push(kind, LogEntry::Bookmark(version));
    }
}
