//! `--seed N` and `--seed A..B`.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::exit::Exit;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seeds(Range<u64>);

impl Default for Seeds {
    fn default() -> Seeds {
        Seeds::from(0)
    }
}

impl From<u64> for Seeds {
    fn from(seed: u64) -> Seeds {
        Seeds(seed..seed.saturating_add(1))
    }
}

impl Seeds {
    pub(crate) fn one(&self) -> Result<u64, Exit> {
        if self.are_several() {
            return Err(Exit::usage(
                "--seed A..B is for `svclab run` in a microVM (--deterministic); here it is one number",
            ));
        }
        Ok(self.0.start)
    }

    pub(crate) fn are_several(&self) -> bool {
        self.0.end - self.0.start > 1
    }

    pub(super) fn first(&self) -> u64 {
        self.0.start
    }

    pub(crate) fn each(&self) -> Range<u64> {
        self.0.clone()
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.are_several() { write!(f, "{}..{}", self.0.start, self.0.end) } else { write!(f, "{}", self.0.start) }
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("expected a number or A..B, not {text:?}"));
        match text.split_once("..") {
            None => {
                let seed = number(text)?;
                // The end of the range must be a number too.
                seed.checked_add(1).map(|end| Seeds(seed..end)).ok_or_else(|| "that seed is too large".to_owned())
            }
            Some((first, end)) => {
                let range = number(first)?..number(end)?;
                if range.is_empty() { Err("A..B: B must be larger than A".to_owned()) } else { Ok(Seeds(range)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_number_or_a_range() {
        let seeds: Seeds = "7".parse().unwrap();
        assert!(!seeds.are_several() && seeds.each().eq([7]));
        assert_eq!(["7", "3..6"].map(|text| text.parse::<Seeds>().unwrap().to_string()), ["7", "3..6"]);
        let seeds: Seeds = "3..6".parse().unwrap();
        assert!(seeds.are_several() && seeds.each().eq([3, 4, 5]) && seeds.one().is_err());
        for wrong in ["", "x", "-1", "3..3", "5..2", "1..", "..4", "18446744073709551615"] {
            assert!(wrong.parse::<Seeds>().is_err(), "{wrong}");
        }
    }
}
