//! `physdev` (net/netfilter/xt_physdev.c).

use std::fmt;

use super::super::Test;
use super::super::error::{ParseResult, Problem};
use super::super::header::InterfacePattern;
use super::super::tokens::OptionReader;

/// `-m physdev`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Physdev {
    pub input: Option<Test<InterfacePattern>>,
    pub is_in: Option<Test<()>>,
    pub output: Option<Test<InterfacePattern>>,
    pub is_out: Option<Test<()>>,
    pub is_bridged: Option<Test<()>>,
}

impl Physdev {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Physdev> {
        let mut this = Physdev::default();
        let pattern = |text: &str| (!text.is_empty()).then(|| InterfacePattern(text.to_owned()));
        let mut any = false;
        let known = |word: &str| {
            let all = "--physdev-in --physdev-is-in --physdev-out --physdev-is-out --physdev-is-bridged";
            all.split(' ').any(|option| option == word)
        };
        while let Some(option) = words.option(known) {
            any = true;
            let flag = Some(Test { not: words.negated(), is: () });
            match option {
                "--physdev-in" => this.input = Some(words.test("an interface", pattern)?),
                "--physdev-out" => this.output = Some(words.test("an interface", pattern)?),
                "--physdev-is-in" => this.is_in = flag,
                "--physdev-is-out" => this.is_out = flag,
                _ => this.is_bridged = flag,
            }
        }
        if any { Ok(this) } else { Err(Problem::Missing { of: "match physdev".to_owned(), what: "an option" }) }
    }
}

impl fmt::Display for Physdev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = |f: &mut fmt::Formatter<'_>, test: &Option<Test<InterfacePattern>>, option: &str| {
            test.as_ref().map_or(Ok(()), |test| write!(f, "{} {option} {}", test.negation(), test.is))
        };
        let flag = |f: &mut fmt::Formatter<'_>, test: Option<Test<()>>, option: &str| {
            test.map_or(Ok(()), |test| write!(f, "{} {option}", test.negation()))
        };
        flag(f, self.is_in, "--physdev-is-in")?;
        port(f, &self.input, "--physdev-in")?;
        flag(f, self.is_out, "--physdev-is-out")?;
        port(f, &self.output, "--physdev-out")?;
        flag(f, self.is_bridged, "--physdev-is-bridged")
    }
}
