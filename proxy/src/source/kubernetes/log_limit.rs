//! Limits log lines: a client may write a broken object a thousand times a second.

use std::time::{Duration, Instant};

const LINES: u32 = 60;
const PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct LogLimit {
    since: Instant,
    lines: u32,
    suppressed: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogDecision {
    Write {
        suppressed: u64,
    },
    /// Announce that this line and further ones are suppressed.
    Last,
    Suppress,
}

impl LogLimit {
    pub(super) fn new(now: Instant) -> LogLimit {
        LogLimit { since: now, lines: 0, suppressed: 0 }
    }

    pub(super) fn line(&mut self, now: Instant) -> LogDecision {
        if now.duration_since(self.since) >= PERIOD {
            let suppressed = std::mem::take(&mut self.suppressed);
            (self.since, self.lines) = (now, 1);
            return LogDecision::Write { suppressed };
        }
        self.lines = self.lines.saturating_add(1);
        match self.lines.cmp(&(LINES + 1)) {
            std::cmp::Ordering::Less => LogDecision::Write { suppressed: 0 },
            std::cmp::Ordering::Equal => {
                self.suppressed += 1;
                LogDecision::Last
            }
            std::cmp::Ordering::Greater => {
                self.suppressed += 1;
                LogDecision::Suppress
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_limited_and_counted() {
        let start = Instant::now();
        let mut log_limit = LogLimit::new(start);
        let lines: Vec<LogDecision> = (0..1000).map(|_| log_limit.line(start)).collect();
        assert_eq!(lines.iter().filter(|line| **line == LogDecision::Write { suppressed: 0 }).count(), 60);
        assert_eq!(
            (&lines[60], &lines[61], &lines[999]),
            (&LogDecision::Last, &LogDecision::Suppress, &LogDecision::Suppress)
        );
        assert_eq!(log_limit.line(start + PERIOD), LogDecision::Write { suppressed: 940 });
        assert_eq!(log_limit.line(start + PERIOD), LogDecision::Write { suppressed: 0 });
    }
}
