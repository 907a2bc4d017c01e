//! `policy` and `ipvs` (net/netfilter/xt_policy.c, xt_ipvs.c).

use std::fmt;

use super::super::Test;
use super::super::error::{ParseResult, Problem};
use super::super::options::{self, TextOption};
use super::super::tokens::OptionReader;

/// `-m policy`; without IPsec only `--pol none` matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpsecPolicy {
    /// `--dir in`.
    pub incoming: bool,
    /// `--pol none`.
    pub none: bool,
    /// IPsec conditions.
    pub options: Vec<TextOption>,
}

const POLICY: [(&str, bool); 8] = [
    ("--strict", false),
    ("--next", false),
    ("--reqid", true),
    ("--spi", true),
    ("--proto", true),
    ("--mode", true),
    ("--tunnel-src", true),
    ("--tunnel-dst", true),
];

impl IpsecPolicy {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<IpsecPolicy> {
        let (mut incoming, mut none, mut all) = (None, None, Vec::new());
        loop {
            all.extend(options::read(words, &POLICY)?);
            let Some(option) = words.option(|word| matches!(word, "--dir" | "--pol")) else { break };
            words.plain()?;
            let one_of = |yes: &'static str, no: &'static str| {
                move |text: &str| if text == yes { Some(true) } else { (text == no).then_some(false) }
            };
            if option == "--dir" {
                incoming = Some(words.parse("in or out", one_of("in", "out"))?);
            } else {
                none = Some(words.parse("none or ipsec", one_of("none", "ipsec"))?);
            }
        }
        let of = || "match policy".to_owned();
        let incoming = incoming.ok_or(Problem::Missing { of: of(), what: "--dir" })?;
        let none = none.ok_or(Problem::Missing { of: of(), what: "--pol" })?;
        Ok(IpsecPolicy { incoming, none, options: all })
    }
}

impl fmt::Display for IpsecPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = if self.incoming { "in" } else { "out" };
        write!(f, " --dir {dir} --pol {}", if self.none { "none" } else { "ipsec" })?;
        options::print(&self.options, f)
    }
}

/// `-m ipvs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipvs {
    /// `--ipvs`: handled by IPVS.
    pub handled: Option<Test<()>>,
    /// Conditions on IPVS packets.
    pub options: Vec<TextOption>,
}

const IPVS: [(&str, bool); 6] = [
    ("--vproto", true),
    ("--vaddr", true),
    ("--vport", true),
    ("--vdir", true),
    ("--vmethod", true),
    ("--vportctl", true),
];

impl Ipvs {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Ipvs> {
        let mut this = Ipvs { handled: None, options: Vec::new() };
        loop {
            this.options.extend(options::read(words, &IPVS)?);
            let Some(_) = words.option(|word| word == "--ipvs") else { break };
            this.handled = Some(Test { not: words.negated(), is: () });
        }
        if this.handled.is_none() && this.options.is_empty() {
            return Err(Problem::Missing { of: "match ipvs".to_owned(), what: "an option" });
        }
        Ok(this)
    }
}

impl fmt::Display for Ipvs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(test) = self.handled {
            write!(f, "{} --ipvs", test.negation())?;
        }
        options::print(&self.options, f)
    }
}
