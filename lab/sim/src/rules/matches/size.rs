//! `length` and `tcpmss` (net/netfilter/xt_length.c, xt_tcpmss.c).

use std::fmt;

use super::super::Test;
use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;

/// An inclusive range of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Sizes {
    pub first: u16,
    pub last: u16,
}

impl Sizes {
    /// Parses `100`, `100:200`, `100:`, `:200`.
    fn parse(text: &str) -> Option<Sizes> {
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        let open = text.contains(':');
        let end = |text: &str, limit: u16| if open && text.is_empty() { Some(limit) } else { text.parse().ok() };
        let range = Sizes { first: end(first, 0)?, last: end(last, u16::MAX)? };
        (range.first <= range.last).then_some(range)
    }

    pub(crate) fn read(words: &mut OptionReader<'_>, of: &str, option: &'static str) -> ParseResult<Test<Sizes>> {
        let found = words.option(|word| word == option);
        found.ok_or(Problem::Missing { of: format!("match {of}"), what: option })?;
        words.test("a number, or first:last", Sizes::parse)
    }

    /// `None` if only some sizes are in the range.
    pub(crate) fn holds(self, possible: Sizes) -> Option<bool> {
        if self.first <= possible.first && possible.last <= self.last {
            Some(true)
        } else if self.last < possible.first || possible.last < self.first {
            Some(false)
        } else {
            None
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}:{}", self.first, self.last) }
    }
}
