//! Syncs that fail again and again, for the operator to see.

use std::collections::BTreeMap;

use crate::events::{About, Event, Recorder};
use crate::model::Family;

/// So many failures in a row are no accident, such as another program at the same tables: with the waits between them
/// they take about three seconds.
const IN_A_ROW: u32 = 5;

/// Failures in a row, by family.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<Family, u32>);

impl Failures {
    /// A sync has failed.
    pub(super) fn failed(&mut self, family: Family, error: &str, events: &Recorder) {
        let count = self.0.entry(family).or_default();
        *count = count.saturating_add(1);
        if *count == IN_A_ROW {
            events.tell(Event {
                about: About::Node,
                reason: "FailedToSyncProxyRules",
                action: "SyncProxyRules",
                note: format!("the {family} rules could not be written {count} times in a row: {error}"),
            });
        }
    }

    /// A sync has succeeded.
    pub(super) fn forget(&mut self, family: Family) {
        self.0.remove(&family);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_told_once() {
        let (recorder, mut events) = Recorder::new();
        let mut failures = Failures::default();
        let mut fail = |failures: &mut Failures, family, times: u32| {
            (0..times).for_each(|_| failures.failed(family, "no", &recorder));
            std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.note).collect::<Vec<_>>()
        };
        assert_eq!(fail(&mut failures, Family::V4, 4), [""; 0]);
        assert_eq!(fail(&mut failures, Family::V6, 4), [""; 0], "each family counts for itself");
        failures.forget(Family::V4);
        assert_eq!(fail(&mut failures, Family::V4, 4), [""; 0]);
        let told = ["the IPv4 rules could not be written 5 times in a row: no"];
        assert_eq!(fail(&mut failures, Family::V4, 10), told);
    }
}
