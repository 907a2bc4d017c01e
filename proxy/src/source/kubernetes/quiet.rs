//! Limits log lines about objects: an API client that writes a broken object a thousand times a second must not fill
//! the disks of all nodes.

use std::time::{Duration, Instant};

/// Lines per period.
const LINES: u32 = 60;
const PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Quiet {
    since: Instant,
    lines: u32,
    suppressed: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Write the line, after the number of suppressed lines if that is not 0.
    Write {
        /// Lines suppressed in the period before.
        suppressed: u64,
    },
    /// Write the line, and announce that further ones are suppressed.
    Last,
    Suppress,
}

impl Quiet {
    pub(super) fn new(now: Instant) -> Quiet {
        Quiet { since: now, lines: 0, suppressed: 0 }
    }

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
