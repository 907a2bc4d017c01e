//! Cleans up other modes' objects after the first sync of every family.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::model::Family;
use crate::mutants;

const AGAIN: Duration = Duration::from_secs(10);

/// Returns when to call it again, `None` when done.
pub type LeftoverCleanup = Box<dyn FnMut(std::time::Instant) -> anyhow::Result<Option<std::time::Instant>> + Send>;

/// Calls the cleanup until it is done, or until `ends` is closed.
pub(super) async fn take_away(
    mut leftovers: LeftoverCleanup,
    mut synced: watch::Receiver<Vec<Family>>,
    families: usize,
    mut ends: watch::Receiver<()>,
) {
    tokio::select! {
        all = synced.wait_for(|synced| synced.len() >= families) => if all.is_err() { return },
        _ = ends.changed() => return,
    }
    if mutants::skips(mutants::Duty::CleanupAfterOtherMode) {
        return;
    }
    loop {
        let again = match block_in_place(|| leftovers(std::time::Instant::now())) {
            Ok(Some(again)) => Instant::from_std(again),
            Ok(None) => break info!("cleaned up what another mode left"),
            Err(error) => {
                warn!(%error, "cannot clean up what another mode left; retrying");
                Instant::now() + AGAIN
            }
        };
        // The runtime and its timers may have ended by now.
        if ends.has_changed().is_err() {
            return;
        }
        tokio::select! {
            () = sleep_until(again) => {}
            _ = ends.changed() => return,
        }
    }
}
