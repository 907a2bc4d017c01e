//! `rpfilter` (net/ipv4/netfilter/ipt_rpfilter.c).

use std::fmt;

use super::super::error::ParseResult;
use super::super::options;
use super::super::tokens::OptionReader;

/// `-m rpfilter`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rpfilter {
    /// Accepts any interface.
    pub loose: bool,
    /// Uses the mark for routing.
    pub valid_mark: bool,
    /// Accepts own addresses as source.
    pub accept_local: bool,
    /// Matches packets that fail the check.
    pub invert: bool,
}

impl Rpfilter {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Rpfilter> {
        let mut this = Rpfilter::default();
        words.flags(&mut [
            ("--loose", &mut this.loose),
            ("--validmark", &mut this.valid_mark),
            ("--accept-local", &mut this.accept_local),
            ("--invert", &mut this.invert),
        ])?;
        Ok(this)
    }
}

impl fmt::Display for Rpfilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [
            ("--loose", self.loose),
            ("--validmark", self.valid_mark),
            ("--accept-local", self.accept_local),
            ("--invert", self.invert),
        ];
        options::print_flags(f, &flags)
    }
}
