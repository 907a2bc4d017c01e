//! What a client gets of a watch: the other server's events, held back, repeated or broken off as faults say.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use futures_util::stream::unfold;
use futures_util::{StreamExt, TryStreamExt};
use http_body_util::{BodyExt, BodyStream};
use hyper::body::Incoming;
use tokio::sync::watch;

use super::frames::{EventSplitter, WatchFraming};
use crate::faults::AddedEvent;
use crate::objects::ObjectKind;
use crate::response::{ResponseBody, stream_body};
use crate::shared::SharedStore;

/// An answer that is passed on as it comes.
pub(super) fn whole(body: Incoming) -> ResponseBody {
    body.map_err(io::Error::other).boxed_unsync()
}

/// One open watch.
pub(super) struct RelayedWatch {
    shared: SharedStore,
    ticks: watch::Receiver<u64>,
    kind: ObjectKind,
    bookmarks: bool,
    /// Watches closed before this one began.
    closed: u64,
    /// What faults had added to watches before this one began.
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
        let added = shared.look(|state| state.faults.added.len() as u64);
        let (last, waiting) = (None, VecDeque::new());
        RelayedWatch { shared, ticks, kind, bookmarks, closed, added, splitter, last, waiting, over: false }
    }

    /// The body that a client reads.
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
            match self.look() {
                _ if self.over && self.waiting.is_empty() => return None,
                WatchState::Closed { abrupt: true } => {
                    self.over = true;
                    self.waiting.clear();
                    return Some(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                WatchState::Closed { abrupt: false } => return None,
                WatchState::Silent => {
                    // What the other server sends meanwhile waits in the socket.
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

    /// What faults say now; what they add waits behind what came before it.
    fn look(&mut self) -> WatchState {
        let (kind, from) = (self.kind, usize::try_from(self.added).unwrap_or(usize::MAX));
        let (seen, added) = self.shared.look(|state| {
            let (closed, abrupt) = state.faults.closed;
            let seen = match () {
                () if closed != self.closed => WatchState::Closed { abrupt },
                () if state.faults.silent(kind) => WatchState::Silent,
                () => WatchState::Open,
            };
            let added = state.faults.added.get(from..).unwrap_or_default();
            (seen, added.to_vec())
        });
        self.added += added.len() as u64;
        for (_, what) in added.into_iter().filter(|(of, _)| *of == kind) {
            match what {
                AddedEvent::Repeat => self.waiting.extend(self.last.clone()),
                AddedEvent::Bookmark(version) if self.bookmarks && self.splitter.form == WatchFraming::Lines => {
                    self.waiting.push_back(bookmark(kind, version));
                }
                AddedEvent::Bookmark(_) => {}
            }
        }
        seen
    }
}

fn bookmark(kind: ObjectKind, version: u64) -> Bytes {
    let (name, api) = (kind.name(), kind.api_version());
    let metadata = format!(r#"{{"resourceVersion":"{version}","creationTimestamp":null}}"#);
    let object = format!(r#"{{"kind":"{name}","apiVersion":"{api}","metadata":{metadata}}}"#);
    format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").into()
}
