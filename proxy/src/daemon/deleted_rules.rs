//! Limits log lines about rules that another program deletes: two lines, then a count per minute.

use std::time::Duration;

use tokio::time::Instant;

/// After this time without a deletion, the next one counts as the first. Also the interval between count lines.
const A_WHILE: Duration = Duration::from_secs(60);

/// How to log a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeletionLine {
    First,
    Again,
    /// Log the number of deletions since the last line.
    Count(u32),
    None,
}

#[derive(Debug, Default)]
pub(super) struct DeletedRules {
    last: Option<Instant>,
    said: Option<Instant>,
    in_a_row: u32,
    unsaid: u32,
}

impl DeletedRules {
    /// Whether deletions repeat, so that only a count is logged.
    pub(super) fn repeat(&self, now: Instant) -> bool {
        self.in_a_row > 1 && self.last.is_some_and(|last| now - last < A_WHILE)
    }

    /// Records a deletion.
    pub(super) fn found(&mut self, now: Instant) -> DeletionLine {
        if self.last.is_none_or(|last| now - last >= A_WHILE) {
            *self = DeletedRules::default();
        }
        self.last = Some(now);
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.unsaid = self.unsaid.saturating_add(1);
        let line = match self.in_a_row {
            1 => DeletionLine::First,
            2 => DeletionLine::Again,
            _ if self.said.is_some_and(|said| now - said >= A_WHILE) => DeletionLine::Count(self.unsaid),
            _ => DeletionLine::None,
        };
        if line != DeletionLine::None {
            (self.said, self.unsaid) = (Some(now), 0);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_losses_is_two_lines_and_a_count_each_minute() {
        let start = Instant::now();
        let mut deleted_rules = DeletedRules::default();
        let lines = (0..1200).map(|n| deleted_rules.found(start + Duration::from_millis(100) * n)).collect::<Vec<_>>();
        let said: Vec<_> = lines.into_iter().filter(|line| *line != DeletionLine::None).collect();
        assert_eq!(said, [DeletionLine::First, DeletionLine::Again, DeletionLine::Count(600)]);
        assert_eq!(deleted_rules.found(start + Duration::from_secs(300)), DeletionLine::First);
    }
}
