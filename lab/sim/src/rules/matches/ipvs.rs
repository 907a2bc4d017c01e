//! `ipvs` (net/netfilter/xt_ipvs.c).

use std::fmt;

use super::super::Test;
use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;
use crate::ipvs::Forwarding;
use crate::masked::Masked;
use crate::protocol::Protocol;

/// `-m ipvs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipvs {
    /// `--ipvs`: handled by IPVS.
    pub handled: Option<Test<()>>,
    /// Conditions on the packet's IPVS connection.
    pub connection: Vec<IpvsCondition>,
}

/// A condition on an IPVS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpvsCondition {
    /// `--vproto`.
    Protocol(Test<Protocol>),
    /// `--vaddr`: the virtual service's address.
    Address(Test<Masked>),
    /// `--vport`: the virtual service's port.
    Port(Test<u16>),
    /// `--vportctl`: the port of the virtual service whose persistence controls the connection.
    ControlPort(Test<u16>),
    /// `--vdir`; true: ORIGINAL.
    Original(bool),
    /// `--vmethod`.
    Method(Test<Forwarding>),
}

const METHODS: [(&str, Forwarding); 3] =
    [("GATE", Forwarding::Route), ("IPIP", Forwarding::Tunnel), ("MASQ", Forwarding::Masquerade)];

impl IpvsCondition {
    fn read(option: &str, words: &mut OptionReader<'_>) -> ParseResult<IpvsCondition> {
        let port = |text: &str| text.parse().ok();
        Ok(match option {
            "--vproto" => IpvsCondition::Protocol(words.test("a protocol", Protocol::parse)?),
            "--vaddr" => IpvsCondition::Address(words.test("an address or network", Masked::parse)?),
            "--vport" => IpvsCondition::Port(words.test("a port", port)?),
            "--vportctl" => IpvsCondition::ControlPort(words.test("a port", port)?),
            "--vdir" => {
                words.plain()?;
                IpvsCondition::Original(words.parse("ORIGINAL or REPLY", |text| match text {
                    "ORIGINAL" => Some(true),
                    "REPLY" => Some(false),
                    _ => None,
                })?)
            }
            _ => IpvsCondition::Method(words.test("GATE, IPIP or MASQ", |text| crate::names::value(&METHODS, text))?),
        })
    }
}

const CONDITIONS: [&str; 6] = ["--vproto", "--vaddr", "--vport", "--vportctl", "--vdir", "--vmethod"];

impl Ipvs {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Ipvs> {
        let mut this = Ipvs { handled: None, connection: Vec::new() };
        while let Some(option) = words.option(|word| word == "--ipvs" || CONDITIONS.contains(&word)) {
            if option == "--ipvs" {
                this.handled = Some(Test { not: words.negated(), is: () });
            } else {
                this.connection.push(IpvsCondition::read(option, words)?);
            }
        }
        if this.handled.is_none() && this.connection.is_empty() {
            return Err(Problem::Missing { of: "match ipvs".to_owned(), what: "an option" });
        }
        Ok(this)
    }
}

impl fmt::Display for IpvsCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IpvsCondition::Protocol(test) => write!(f, "{} --vproto {}", test.negation(), test.is.0),
            IpvsCondition::Address(test) => write!(f, "{} --vaddr {}", test.negation(), test.is),
            IpvsCondition::Port(test) => write!(f, "{} --vport {}", test.negation(), test.is),
            IpvsCondition::ControlPort(test) => write!(f, "{} --vportctl {}", test.negation(), test.is),
            IpvsCondition::Original(original) => {
                write!(f, " --vdir {}", if *original { "ORIGINAL" } else { "REPLY" })
            }
            IpvsCondition::Method(test) => {
                write!(f, "{} --vmethod {}", test.negation(), crate::names::name(&METHODS, &test.is))
            }
        }
    }
}

impl fmt::Display for Ipvs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(test) = self.handled {
            write!(f, "{} --ipvs", test.negation())?;
        }
        self.connection.iter().try_for_each(|condition| write!(f, "{condition}"))
    }
}
