use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::change_log::{Expired, LogEntry};
use super::error::ApiError;
use super::list::wait_for_version;
use super::negotiate::ResponseForm;
use super::query::{Query, VersionMatch};
use super::shared::{ServerState, SharedStore};
use super::view::ResponseView;
use crate::objects::{Record, RecordChange};

/// Maximum number of log entries read under one lock.
const BATCH: usize = 256;

/// `defaultBookmarkFrequency` of kube-apiserver. Bookmarks are sent at whole minutes, so that a client with many
/// watches wakes up once.
const IDLE: Duration = Duration::from_secs(60);

/// Timeout and bookmark interval of watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchTimes {
    /// Default timeout; kube-apiserver uses 30 to 60 minutes.
    pub longest: Duration,
    /// Minimum time between a change and the bookmark with its version.
    pub bookmark_every: Duration,
}

impl Default for WatchTimes {
    fn default() -> Self {
        WatchTimes { longest: Duration::from_secs(30 * 60), bookmark_every: IDLE }
    }
}

struct OpenWatch {
    shared: SharedStore,
    ticks: watch::Receiver<u64>,
    view: ResponseView,
    namespace: Option<String>,
    query: Query,
    times: WatchTimes,
    /// Sequence number of the next entry of the log.
    position: u64,
    /// The client knows all changes up to this version.
    since: u64,
    /// Value of `faults.closed` when this watch began.
    closed: u64,
    initial: Vec<Arc<Record>>,
    initial_bookmark: bool,
    /// Whether the next event contains column definitions.
    columns: bool,
    /// Unsent pieces of events.
    pieces: VecDeque<Bytes>,
    ends: Instant,
    last_bookmark: Instant,
    sent_version: u64,
    over: bool,
}

enum LogRead {
    Entries(Vec<Arc<LogEntry>>),
    Nothing { version: u64 },
    Silent,
    Closed { abrupt: bool },
    Expired(Expired),
}

/// Starts a watch; later errors are events of its stream.
pub(super) async fn watch(
    shared: &SharedStore,
    view: ResponseView,
    namespace: Option<String>,
    query: Query,
    times: WatchTimes,
) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, ApiError> {
    if let (VersionMatch::NotOlderThan(version), Some(true)) = (query.version, query.initial_events) {
        wait_for_version(shared, version).await?;
    }
    let now = Instant::now();
    let ends = now + query.timeout.map_or(times.longest, |timeout| timeout.min(times.longest));
    let ticks = shared.ticks();
    let kind = view.resource.kind;
    let mut watch = OpenWatch {
        shared: shared.clone(),
        ticks,
        view,
        namespace,
        query,
        times,
        position: 0,
        since: 0,
        closed: 0,
        initial: Vec::new(),
        initial_bookmark: false,
        columns: true,
        pieces: VecDeque::new(),
        ends,
        last_bookmark: now,
        sent_version: 0,
        over: false,
    };
    let begun = shared.update(|state| {
        watch.closed = state.faults.closed.0;
        let from = match (watch.query.initial_events, watch.query.version) {
            (Some(true), _) | (None, VersionMatch::Newest | VersionMatch::Any) => None,
            (_, VersionMatch::Newest | VersionMatch::Any) => Some(state.store.version()),
            (_, VersionMatch::Exact(version) | VersionMatch::NotOlderThan(version)) => Some(version),
        };
        match from {
            None => {
                // kube-apiserver's default of `sendInitialEvents` (`SetListOptionsDefaults`).
                watch.initial_bookmark = watch.query.bookmarks && !state.faults.watch_list_disabled;
                watch.initial = state.store.records(kind).cloned().collect();
                watch.position = state.log.end(kind);
                watch.since = state.store.version();
                Ok(())
            }
            Some(version) => watch.begin_at(state, version),
        }
    });
    if let Err(expired) = begun {
        let version = watch.since;
        watch.end_with_error(&ApiError::expired(version, expired));
    }
    Ok(unfold(watch, OpenWatch::next))
}

