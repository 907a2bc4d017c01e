//! `addrtype` (net/netfilter/xt_addrtype.c).

use std::fmt;

use super::super::Test;
use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;
use crate::names;

/// An address's type in the routing tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum AddressType {
    Unspec,
    Unicast,
    Local,
    Broadcast,
    Anycast,
    Multicast,
    Blackhole,
    Unreachable,
    Prohibit,
}

const NAMES: [(&str, AddressType); 9] = [
    ("UNSPEC", AddressType::Unspec),
    ("UNICAST", AddressType::Unicast),
    ("LOCAL", AddressType::Local),
    ("BROADCAST", AddressType::Broadcast),
    ("ANYCAST", AddressType::Anycast),
    ("MULTICAST", AddressType::Multicast),
    ("BLACKHOLE", AddressType::Blackhole),
    ("UNREACHABLE", AddressType::Unreachable),
    ("PROHIBIT", AddressType::Prohibit),
];

/// Types, any of which matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressTypes(pub Vec<AddressType>);

impl AddressTypes {
    fn parse(text: &str) -> Option<AddressTypes> {
        text.split(',').map(|name| names::value(&NAMES, name)).collect::<Option<Vec<_>>>().map(AddressTypes)
    }
}

impl fmt::Display for AddressTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = NAMES.iter().filter(|(_, kind)| self.0.contains(kind)).map(|(name, _)| *name);
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

/// `-m addrtype`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Addrtype {
    pub source: Option<Test<AddressTypes>>,
    pub destination: Option<Test<AddressTypes>>,
    /// `--limit-iface-in`: only the input interface.
    pub limit_in: bool,
    /// `--limit-iface-out`: only the output interface.
    pub limit_out: bool,
}

impl Addrtype {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Addrtype> {
        let mut this = Addrtype::default();
        let expected = "types of addresses";
        let known = |word: &str| matches!(word, "--src-type" | "--dst-type" | "--limit-iface-in" | "--limit-iface-out");
        while let Some(option) = words.option(known) {
            match option {
                "--src-type" => this.source = Some(words.test(expected, AddressTypes::parse)?),
                "--dst-type" => this.destination = Some(words.test(expected, AddressTypes::parse)?),
                "--limit-iface-in" => {
                    words.plain()?;
                    this.limit_in = true;
                }
                _ => {
                    words.plain()?;
                    this.limit_out = true;
                }
            }
        }
        if this.source.is_none() && this.destination.is_none() {
            return Err(Problem::Missing { of: "match addrtype".to_owned(), what: "--src-type or --dst-type" });
        }
        Ok(this)
    }
}

impl fmt::Display for Addrtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (test, option) in [(&self.source, "--src-type"), (&self.destination, "--dst-type")] {
            if let Some(test) = test {
                write!(f, "{} {option} {}", test.negation(), test.is)?;
            }
        }
        f.write_str(if self.limit_in { " --limit-iface-in" } else { "" })?;
        f.write_str(if self.limit_out { " --limit-iface-out" } else { "" })
    }
}
