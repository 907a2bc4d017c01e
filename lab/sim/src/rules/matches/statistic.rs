//! `statistic` (net/netfilter/xt_statistic.c).

use std::fmt;

use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;

/// Probability 1.
pub const THRESHOLD_ONE: u32 = 0x8000_0000;

/// `-m statistic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Statistic {
    /// Matches if 31 random bits are below `threshold`.
    Random {
        /// Inverted by `!`.
        not: bool,
        /// The probability out of 2³¹ ("lround(0x80000000 * p)"), which `iptables-save`'s 11 digits identify.
        threshold: u32,
    },
    /// Matches one of `every` packets.
    Nth {
        /// Inverted by `!`.
        not: bool,
        every: u32,
        /// Counted from 0.
        packet: u32,
    },
}

fn threshold(text: &str) -> Option<u32> {
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    if whole > 1 || digits.len() > 24 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let scale = 10_u128.pow(digits.len() as u32);
    let part: u128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let rounded = ((whole * scale + part) * (2 * u128::from(THRESHOLD_ONE)) + scale) / (2 * scale);
    u32::try_from(rounded).ok().filter(|threshold| *threshold <= THRESHOLD_ONE)
}

/// Prints 11 digits, as `iptables-save` does.
fn decimal(threshold: u32) -> String {
    let scale = 100_000_000_000_u128;
    let rounded = (u128::from(threshold) * scale * 2 + u128::from(THRESHOLD_ONE)) / (2 * u128::from(THRESHOLD_ONE));
    format!("{}.{:011}", rounded / scale, rounded % scale)
}

impl Statistic {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<Statistic> {
        let of = || "match statistic".to_owned();
        let (mut mode, mut probability, mut every, mut packet) = (None, None, None, None);
        let known = |word: &str| matches!(word, "--mode" | "--probability" | "--every" | "--packet");
        let mut not = false;
        while let Some(option) = words.option(known) {
            let numeral = |text: &str| text.parse::<u32>().ok();
            match option {
                "--mode" => {
                    words.plain()?;
                    mode = Some(words.value()?);
                }
                "--probability" => {
                    let test = words.test("a probability from 0 to 1", threshold)?;
                    (probability, not) = (Some(test.is), test.not);
                }
                "--every" => {
                    let test = words.test("a number from 1", |text| numeral(text).filter(|every| *every > 0))?;
                    (every, not) = (Some(test.is), test.not);
                }
                _ => {
                    words.plain()?;
                    packet = Some(words.parse("a number", numeral)?);
                }
            }
        }
        match (mode, probability, every) {
            (Some("random"), Some(threshold), None) if packet.is_none() => Ok(Statistic::Random { not, threshold }),
            (Some("nth"), None, Some(every)) => {
                let packet = packet.unwrap_or(0);
                if packet >= every {
                    return Err(Problem::Impossible("--packet must be below --every".to_owned()));
                }
                Ok(Statistic::Nth { not, every, packet })
            }
            _ => Err(Problem::Missing { of: of(), what: "--mode random --probability, or --mode nth --every" }),
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Random { not, threshold } => {
                let negation = if *not { " !" } else { "" };
                write!(f, " --mode random{negation} --probability {}", decimal(*threshold))
            }
            Statistic::Nth { not, every, packet } => {
                let negation = if *not { " !" } else { "" };
                write!(f, " --mode nth{negation} --every {every} --packet {packet}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_thresholds_parse_to_the_same_value() {
        assert_eq!(threshold("0.33333333349"), Some(715_827_883));
        assert_eq!(decimal(715_827_883), "0.33333333349");
        for value in (0..=THRESHOLD_ONE).step_by(99_991).chain([1, THRESHOLD_ONE - 1, THRESHOLD_ONE]) {
            assert_eq!(threshold(&decimal(value)), Some(value));
        }
        for wrong in ["1.1", "-0.1", "x", "2", "0.1e3"] {
            assert_eq!(threshold(wrong), None, "{wrong}");
        }
    }
}
