//! The targets `TTL` and `HL` (net/netfilter/xt_HL.c).

use std::fmt;

use super::error::{ParseResult, Problem};
use super::tokens::OptionReader;
use crate::protocol::Family;

/// `TTL` or `HL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopLimitChange {
    /// IPv4: `TTL`; IPv6: `HL`.
    pub family: Family,
    /// The operation.
    pub operation: HopLimitOperation,
    /// The operand.
    pub value: u8,
}

/// The operation of `TTL` or `HL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum HopLimitOperation {
    Set,
    Decrease,
    Increase,
}

fn spelling(family: Family) -> [(&'static str, HopLimitOperation); 3] {
    use HopLimitOperation::{Decrease, Increase, Set};
    match family {
        Family::V4 => [("--ttl-set", Set), ("--ttl-dec", Decrease), ("--ttl-inc", Increase)],
        Family::V6 => [("--hl-set", Set), ("--hl-dec", Decrease), ("--hl-inc", Increase)],
    }
}

impl HopLimitChange {
    pub(super) fn read(name: &str, words: &mut OptionReader<'_>) -> ParseResult<HopLimitChange> {
        let family = if name == "TTL" { Family::V4 } else { Family::V6 };
        let names = spelling(family);
        let found = words.option(|word| names.iter().any(|(known, _)| *known == word));
        let operation = found.and_then(|option| crate::names::value(&names, option));
        let operation = operation.ok_or(Problem::Missing { of: name.to_owned(), what: "an operation" })?;
        words.plain()?;
        Ok(HopLimitChange { family, operation, value: words.parse("a number up to 255", |text| text.parse().ok())? })
    }

    /// Changes a known hop limit. `None`: the unknown one of the sender, which is assumed to be large enough.
    pub(crate) fn apply(self, hop_limit: Option<u8>) -> Option<u8> {
        match self.operation {
            HopLimitOperation::Set => Some(self.value),
            HopLimitOperation::Decrease => hop_limit.map(|limit| limit.saturating_sub(self.value)),
            HopLimitOperation::Increase => hop_limit.map(|limit| limit.saturating_add(self.value)),
        }
    }
}

impl fmt::Display for HopLimitChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = if self.family == Family::V4 { "TTL" } else { "HL" };
        let names = spelling(self.family);
        write!(f, "{target} {} {}", crate::names::name(&names, &self.operation), self.value)
    }
}
