use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::model::Batch;

/// Pieces of the first lists that wait for families: decoded objects are several times as large as the state made of them.
const WAITING: usize = 4;
/// A family that hangs does not delay the others for longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Keeps the source from being faster than the families before their first sync.
pub(super) struct FirstPieces {
    room: Arc<Semaphore>,
    until: Instant,
}

impl FirstPieces {
    pub(super) fn new() -> FirstPieces {
        FirstPieces { room: Arc::new(Semaphore::new(WAITING)), until: Instant::now() + PATIENCE }
    }

    /// Waits until the source may be asked. The place is free again when every family has dropped it. Cancel-safe.
    pub(super) async fn place(&self) -> Option<Arc<OwnedSemaphorePermit>> {
        let place = timeout_at(self.until, Arc::clone(&self.room).acquire_owned()).await;
        place.ok()?.ok().map(Arc::new)
    }

    pub(super) fn saw(&mut self, batch: &Batch) {
        if !batch.partial {
            self.room.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pieces_wait_for_families_but_not_for_ever() {
        let mut pieces = FirstPieces::new();
        let mut held: Vec<_> = (0..WAITING).map(|_| pieces.place().now_or_never().flatten()).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(pieces.place().now_or_never().is_none(), "all places are taken");
        held.pop();
        held.push(pieces.place().now_or_never().flatten());
        pieces.saw(&Batch { partial: true, ..Batch::default() });
        assert!(pieces.place().now_or_never().is_none(), "a partial batch ends nothing");
        assert!(pieces.place().await.is_none(), "the wait is bounded");
        pieces.saw(&Batch::default());
        assert!(pieces.place().now_or_never().is_some_and(|place| place.is_none()), "later batches need no place");
    }
}
