//! Log lines about objects, bounded: an API client that writes a broken object a thousand times a second must not fill the
//! disks of all nodes.

use std::time::{Duration, Instant};

/// Lines in a period.
const LINES: u32 = 60;
const PERIOD: Duration = Duration::from_secs(60);

/// How many lines may still be written.
#[derive(Debug)]
pub(super) struct Quiet {
    since: Instant,
    lines: u32,
    suppressed: u64,
}

/// What to do with a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Write it; first say that so many were left out, if any.
    Write {
        /// Lines that were not written in the period before.
        suppressed: u64,
    },
    /// Write that no more are written for now, once.
    Last,
    /// Leave it out.
    Suppress,
}

impl Quiet {
    pub(super) fn new(now: Instant) -> Quiet {
        Quiet { since: now, lines: 0, suppressed: 0 }
    }

    /// Whether another line may be written.
    pub(super) fn line(&mut self, now: Instant) -> Line {
        if now.duration_since(self.since) >= PERIOD {
            let suppressed = std::mem::take(&mut self.suppressed);
            (self.since, self.lines) = (now, 1);
            return Line::Write { suppressed };
        }
        self.lines = self.lines.saturating_add(1);
        match self.lines.cmp(&(LINES + 1)) {
            std::cmp::Ordering::Less => Line::Write { suppressed: 0 },
            std::cmp::Ordering::Equal => {
                self.suppressed += 1;
                Line::Last
            }
            std::cmp::Ordering::Greater => {
                self.suppressed += 1;
                Line::Suppress
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_minutes_lines_and_a_count() {
        let start = Instant::now();
        let mut quiet = Quiet::new(start);
        let lines: Vec<Line> = (0..1000).map(|_| quiet.line(start)).collect();
        assert_eq!(lines.iter().filter(|line| **line == Line::Write { suppressed: 0 }).count(), 60);
        assert_eq!((&lines[60], &lines[61], &lines[999]), (&Line::Last, &Line::Suppress, &Line::Suppress));
        assert_eq!(quiet.line(start + PERIOD), Line::Write { suppressed: 940 });
        assert_eq!(quiet.line(start + PERIOD), Line::Write { suppressed: 0 });
    }
}
