//! `conntrack` and `state` (net/netfilter/xt_conntrack.c).

use std::fmt;

use super::super::Test;
use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;
use super::ports::NumberRange;
use crate::masked::Masked;
use crate::names;
use crate::protocol::Protocol;

/// Conntrack states as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionStates(pub u8);

impl ConnectionStates {
    /// `INVALID`.
    pub const INVALID: u8 = 1;
    /// `NEW`.
    pub const NEW: u8 = 2;
    /// `RELATED`.
    pub const RELATED: u8 = 4;
    /// `ESTABLISHED`.
    pub const ESTABLISHED: u8 = 8;
    /// `UNTRACKED`.
    pub const UNTRACKED: u8 = 16;
    /// Source NAT.
    pub const SNAT: u8 = 32;
    /// Destination NAT.
    pub const DNAT: u8 = 64;
}

/// In the order of iptables-save.
const STATES: [(&str, u8); 7] = [
    ("INVALID", ConnectionStates::INVALID),
    ("NEW", ConnectionStates::NEW),
    ("RELATED", ConnectionStates::RELATED),
    ("ESTABLISHED", ConnectionStates::ESTABLISHED),
    ("UNTRACKED", ConnectionStates::UNTRACKED),
    ("SNAT", ConnectionStates::SNAT),
    ("DNAT", ConnectionStates::DNAT),
];

/// Connection status bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub u8);

const STATUSES: [(&str, u8); 4] = [
    ("EXPECTED", Status::EXPECTED),
    ("SEEN_REPLY", Status::SEEN_REPLY),
    ("ASSURED", Status::ASSURED),
    ("CONFIRMED", Status::CONFIRMED),
];

impl Status {
    /// Opened through a helper; the simulator never sets it.
    pub const EXPECTED: u8 = 1;
    /// `SEEN_REPLY`.
    pub const SEEN_REPLY: u8 = 2;
    /// `ASSURED`.
    pub const ASSURED: u8 = 4;
    /// `CONFIRMED`.
    pub const CONFIRMED: u8 = 8;
}

fn list(names: &[(&str, u8)], text: &str) -> Option<u8> {
    text.split(',').try_fold(0, |bits, name| {
        names.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, bit)| bits | bit)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum TupleField {
    OriginalSource,
    OriginalDestination,
    ReplySource,
    ReplyDestination,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FieldTest {
    Address(TupleField, Test<Masked>),
    Port(TupleField, Test<NumberRange>),
}

const ADDRESSES: [(&str, TupleField); 4] = [
    ("--ctorigsrc", TupleField::OriginalSource),
    ("--ctorigdst", TupleField::OriginalDestination),
    ("--ctreplsrc", TupleField::ReplySource),
    ("--ctrepldst", TupleField::ReplyDestination),
];
const PORTS: [(&str, TupleField); 4] = [
    ("--ctorigsrcport", TupleField::OriginalSource),
    ("--ctorigdstport", TupleField::OriginalDestination),
    ("--ctreplsrcport", TupleField::ReplySource),
    ("--ctrepldstport", TupleField::ReplyDestination),
];

/// `-m conntrack`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Conntrack {
    pub states: Option<Test<ConnectionStates>>,
    pub protocol: Option<Test<Protocol>>,
    pub fields: Vec<FieldTest>,
    pub status: Option<Test<Status>>,
    /// `--ctdir`; true: ORIGINAL.
    pub original: Option<bool>,
}

impl Conntrack {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Conntrack> {
        let mut this = Conntrack::default();
        let known = |word: &str| {
            matches!(word, "--ctstate" | "--ctproto" | "--ctstatus" | "--ctdir")
                || names::value(&ADDRESSES, word).or(names::value(&PORTS, word)).is_some()
        };
        let mut any = false;
        while let Some(option) = words.option(known) {
            any = true;
            match option {
                "--ctstate" => this.states = Some(words.test("states", states)?),
                "--ctproto" => this.protocol = Some(words.test("a protocol", Protocol::parse)?),
                "--ctstatus" => {
                    this.status = Some(words.test("statuses", |text| list(&STATUSES, text).map(Status))?);
                }
                "--ctdir" => {
                    words.plain()?;
                    this.original = Some(words.parse("ORIGINAL or REPLY", direction)?);
                }
                _ => this.fields.push(match (names::value(&ADDRESSES, option), names::value(&PORTS, option)) {
                    (Some(which), _) => FieldTest::Address(which, words.test("an address or network", Masked::parse)?),
                    (None, Some(which)) => FieldTest::Port(which, words.test("a port or range", NumberRange::parse)?),
                    (None, None) => continue,
                }),
            }
        }
        if any { Ok(this) } else { Err(Problem::Missing { of: "match conntrack".to_owned(), what: "an option" }) }
    }

    pub(crate) fn read_state(words: &mut OptionReader<'_>) -> ParseResult<Conntrack> {
        words.require("match state", "--state")?;
        Ok(Conntrack { states: Some(words.test("states", states)?), ..Conntrack::default() })
    }

    pub(crate) fn print_state(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let test = self.states.unwrap_or(Test::is(ConnectionStates(0)));
        write!(f, "{} --state {}", test.negation(), names::flags(&STATES, test.is.0))
    }
}

fn states(text: &str) -> Option<ConnectionStates> {
    list(&STATES, text).map(ConnectionStates)
}

fn direction(text: &str) -> Option<bool> {
    match text {
        "ORIGINAL" => Some(true),
        "REPLY" => Some(false),
        _ => None,
    }
}

impl fmt::Display for Conntrack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(test) = &self.states {
            write!(f, "{} --ctstate {}", test.negation(), names::flags(&STATES, test.is.0))?;
        }
        if let Some(test) = &self.protocol {
            write!(f, "{} --ctproto {}", test.negation(), test.is.0)?;
        }
        for one in &self.fields {
            match one {
                FieldTest::Address(field, test) => {
                    write!(f, "{} {} {}", test.negation(), names::name(&ADDRESSES, field), test.is)?;
                }
                FieldTest::Port(field, test) => {
                    write!(f, "{} {} {}", test.negation(), names::name(&PORTS, field), test.is)?
                }
            }
        }
        if let Some(test) = &self.status {
            write!(f, "{} --ctstatus {}", test.negation(), names::flags(&STATUSES, test.is.0))?;
        }
        match self.original {
            Some(true) => f.write_str(" --ctdir ORIGINAL"),
            Some(false) => f.write_str(" --ctdir REPLY"),
            None => Ok(()),
        }
    }
}
