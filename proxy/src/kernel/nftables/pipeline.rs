//! Sends a batch while the next one is encoded.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Builder};

use nf_tables::Batch;

use super::{NftTableError, error};

const AT_A_TIME: usize = 2;

/// Calls `write` with a function that takes a batch to send and replaces it by an empty one. Another thread sends the
/// batches in order; it stops after a refusal.
pub(super) fn with(
    mut send: impl FnMut(&Batch) -> Result<(), NftTableError> + Send,
    write: impl FnOnce(&mut dyn FnMut(&mut Batch) -> Result<(), NftTableError>) -> Result<(), NftTableError>,
) -> Result<(), NftTableError> {
    let (full, to_send) = channel::<Batch>();
    let (sent, empty) = channel::<Batch>();
    for _ in 1..AT_A_TIME {
        let _ = sent.send(Batch::new());
    }
    thread::scope(|scope| {
        let sending =
            Builder::new().name("batches".to_owned()).spawn_scoped(scope, move || -> Result<(), NftTableError> {
                for batch in to_send {
                    send(&batch)?;
                    // Nothing receives the last batch.
                    let _ = sent.send(batch);
                }
                Ok(())
            });
        let sending = sending.map_err(|source| error("start a thread for the tables", source))?;
        let written = write(&mut |batch| exchange(batch, &full, &empty));
        drop(full);
        let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // The refusal explains the failed write.
        sent.and(written)
    })
}

fn exchange(batch: &mut Batch, full: &Sender<Batch>, empty: &Receiver<Batch>) -> Result<(), NftTableError> {
    let ended = |_| error("change the table", "a part of it was not taken");
    let mut next = empty.recv().map_err(|_| ()).map_err(ended)?;
    next.clear();
    full.send(std::mem::replace(batch, next)).map_err(|_| ()).map_err(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(name: &str) -> Batch {
        let mut batch = Batch::new();
        batch.add_table(nf_tables::Table::new(nf_tables::Family::Ipv4, name)).unwrap();
        batch
    }

    #[test]
    fn batches_are_sent_in_order() {
        let mut seen = Vec::new();
        let result = with(
            |batch| {
                seen.push(batch.len());
                Ok(())
            },
            |send| (1..20).try_for_each(|length| send(&mut batch(&"x".repeat(4 * length)))),
        );
        assert!(result.is_ok());
        assert!(seen.len() == 19 && seen.is_sorted(), "{seen:?}");
    }

    #[test]
    fn after_one_that_is_refused_none_is_sent() {
        let mut seen = 0;
        let result = with(
            |_| {
                seen += 1;
                if seen == 2 { Err(error("change the table", "refused")) } else { Ok(()) }
            },
            |send| (0..20).try_for_each(|_| send(&mut batch("x"))),
        );
        assert_eq!(result.unwrap_err().reason, "refused");
        assert_eq!(seen, 2);
    }
}
