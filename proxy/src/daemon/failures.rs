//! Syncs that fail again and again, for the operator to see.

use crate::events::{About, Event, EventType, Recorder};
use crate::model::Family;

/// So many failures in a row are no accident, such as another program at the same tables: with the waits between them
/// they take about three seconds.
const IN_A_ROW: u32 = 5;

/// A family's failures in a row.
#[derive(Debug)]
pub(super) struct Failures {
    family: Family,
    in_a_row: u32,
}

impl Failures {
    /// None yet.
    pub(super) fn new(family: Family) -> Failures {
        Failures { family, in_a_row: 0 }
    }

    /// A sync has failed.
    pub(super) fn failed(&mut self, error: &str, events: &Recorder) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row == IN_A_ROW {
            let (family, count) = (self.family, self.in_a_row);
            events.record(Event {
                kind: EventType::Warning,
                about: About::Node,
                reason: "FailedToSyncProxyRules",
                action: "SyncProxyRules",
                note: format!("the {family} rules could not be written {count} times in a row: {error}"),
            });
        }
    }

    /// A sync has succeeded.
    pub(super) fn forget(&mut self) {
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_told_once() {
        let (recorder, mut events) = Recorder::new();
        let mut failures = Failures::new(Family::V4);
        let mut fail = |failures: &mut Failures, times: u32| {
            (0..times).for_each(|_| failures.failed("no", &recorder));
            std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.note).collect::<Vec<_>>()
        };
        assert_eq!(fail(&mut failures, 4), [""; 0]);
        failures.forget();
        assert_eq!(fail(&mut failures, 4), [""; 0]);
        let reported = ["the IPv4 rules could not be written 5 times in a row: no"];
        assert_eq!(fail(&mut failures, 10), reported);
    }
}
