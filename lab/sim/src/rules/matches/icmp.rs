//! `icmp` and `icmp6` (net/ipv4/netfilter/ip_tables.c, net/ipv6/netfilter/ip6_tables.c).

use std::fmt;

use super::super::Test;
use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;
use crate::protocol::Family;

/// `-m icmp` or `-m icmp6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Icmp {
    pub family: Family,
    /// Type and code; `None`: any.
    pub kind: Test<Option<(u8, Option<u8>)>>,
}

fn kind(text: &str) -> Option<Option<(u8, Option<u8>)>> {
    if text == "any" {
        return Some(None);
    }
    match text.split_once('/') {
        Some((kind, code)) => Some(Some((kind.parse().ok()?, Some(code.parse().ok()?)))),
        None => Some(Some((text.parse().ok()?, None))),
    }
}

impl Icmp {
    pub(crate) fn read(words: &mut OptionReader<'_>, family: Family) -> ParseResult<Icmp> {
        let option = if family == Family::V4 { "--icmp-type" } else { "--icmpv6-type" };
        let found = words.option(|word| word == option);
        found.ok_or(Problem::Missing { of: "match icmp".to_owned(), what: "a type" })?;
        Ok(Icmp { family, kind: words.test("a type as a number, type/code, or any", kind)? })
    }
}

impl fmt::Display for Icmp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = if self.family == Family::V4 { "--icmp-type" } else { "--icmpv6-type" };
        write!(f, "{} {option} ", self.kind.negation())?;
        match self.kind.is {
            None => f.write_str("any"),
            Some((kind, None)) => write!(f, "{kind}"),
            Some((kind, Some(code))) => write!(f, "{kind}/{code}"),
        }
    }
}
