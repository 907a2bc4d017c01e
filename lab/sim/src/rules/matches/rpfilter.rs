//! `rpfilter` (net/ipv4/netfilter/ipt_rpfilter.c).

use std::fmt;

use super::super::error::ParseResult;
use super::super::tokens::OptionReader;

/// `-m rpfilter`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rpfilter {
    /// Accepts any interface.
    pub loose: bool,
    /// Routes by the packet's mark.
    pub valid_mark: bool,
    /// Accepts own addresses as source.
    pub accept_local: bool,
    /// Matches packets that fail the test.
    pub invert: bool,
}

impl Rpfilter {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Rpfilter> {
        let mut this = Rpfilter::default();
        let known = |word: &str| matches!(word, "--loose" | "--validmark" | "--accept-local" | "--invert");
        while let Some(option) = words.option(known) {
            words.plain()?;
            match option {
                "--loose" => this.loose = true,
                "--validmark" => this.valid_mark = true,
                "--accept-local" => this.accept_local = true,
                _ => this.invert = true,
            }
        }
        Ok(this)
    }
}

impl fmt::Display for Rpfilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (set, name) in [
            (self.loose, " --loose"),
            (self.valid_mark, " --validmark"),
            (self.accept_local, " --accept-local"),
            (self.invert, " --invert"),
        ] {
            f.write_str(if set { name } else { "" })?;
        }
        Ok(())
    }
}
