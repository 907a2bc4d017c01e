//! `iprange` (net/netfilter/xt_iprange.c).

use std::fmt;
use std::net::IpAddr;

use super::super::Test;
use super::super::error::{ParseResult, Problem};
use super::super::nat::addresses;
use super::super::tokens::OptionReader;

/// `-m iprange`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpRange {
    /// First and last address.
    pub source: Option<Test<(IpAddr, IpAddr)>>,
    /// First and last address.
    pub destination: Option<Test<(IpAddr, IpAddr)>>,
}

impl IpRange {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<IpRange> {
        let mut this = IpRange::default();
        while let Some(option) = words.option(|word| matches!(word, "--src-range" | "--dst-range")) {
            let test = Some(words.test("first-last", addresses)?);
            if option == "--src-range" { this.source = test } else { this.destination = test }
        }
        if this == IpRange::default() {
            return Err(Problem::Missing { of: "match iprange".to_owned(), what: "a range" });
        }
        Ok(this)
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (test, option) in [(&self.source, "--src-range"), (&self.destination, "--dst-range")] {
            if let Some(test) = test {
                write!(f, "{} {option} {}-{}", test.negation(), test.is.0, test.is.1)?;
            }
        }
        Ok(())
    }
}
