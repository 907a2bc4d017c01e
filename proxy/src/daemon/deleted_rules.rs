//! Limits log lines about rules that another program deletes: two lines, then a count per minute.

use std::time::Duration;

use tokio::time::Instant;

/// A deletion counts as the first if none preceded it for this long. Also the interval of counts.
const PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeletionLine {
    First,
    Again,
    Count(u32),
    None,
}

#[derive(Debug, Default)]
pub(super) struct DeletedRules {
    last: Option<Instant>,
    logged: Option<Instant>,
    in_a_row: u32,
    unlogged: u32,
}

impl DeletedRules {
    pub(super) fn repeat(&self, now: Instant) -> bool {
        self.in_a_row > 1 && self.last.is_some_and(|last| now - last < PERIOD)
    }

    pub(super) fn record(&mut self, now: Instant) -> DeletionLine {
        if self.last.is_none_or(|last| now - last >= PERIOD) {
            *self = DeletedRules::default();
        }
        self.last = Some(now);
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.unlogged = self.unlogged.saturating_add(1);
        let line = match self.in_a_row {
            1 => DeletionLine::First,
            2 => DeletionLine::Again,
            _ if self.logged.is_some_and(|logged| now - logged >= PERIOD) => DeletionLine::Count(self.unlogged),
            _ => DeletionLine::None,
        };
        if line != DeletionLine::None {
            (self.logged, self.unlogged) = (Some(now), 0);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_deletions_are_two_lines_and_a_count_per_minute() {
        let start = Instant::now();
        let mut deleted_rules = DeletedRules::default();
        let lines = (0..1200).map(|n| deleted_rules.record(start + Duration::from_millis(100) * n)).collect::<Vec<_>>();
        let logged: Vec<_> = lines.into_iter().filter(|line| *line != DeletionLine::None).collect();
        assert_eq!(logged, [DeletionLine::First, DeletionLine::Again, DeletionLine::Count(600)]);
        assert_eq!(deleted_rules.record(start + Duration::from_secs(300)), DeletionLine::First);
    }
}
