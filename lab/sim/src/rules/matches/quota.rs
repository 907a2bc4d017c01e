//! `hashlimit` and `connlimit` (net/netfilter/xt_hashlimit.c, xt_connlimit.c).

use std::fmt;

use super::super::error::{ParseResult, Problem};
use super::super::options::{self, TextOption};
use super::super::tokens::OptionReader;
use crate::protocol::Family;

/// `-m hashlimit`, judged for the first packet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Hashlimit {
    /// Matches above the limit, not within.
    pub above: bool,
    /// `10/sec`, `512kb/s`.
    pub rate: String,
    pub options: Vec<TextOption>,
}

const OPTIONS: [(&str, bool); 9] = [
    ("--hashlimit-burst", true),
    ("--hashlimit-mode", true),
    ("--hashlimit-name", true),
    ("--hashlimit-srcmask", true),
    ("--hashlimit-dstmask", true),
    ("--hashlimit-htable-size", true),
    ("--hashlimit-htable-max", true),
    ("--hashlimit-htable-expire", true),
    ("--hashlimit-htable-gcinterval", true),
];

impl Hashlimit {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Hashlimit> {
        let of = || "match hashlimit".to_owned();
        let (mut limit, mut all) = (None, Vec::new());
        loop {
            all.extend(options::read(words, &OPTIONS)?);
            let known = |word: &str| matches!(word, "--hashlimit" | "--hashlimit-upto" | "--hashlimit-above");
            let Some(option) = words.option(known) else { break };
            let digit = |text: &str| text.starts_with(|letter: char| letter.is_ascii_digit()).then(|| text.to_owned());
            let rate = words.test("a rate such as 5/min or 512kb/s", digit)?;
            limit = Some(((option == "--hashlimit-above") != rate.not, rate.is));
        }
        if all.iter().any(|option| option.not) {
            return Err(Problem::Impossible("only the rate of hashlimit can be inverted by !".to_owned()));
        }
        if !all.iter().any(|option| option.name == "--hashlimit-name") {
            return Err(Problem::Missing { of: of(), what: "--hashlimit-name" });
        }
        let (above, rate) =
            limit.ok_or(Problem::Missing { of: of(), what: "--hashlimit-upto or --hashlimit-above" })?;
        Ok(Hashlimit { above, rate, options: all })
    }
}

impl fmt::Display for Hashlimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = if self.above { "--hashlimit-above" } else { "--hashlimit-upto" };
        write!(f, " {option} {}", self.rate)?;
        options::print(&self.options, f)
    }
}

/// `-m connlimit`, judged for a single connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Connlimit {
    /// Matches above the limit, not within.
    pub above: bool,
    pub limit: u32,
    pub mask: u8,
    /// Counts by destination, not source.
    pub destination: bool,
}

impl Connlimit {
    pub(crate) fn read(words: &mut OptionReader<'_>, family: Family) -> ParseResult<Connlimit> {
        let mut limit = None;
        let (mut mask, mut destination) = (family.bits(), false);
        let known = |word: &str| {
            let all = "--connlimit-upto --connlimit-above --connlimit-mask --connlimit-saddr --connlimit-daddr";
            all.split(' ').any(|option| option == word)
        };
        while let Some(option) = words.option(known) {
            match option {
                "--connlimit-upto" | "--connlimit-above" => {
                    let test = words.test("a number of connections", |text| text.parse().ok())?;
                    limit = Some(((option == "--connlimit-above") != test.not, test.is));
                    continue;
                }
                "--connlimit-mask" => {
                    let length = |text: &str| text.parse().ok().filter(|length| *length <= family.bits());
                    mask = words.parse("the length of a prefix", length)?;
                }
                _ => destination = option == "--connlimit-daddr",
            }
            words.plain()?;
        }
        let of = || "match connlimit".to_owned();
        let (above, limit) =
            limit.ok_or(Problem::Missing { of: of(), what: "--connlimit-upto or --connlimit-above" })?;
        Ok(Connlimit { above, limit, mask, destination })
    }

    pub(crate) fn holds_for_one(&self) -> bool {
        (1 > self.limit) == self.above
    }
}

impl fmt::Display for Connlimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = if self.above { "--connlimit-above" } else { "--connlimit-upto" };
        let side = if self.destination { "--connlimit-daddr" } else { "--connlimit-saddr" };
        write!(f, " {option} {} --connlimit-mask {} {side}", self.limit, self.mask)
    }
}
