//! `rpfilter`: whether the way back to the source is the interface that the packet came by (net/ipv4/netfilter/ipt_rpfilter.c).

use std::fmt;

use super::super::error::ParseResult;
use super::super::tokens::OptionReader;

/// The match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rpfilter {
    /// Any interface will do.
    pub loose: bool,
    /// The packet's mark counts for the routes; there are no routes by mark here.
    pub valid_mark: bool,
    /// A source of this machine's own will do.
    pub accept_local: bool,
    /// Holds for packets that fail.
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
