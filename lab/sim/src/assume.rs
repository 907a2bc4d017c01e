//! A user's assumptions about unknown facts: `owner=no`.

use std::collections::BTreeMap;
use std::str::FromStr;

/// Answers by name: a match (`owner`, `socket`, `mac`, `bpf`), `input-interface` or `output-interface` for names of
/// [invented](crate::host::HostInterface::invented) interfaces, `NFQUEUE` (yes accepts, no drops). An answer is the
/// result of all matches of the name, `!` included. Known facts take precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assumptions(BTreeMap<String, bool>);

/// A text that is not an assumption.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssumptionError {
    /// The text is neither `NAME=yes` nor `NAME=no`.
    #[error("{0:?} is not an assumption: use NAME=yes or NAME=no, such as owner=no")]
    Form(String),
    /// The text gives both answers for one name.
    #[error("{0} is assumed to be both yes and no")]
    Both(String),
}

impl Assumptions {
    /// Returns no assumptions.
    #[must_use]
    pub fn new() -> Assumptions {
        Assumptions::default()
    }

    /// Reads comma-separated assumptions such as `owner=no`.
    pub fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Assumptions, AssumptionError> {
        let mut all = Assumptions::new();
        for text in texts.into_iter().flat_map(|text| text.split(',')) {
            let wrong = || AssumptionError::Form(text.to_owned());
            let (name, answer) = text.trim().split_once('=').ok_or_else(wrong)?;
            let holds = match answer {
                "yes" => true,
                "no" => false,
                _ => return Err(wrong()),
            };
            if name.is_empty() || name.contains(char::is_whitespace) {
                return Err(wrong());
            }
            if all.answer(name).is_some_and(|known| known != holds) {
                return Err(AssumptionError::Both(name.to_owned()));
            }
            all.set(name, holds);
        }
        Ok(all)
    }

    /// Adds or replaces an assumption.
    pub fn set(&mut self, name: &str, holds: bool) {
        self.0.insert(name.to_owned(), holds);
    }

    /// The assumed answer.
    #[must_use]
    pub fn answer(&self, name: &str) -> Option<bool> {
        self.0.get(name).copied()
    }

    /// Returns all assumptions, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, bool)> {
        self.0.iter().map(|(name, holds)| (name.as_str(), *holds))
    }

    /// Whether there are no assumptions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Assumptions {
    type Err = AssumptionError;

    fn from_str(text: &str) -> Result<Assumptions, AssumptionError> {
        Assumptions::parse([text])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumptions_are_read() {
        let read = Assumptions::parse(["owner=no", "NFQUEUE=yes,socket=no"]).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), [("NFQUEUE", true), ("owner", false), ("socket", false)]);
        for wrong in ["owner", "owner=maybe", "=no", "a b=no", "owner=yes,owner=no", ""] {
            assert!(wrong.parse::<Assumptions>().is_err(), "{wrong}");
        }
        let error = "owner".parse::<Assumptions>().unwrap_err().to_string();
        assert_eq!(error, "\"owner\" is not an assumption: use NAME=yes or NAME=no, such as owner=no");
    }
}
