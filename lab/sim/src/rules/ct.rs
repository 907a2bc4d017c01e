//! The target `CT`, which sets a connection's zone (net/netfilter/xt_CT.c).

use std::fmt;

use super::error::{ParseResult, Problem};
use super::options::{self, TextOption};
use super::tokens::OptionReader;
use crate::names;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ZoneId {
    Number(u16),
    /// The packet's mark.
    Mark,
}

/// The directions that use the zone; the other direction uses zone 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneOf {
    /// `--zone`.
    Both,
    /// `--zone-orig`.
    Original,
    /// `--zone-reply`.
    Reply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Zone {
    pub id: ZoneId,
    pub of: ZoneOf,
}

/// `CT` without helpers, timeouts and events, which affect no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Ct {
    /// `None`: zone 0.
    pub zone: Option<Zone>,
    pub options: Vec<TextOption>,
}

const OPTIONS: [(&str, bool); 4] =
    [("--helper", true), ("--timeout", true), ("--ctevents", true), ("--expevents", true)];

const ZONES: [(&str, ZoneOf); 3] =
    [("--zone", ZoneOf::Both), ("--zone-orig", ZoneOf::Original), ("--zone-reply", ZoneOf::Reply)];

fn id(text: &str) -> Option<ZoneId> {
    if text == "mark" { Some(ZoneId::Mark) } else { text.parse().ok().map(ZoneId::Number) }
}

impl Ct {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Ct> {
        let mut this = Ct { zone: None, options: Vec::new() };
        let of = |word: &str| names::value(&ZONES, word);
        loop {
            this.options.extend(options::read(words, &OPTIONS)?);
            let Some(of) = words.option(|word| of(word).is_some()).and_then(of) else { break };
            words.plain()?;
            this.zone = Some(Zone { id: words.parse("a zone's number, or mark", id)?, of });
        }
        if this.options.iter().any(|option| option.not) {
            return Err(Problem::Impossible("options of CT cannot be inverted by !".to_owned()));
        }
        Ok(this)
    }
}

impl fmt::Display for Ct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        options::print(&self.options, f)?;
        let Some(zone) = self.zone else { return Ok(()) };
        let option = names::name(&ZONES, &zone.of);
        match zone.id {
            ZoneId::Number(number) => write!(f, " {option} {number}"),
            ZoneId::Mark => write!(f, " {option} mark"),
        }
    }
}
