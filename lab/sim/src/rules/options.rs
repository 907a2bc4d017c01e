//! Options of which the text is kept: they have no say in a verdict, or their effect is not modelled.

use std::fmt;

use super::error::ParseResult;
use super::tokens::{OptionReader, bare};

/// An option as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextOption {
    /// `!`.
    pub not: bool,
    /// `--reqid`.
    pub name: String,
    /// Its value, if it has one.
    pub value: Option<String>,
}

impl fmt::Display for TextOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.not { " !" } else { "" }, self.name)?;
        self.value.as_ref().map_or(Ok(()), |value| write!(f, " {}", bare(value)))
    }
}

/// Reads those of `known`, each with whether it has a value.
pub(crate) fn read(words: &mut OptionReader<'_>, known: &[(&str, bool)]) -> ParseResult<Vec<TextOption>> {
    let mut options = Vec::new();
    while let Some(option) = words.option(|word| known.iter().any(|(name, _)| *name == word)) {
        let takes = known.iter().any(|(name, takes)| *name == option && *takes);
        let value = if takes { Some(words.value()?.to_owned()) } else { None };
        options.push(TextOption { not: words.negated(), name: option.to_owned(), value });
    }
    Ok(options)
}

/// Prints them one after the other.
pub(crate) fn print(options: &[TextOption], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    options.iter().try_for_each(|option| write!(f, "{option}"))
}
