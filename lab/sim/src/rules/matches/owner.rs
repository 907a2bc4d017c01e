//! `owner` (net/netfilter/xt_owner.c).

use std::fmt;

use super::super::Test;
use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;

/// User or group IDs.
pub type IdRange = (u32, u32);

/// `-m owner`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Owner {
    /// `--socket-exists`.
    pub socket_exists: Option<Test<()>>,
    pub user: Option<Test<IdRange>>,
    pub group: Option<Test<IdRange>>,
    /// Also compares supplementary groups.
    pub supplementary: bool,
}

fn ids(text: &str) -> Option<IdRange> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range: IdRange = (first.parse().ok()?, last.parse().ok()?);
    (range.0 <= range.1).then_some(range)
}

impl Owner {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Owner> {
        let mut this = Owner::default();
        let known = |word: &str| matches!(word, "--socket-exists" | "--uid-owner" | "--gid-owner" | "--suppl-groups");
        while let Some(option) = words.option(known) {
            match option {
                "--socket-exists" => this.socket_exists = Some(Test { not: words.negated(), is: () }),
                "--uid-owner" => this.user = Some(words.test("a user's number, or first-last", ids)?),
                "--gid-owner" => this.group = Some(words.test("a group's number, or first-last", ids)?),
                _ => {
                    words.plain()?;
                    this.supplementary = true;
                }
            }
        }
        if this == Owner::default() {
            return Err(Problem::Missing { of: "match owner".to_owned(), what: "an option" });
        }
        Ok(this)
    }

    /// Whether packets without socket match: all conditions are inverted (`match ^ invert`).
    pub(crate) fn holds_without_socket(&self) -> bool {
        let inverted = |test: &Option<Test<IdRange>>| test.is_none_or(|test| test.not);
        !self.supplementary
            && self.socket_exists.is_none_or(|test| test.not)
            && inverted(&self.user)
            && inverted(&self.group)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(test) = self.socket_exists {
            write!(f, "{} --socket-exists", test.negation())?;
        }
        for (test, option) in [(&self.user, "--uid-owner"), (&self.group, "--gid-owner")] {
            let Some(Test { is: (first, last), .. }) = test else { continue };
            write!(f, "{} {option} {first}", test.map_or("", |test| test.negation()))?;
            if first != last {
                write!(f, "-{last}")?;
            }
        }
        f.write_str(if self.supplementary { " --suppl-groups" } else { "" })
    }
}
