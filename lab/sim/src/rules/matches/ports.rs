//! `tcp`, `udp`, `sctp` and `multiport` (net/netfilter/xt_tcpudp.c, xt_sctp.c, xt_multiport.c).

use std::fmt;

use super::super::Test;
use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;
use crate::names;
use crate::protocol::Protocol;

/// An inclusive range of ports or sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct NumberRange {
    pub first: u16,
    pub last: u16,
}

impl NumberRange {
    /// Parses `80`, `80:90`, `:90`, `80:`.
    #[must_use]
    pub fn parse(text: &str) -> Option<NumberRange> {
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        let open = text.contains(':');
        let end = |text: &str, limit: u16| if open && text.is_empty() { Some(limit) } else { text.parse().ok() };
        let range = NumberRange { first: end(first, 0)?, last: end(last, u16::MAX)? };
        (range.first <= range.last).then_some(range)
    }

    /// Whether the range contains `number`.
    #[must_use]
    pub fn contains(&self, number: u16) -> bool {
        (self.first..=self.last).contains(&number)
    }

    /// Whether the range contains all of `possible`; `None` for only some.
    pub(crate) fn contains_all(self, possible: NumberRange) -> Option<bool> {
        if self.contains(possible.first) && self.contains(possible.last) {
            Some(true)
        } else if self.last < possible.first || possible.last < self.first {
            Some(false)
        } else {
            None
        }
    }
}

impl fmt::Display for NumberRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}:{}", self.first, self.last) }
    }
}

/// Matches if exactly the flags `set` among `mask` are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TcpFlagsTest {
    pub mask: u8,
    pub set: u8,
}

/// In the order of iptables-save.
const FLAGS: [(&str, u8); 6] =
    [("FIN", 0x01), ("SYN", 0x02), ("RST", 0x04), ("PSH", 0x08), ("ACK", 0x10), ("URG", 0x20)];

fn flags(text: &str) -> Option<u8> {
    match text {
        "NONE" => Some(0),
        "ALL" => Some(0x3f),
        _ => names::parse_flags(&FLAGS, text),
    }
}

fn print_flags(bits: u8) -> String {
    if bits == 0 { "NONE".to_owned() } else { names::flags(&FLAGS, bits) }
}

/// The match `tcp`, `udp` or `sctp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMatch {
    /// Equal to the rule's `-p`.
    pub protocol: Protocol,
    /// `--sport`.
    pub source: Option<Test<NumberRange>>,
    /// `--dport`.
    pub destination: Option<Test<NumberRange>>,
    /// `--tcp-flags`, `--syn`.
    pub flags: Option<Test<TcpFlagsTest>>,
}

impl PortMatch {
    pub(crate) fn read(words: &mut OptionReader<'_>, protocol: Protocol) -> ParseResult<PortMatch> {
        let mut this = PortMatch { protocol, source: None, destination: None, flags: None };
        let tcp = protocol == Protocol::TCP;
        let known = |word: &str| match word {
            "--sport" | "--source-port" | "--dport" | "--destination-port" => true,
            "--tcp-flags" | "--syn" => tcp,
            _ => false,
        };
        while let Some(option) = words.option(known) {
            match option {
                "--sport" | "--source-port" => this.source = Some(words.test("a port or range", NumberRange::parse)?),
                "--dport" | "--destination-port" => {
                    this.destination = Some(words.test("a port or range", NumberRange::parse)?);
                }
                "--syn" => {
                    this.flags = Some(Test { not: words.negated(), is: TcpFlagsTest { mask: 0x17, set: 0x02 } });
                }
                _ => {
                    let mask = words.test("flags", flags)?;
                    let set = words.parse("flags", flags)?;
                    this.flags = Some(Test { not: mask.not, is: TcpFlagsTest { mask: mask.is, set } });
                }
            }
        }
        Ok(this)
    }
}

impl fmt::Display for PortMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (test, option) in [(&self.source, "--sport"), (&self.destination, "--dport")] {
            if let Some(test) = test {
                write!(f, "{} {option} {}", test.negation(), test.is)?;
            }
        }
        match &self.flags {
            Some(test) => {
                let (mask, set) = (print_flags(test.is.mask), print_flags(test.is.set));
                write!(f, "{} --tcp-flags {mask} {set}", test.negation())
            }
            None => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum MultiportSide {
    Source,
    Destination,
    Either,
}

/// `-m multiport`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Multiport {
    pub side: MultiportSide,
    pub ports: Test<Vec<NumberRange>>,
}

impl Multiport {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Multiport> {
        let side = |word: &str| match word {
            "--sports" | "--source-ports" => Some(MultiportSide::Source),
            "--dports" | "--destination-ports" => Some(MultiportSide::Destination),
            "--ports" => Some(MultiportSide::Either),
            _ => None,
        };
        let option = words.option(|word| side(word).is_some()).and_then(side);
        let side = option.ok_or(Problem::Missing { of: "match multiport".to_owned(), what: "a list of ports" })?;
        let list = |text: &str| text.split(',').map(NumberRange::parse).collect::<Option<Vec<_>>>();
        Ok(Multiport { side, ports: words.test("ports and ranges, separated by commas", list)? })
    }
}

impl fmt::Display for Multiport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = match self.side {
            MultiportSide::Source => "--sports",
            MultiportSide::Destination => "--dports",
            MultiportSide::Either => "--ports",
        };
        let ports: Vec<String> = self.ports.is.iter().map(ToString::to_string).collect();
        write!(f, "{} {option} {}", self.ports.negation(), ports.join(","))
    }
}