impl OpenWatch {
    fn begin_at(&mut self, state: &mut ServerState, version: u64) -> Result<(), Expired> {
        self.since = version;
        if state.faults.take_expiry() {
            return Err(Expired { oldest: state.store.version() });
        }
        self.position = state.log.position_after(self.view.resource.kind, version)?;
        Ok(())
    }

    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Some((Ok(piece), self));
            }
            if self.over {
                return None;
            }
            self.ticks.mark_unchanged();
            match self.shared.inspect(|state| self.read_log(state)) {
                LogRead::Closed { abrupt: true } => {
                    self.over = true;
                    return Some((Err(io::ErrorKind::ConnectionAborted.into()), self));
                }
                LogRead::Closed { abrupt: false } => self.over = true,
                LogRead::Expired(expired) => self.end_with_error(&ApiError::expired(self.since, expired)),
                LogRead::Silent => self.wait(None).await,
                LogRead::Entries(entries) => {
                    self.position += entries.len() as u64;
                    entries.iter().for_each(|entry| self.send_entry(entry));
                }
                LogRead::Nothing { .. } if self.send_initial() => {}
                LogRead::Nothing { version } => self.wait(Some(version)).await,
            }
        }
    }

    fn read_log(&self, state: &ServerState) -> LogRead {
        let kind = self.view.resource.kind;
        let (closed, abrupt) = state.faults.closed;
        if closed != self.closed {
            return LogRead::Closed { abrupt };
        }
        if state.faults.is_silent(kind) {
            return LogRead::Silent;
        }
        if self.has_initial() {
            return LogRead::Nothing { version: self.since };
        }
        match state.log.entries_from(kind, self.position, BATCH) {
            Err(expired) => LogRead::Expired(expired),
            Ok(entries) if entries.is_empty() => LogRead::Nothing { version: state.store.version() },
            Ok(entries) => LogRead::Entries(entries),
        }
    }

    fn has_initial(&self) -> bool {
        !self.initial.is_empty() || self.initial_bookmark
    }

    /// Sends the initial objects; returns `false` if there are none left.
    fn send_initial(&mut self) -> bool {
        if !self.has_initial() {
            return false;
        }
        for record in std::mem::take(&mut self.initial) {
            if self.selects(&record) {
                self.event("ADDED", &record);
            }
        }
        if std::mem::take(&mut self.initial_bookmark) {
            self.bookmark(self.since, true);
        }
        true
    }

    fn selects(&self, record: &Record) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| record.key.namespace == *namespace)
            && self.query.selector.matches(record)
    }

    fn send_entry(&mut self, entry: &LogEntry) {
        match entry {
            LogEntry::Bookmark(version) if *version > self.since => self.bookmark(*version, false),
            // A client that requested a future version gets only later changes.
            LogEntry::Change(change) if change.record.version > self.since => self.send_change(change),
            LogEntry::Repeat(change) => self.send_change(change),
            LogEntry::Change(_) | LogEntry::Bookmark(_) => {}
        }
    }

    /// Sends a change: an object that begins to match the selector is ADDED, one that no longer matches is DELETED.
    fn send_change(&mut self, change: &RecordChange) {
        let before = change.before.as_ref().filter(|before| self.selects(before));
        match (before, !change.deleted && self.selects(&change.record)) {
            (None, true) => self.event("ADDED", &change.record),
            (Some(_), true) => self.event("MODIFIED", &change.record),
            (Some(_), false) if change.deleted => self.event("DELETED", &change.record),
            (Some(before), false) => {
                let left = before.at_version(change.record.version);
                self.event("DELETED", &left);
            }
            (None, false) => {}
        }
    }

    fn event(&mut self, event_type: &'static str, record: &Record) {
        self.sent_version = self.sent_version.max(record.version);
        let columns = std::mem::take(&mut self.columns) && self.view.form == ResponseForm::Table;
        let object = self.view.single(record, columns);
        self.send(event_type, object);
    }

    fn bookmark(&mut self, version: u64, initial_events_end: bool) {
        if self.query.bookmarks {
            let object = self.view.bookmark(version, initial_events_end);
            self.send("BOOKMARK", self.view.encoding.encode(&object));
        }
        self.sent_version = self.sent_version.max(version);
        self.last_bookmark = Instant::now();
    }

    fn end_with_error(&mut self, error: &ApiError) {
        self.send("ERROR", self.view.encoding.encode(&error.status()));
        self.initial.clear();
        self.initial_bookmark = false;
        self.over = true;
    }

    fn send(&mut self, event_type: &'static str, object: Bytes) {
        self.pieces.extend(self.view.encoding.watch_event(event_type, object));
    }

    /// If everything up to `version` is sent, sends bookmarks of it when due, the last one before the watch ends.
    async fn wait(&mut self, version: Option<u64>) {
        let until = match version {
            Some(version) => {
                let soon = self.last_bookmark + self.times.bookmark_every.min(IDLE);
                let late = || whole_minute(self.shared.began(), self.last_bookmark);
                self.ends.min(if version > self.sent_version { soon } else { late() })
            }
            None => self.ends,
        };
        tokio::select! {
            changed = self.ticks.changed() => self.over = changed.is_err(),
            () = sleep_until(until) => {
                self.over = Instant::now() >= self.ends;
                if let Some(version) = version {
                    self.bookmark(version.max(self.since), false);
                }
            }
        }
    }
}

fn whole_minute(began: Instant, last: Instant) -> Instant {
    let minutes = last.saturating_duration_since(began).as_secs() / IDLE.as_secs() + 1;
    u32::try_from(minutes).map_or(last + IDLE, |minutes| began + IDLE * minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_watches_get_bookmarks_at_whole_minutes() {
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        for (last, next) in [(0, 60_000), (1, 60_000), (59_999, 60_000), (60_000, 120_000), (61_200, 120_000)] {
            assert_eq!(whole_minute(began, at(last)), at(next), "{last}");
        }
    }
}
