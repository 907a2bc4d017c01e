//! `policy` (net/netfilter/xt_policy.c).

use std::fmt;

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
