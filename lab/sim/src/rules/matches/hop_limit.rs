//! `ttl` and `hl` (net/netfilter/xt_hl.c).

use std::cmp::Ordering;
use std::fmt;

use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;
use crate::protocol::Family;

/// `-m ttl` or `-m hl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopLimit {
    /// IPv4: `ttl`; IPv6: `hl`.
    pub family: Family,
    /// Inverted by `!`; only `--ttl-eq` can be.
    pub not: bool,
    /// How the packet's value must compare with `value`.
    pub is: Ordering,
    /// The value.
    pub value: u8,
}

fn spelling(family: Family) -> [(&'static str, Ordering); 3] {
    match family {
        Family::V4 => [("--ttl-eq", Ordering::Equal), ("--ttl-lt", Ordering::Less), ("--ttl-gt", Ordering::Greater)],
        Family::V6 => [("--hl-eq", Ordering::Equal), ("--hl-lt", Ordering::Less), ("--hl-gt", Ordering::Greater)],
    }
}

impl HopLimit {
    pub(crate) fn read(name: &str, words: &mut OptionReader<'_>) -> ParseResult<HopLimit> {
        let family = if name == "ttl" { Family::V4 } else { Family::V6 };
        let names = spelling(family);
        // Old names of `--ttl-eq` and `--hl-eq`.
        let old = |word: &str| word.strip_prefix("--") == Some(name);
        let found = words.option(|word| old(word) || names.iter().any(|(known, _)| *known == word));
        let option = found.ok_or(Problem::Missing { of: format!("match {name}"), what: "a comparison" })?;
        let is = crate::names::value(&names, option).unwrap_or(Ordering::Equal);
        let test = words.test("a number up to 255", |text| text.parse().ok())?;
        Ok(HopLimit { family, not: test.not, is, value: test.is })
    }

    pub(crate) fn name(&self) -> &'static str {
        if self.family == Family::V4 { "ttl" } else { "hl" }
    }

    pub(crate) fn holds(&self, hop_limit: u8) -> bool {
        (hop_limit.cmp(&self.value) == self.is) != self.not
    }
}

impl fmt::Display for HopLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = spelling(self.family);
        write!(f, "{} {} {}", if self.not { " !" } else { "" }, crate::names::name(&names, &self.is), self.value)
    }
}
