//! Relays the events of a watch and applies the faults of watches.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use futures_util::stream::unfold;
use futures_util::{StreamExt, TryStreamExt};
use http_body_util::{BodyExt, BodyStream};
use hyper::body::Incoming;
use serde_json::json;
use tokio::sync::watch;

use super::frames::EventSplitter;
use crate::encoding::Encoding;
use crate::faults::AddedEvent;
use crate::objects::ObjectKind;
use crate::response::{ResponseBody, stream_body};
use crate::shared::SharedStore;

pub(super) fn relay_body(body: Incoming) -> ResponseBody {
    body.map_err(io::Error::other).boxed_unsync()
}

pub(super) struct RelayedWatch {
    shared: SharedStore,
    ticks: watch::Receiver<u64>,
    kind: ObjectKind,
    bookmarks: bool,
    /// Value of `faults.closed` when this watch began.
    closed: u64,
    /// Number of entries of `faults.added` that are older than this watch or handled.
    added: u64,
    splitter: EventSplitter,
    last: Option<Bytes>,
    waiting: VecDeque<Bytes>,
    over: bool,
}

enum WatchState {
    Open,
    Silent,
    Closed { abrupt: bool },
}

impl RelayedWatch {
    pub(super) fn new(
        shared: SharedStore,
        kind: ObjectKind,
        bookmarks: bool,
        closed: u64,
        splitter: EventSplitter,
    ) -> Self {
        let ticks = shared.ticks();
        let added = shared.inspect(|state| state.faults.added.len() as u64);
        let (last, waiting) = (None, VecDeque::new());
        RelayedWatch { shared, ticks, kind, bookmarks, closed, added, splitter, last, waiting, over: false }
    }

    pub(super) fn body(self, upstream: Incoming) -> ResponseBody {
        let pieces = BodyStream::new(upstream).try_filter_map(async |frame| Ok(frame.into_data().ok()));
        let pieces = pieces.map_err(io::Error::other).boxed();
        let events = unfold((self, pieces), |(mut watch, mut pieces)| async move {
            let event = watch.next(&mut pieces).await?;
            Some((event, (watch, pieces)))
        });
        stream_body(events)
    }

    async fn next(
        &mut self,
        pieces: &mut (impl StreamExt<Item = io::Result<Bytes>> + Unpin),
    ) -> Option<io::Result<Bytes>> {
        loop {
            self.ticks.mark_unchanged();
            match self.apply_faults() {
                _ if self.over && self.waiting.is_empty() => return None,
                WatchState::Closed { abrupt: true } => {
                    self.over = true;
                    self.waiting.clear();
                    return Some(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                WatchState::Closed { abrupt: false } => return None,
                WatchState::Silent => {
                    // Meanwhile the socket buffers the upstream's events.
                    self.ticks.changed().await.ok()?;
                    continue;
                }
                WatchState::Open => {}
            }
            if let Some(event) = self.waiting.pop_front() {
                return Some(Ok(event));
            }
            tokio::select! {
                biased;
                changed = self.ticks.changed() => changed.ok()?,
                piece = pieces.next() => match piece {
                    Some(Ok(bytes)) => self.take(&bytes),
                    Some(Err(error)) => return Some(Err(error)),
                    None => {
                        self.waiting.extend(self.splitter.take_rest());
                        self.over = true;
                    }
                },
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.splitter.push(bytes);
        while let Some(event) = self.splitter.next() {
            self.last = Some(event.clone());
            self.waiting.push_back(event);
        }
    }

    /// Queues the events that faults add, behind the received ones.
    fn apply_faults(&mut self) -> WatchState {
        let (kind, from) = (self.kind, usize::try_from(self.added).unwrap_or(usize::MAX));
        let (seen, added) = self.shared.inspect(|state| {
            let (closed, abrupt) = state.faults.closed;
            let seen = match () {
                () if closed != self.closed => WatchState::Closed { abrupt },
                () if state.faults.is_silent(kind) => WatchState::Silent,
                () => WatchState::Open,
            };
            let added = state.faults.added.get(from..).unwrap_or_default();
            (seen, added.to_vec())
        });
        self.added += added.len() as u64;
        for (_, what) in added.into_iter().filter(|(of, _)| *of == kind) {
            match what {
                AddedEvent::Repeat => self.waiting.extend(self.last.clone()),
                AddedEvent::Bookmark(version) if self.bookmarks => {
                    self.waiting.push_back(bookmark(self.splitter.encoding, kind, version));
                }
                AddedEvent::Bookmark(_) => {}
            }
        }
        seen
    }
}

fn bookmark(encoding: Encoding, kind: ObjectKind, version: u64) -> Bytes {
    let metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
    let object = json!({"kind": kind.name(), "apiVersion": kind.api_version(), "metadata": metadata});
    encoding.watch_event("BOOKMARK", encoding.encode(&object)).concat().into()
}
