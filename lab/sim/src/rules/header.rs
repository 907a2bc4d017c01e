//! Options before `-m`: addresses, interfaces, protocol.

use std::fmt;

use super::Test;
use super::error::ParseResult;
use super::tokens::OptionReader;
use crate::masked::Masked;
use crate::protocol::Protocol;

/// An interface name; a final `+` matches any suffix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfacePattern(pub String);

impl InterfacePattern {
    /// Whether the pattern matches `name`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('+') {
            Some(start) => name.starts_with(start),
            None => name == self.0,
        }
    }
}

impl fmt::Display for InterfacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A rule's options before the first `-m`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleHeader {
    /// `-s`.
    pub source: Option<Test<Masked>>,
    /// `-d`.
    pub destination: Option<Test<Masked>>,
    /// `-i`.
    pub input: Option<Test<InterfacePattern>>,
    /// `-o`.
    pub output: Option<Test<InterfacePattern>>,
    /// `-p`.
    pub protocol: Option<Test<Protocol>>,
    /// `Some(true)` is `! -f`; simulated packets are no fragments.
    pub fragment: Option<bool>,
}

fn is_header(option: &str) -> bool {
    matches!(
        option,
        "-s" | "--source"
            | "--src"
            | "-d"
            | "--destination"
            | "--dst"
            | "-i"
            | "--in-interface"
            | "-o"
            | "--out-interface"
            | "-p"
            | "--protocol"
            | "--proto"
            | "-f"
            | "--fragment"
    )
}

impl RuleHeader {
    pub(crate) fn read(&mut self, words: &mut OptionReader<'_>) -> ParseResult<bool> {
        let Some(option) = words.option(is_header) else {
            return Ok(false);
        };
        let interface = |text: &str| (!text.is_empty()).then(|| InterfacePattern(text.to_owned()));
        match option {
            "-s" | "--source" | "--src" => self.source = Some(words.test("an address or network", Masked::parse)?),
            "-d" | "--destination" | "--dst" => {
                self.destination = Some(words.test("an address or network", Masked::parse)?);
            }
            "-i" | "--in-interface" => self.input = Some(words.test("an interface", interface)?),
            "-o" | "--out-interface" => self.output = Some(words.test("an interface", interface)?),
            "-f" | "--fragment" => self.fragment = Some(words.negated()),
            _ if matches!(words.peek(), Some("all" | "ip" | "0")) => {
                words.value()?;
            }
            _ => self.protocol = Some(words.test("a protocol", Protocol::parse)?),
        }
        Ok(true)
    }
}

impl fmt::Display for RuleHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn one<T: fmt::Display>(f: &mut fmt::Formatter<'_>, option: &str, test: Option<&Test<T>>) -> fmt::Result {
            test.map_or(Ok(()), |test| write!(f, "{} {option} {}", test.negation(), test.is))
        }
        one(f, "-s", self.source.as_ref())?;
        one(f, "-d", self.destination.as_ref())?;
        one(f, "-i", self.input.as_ref())?;
        one(f, "-o", self.output.as_ref())?;
        one(f, "-p", self.protocol.as_ref())?;
        match self.fragment {
            Some(true) => f.write_str(" ! -f"),
            Some(false) => f.write_str(" -f"),
            None => Ok(()),
        }
    }
}
