use crate::events::{Event, EventSubject, Recorder};
use crate::model::Family;

/// Failures in a row before an Event: three seconds, longer than a collision with another program.
const IN_A_ROW: u32 = 5;

#[derive(Debug)]
pub(super) struct SyncFailures {
    family: Family,
    in_a_row: u32,
}

impl SyncFailures {
    pub(super) fn new(family: Family) -> SyncFailures {
        SyncFailures { family, in_a_row: 0 }
    }

    pub(super) fn failed(&mut self, error: &str, events: &Recorder) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row == IN_A_ROW {
            let (family, count) = (self.family, self.in_a_row);
            events.record(Event::warning(
                EventSubject::Node,
                "FailedToSyncProxyRules",
                "SyncProxyRules",
                format!("the {family} rules could not be written {count} times in a row: {error}"),
            ));
        }
    }

    pub(super) fn forget(&mut self) {
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_failures_are_reported_once() {
        let (recorder, mut events) = Recorder::new();
        let mut failures = SyncFailures::new(Family::V4);
        let mut fail = |failures: &mut SyncFailures, times: u32| {
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
