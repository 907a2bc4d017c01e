//! `set` (net/netfilter/xt_set.c).

use std::fmt;

use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Side {
    Source,
    Destination,
}

/// `-m set`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SetMatch {
    /// Inverted by `!`.
    pub not: bool,
    pub set: String,
    /// One side per part of an element.
    pub sides: Vec<Side>,
    /// `--return-nomatch`: matches only elements with `nomatch`.
    pub return_nomatch: bool,
    /// `! --update-counters`; without effect on verdicts.
    pub no_update_counters: bool,
}

fn sides(text: &str) -> Option<Vec<Side>> {
    let one = |word| match word {
        "src" => Some(Side::Source),
        "dst" => Some(Side::Destination),
        _ => None,
    };
    let all: Vec<Side> = text.split(',').map(one).collect::<Option<_>>()?;
    // IPSET_DIM_MAX is 6.
    (all.len() <= 6).then_some(all)
}

impl SetMatch {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<SetMatch> {
        let found = words.option(|word| matches!(word, "--match-set" | "--set"));
        found.ok_or(Problem::Missing { of: "match set".to_owned(), what: "--match-set" })?;
        let set = words.value()?.to_owned();
        let not = words.negated();
        let sides = words.parse("src and dst, separated by commas", sides)?;
        let mut this = SetMatch { not, set, sides, return_nomatch: false, no_update_counters: false };
        while let Some(option) = words.option(|word| matches!(word, "--return-nomatch" | "--update-counters")) {
            match option {
                "--return-nomatch" => {
                    words.plain()?;
                    this.return_nomatch = true;
                }
                _ => this.no_update_counters = words.negated(),
            }
        }
        Ok(this)
    }
}

impl fmt::Display for SetMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides = self.sides.iter().map(|side| if *side == Side::Source { "src" } else { "dst" });
        let sides = sides.collect::<Vec<_>>().join(",");
        write!(f, "{} --match-set {} {sides}", if self.not { " !" } else { "" }, self.set)?;
        f.write_str(if self.return_nomatch { " --return-nomatch" } else { "" })?;
        f.write_str(if self.no_update_counters { " ! --update-counters" } else { "" })
    }
}
