//! `limit` (net/netfilter/xt_limit.c).

use std::fmt;

use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;

/// `-m limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Limit {
    /// Packets per `seconds`.
    pub times: u32,
    /// The period: 1, 60, 3600 or 86400.
    pub seconds: u32,
    pub burst: u32,
}

/// Short name (printed), long name (also read), seconds.
const UNITS: [(&str, &str, u32); 4] =
    [("sec", "second", 1), ("min", "minute", 60), ("hour", "hour", 3600), ("day", "day", 86_400)];

fn rate(text: &str) -> Option<(u32, u32)> {
    let (times, unit) = text.split_once('/').unwrap_or((text, "s"));
    let times = times.parse().ok().filter(|times| *times > 0)?;
    let unit = UNITS.iter().find(|(_, long, _)| !unit.is_empty() && long.starts_with(unit));
    unit.map(|(_, _, seconds)| (times, *seconds))
}

impl Limit {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Limit> {
        // libxt_limit's defaults.
        let mut this = Limit { times: 3, seconds: 3600, burst: 5 };
        while let Some(option) = words.option(|word| matches!(word, "--limit" | "--limit-burst")) {
            words.plain()?;
            if option == "--limit" {
                (this.times, this.seconds) = words.parse("a rate such as 5/min", rate)?;
            } else {
                this.burst = words.parse("a number", |text| text.parse().ok())?;
            }
        }
        if this.burst == 0 {
            return Err(Problem::Impossible("--limit-burst must be at least 1".to_owned()));
        }
        Ok(this)
    }

    /// Returns a packet's cost in milliseconds of credit.
    #[must_use]
    pub fn cost(&self) -> u64 {
        u64::from(self.seconds) * 1000 / u64::from(self.times.max(1))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, _, seconds)| *seconds == self.seconds).map_or("sec", |(unit, ..)| unit);
        write!(f, " --limit {}/{unit}", self.times)?;
        if self.burst == 5 { Ok(()) } else { write!(f, " --limit-burst {}", self.burst) }
    }
}
