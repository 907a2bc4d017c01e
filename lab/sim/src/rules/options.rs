//! Options that are kept as text.

use std::fmt;

use super::error::ParseResult;
use super::tokens::{OptionReader, bare};

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TextOption {
    /// Inverted by `!`.
    pub not: bool,
    /// With dashes: `--reqid`.
    pub name: String,
    pub value: Option<String>,
}

impl fmt::Display for TextOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.not { " !" } else { "" }, self.name)?;
        self.value.as_ref().map_or(Ok(()), |value| write!(f, " {}", bare(value)))
    }
}

/// Reads the options in `known`; `true` marks options with values.
pub(crate) fn read(words: &mut OptionReader<'_>, known: &[(&str, bool)]) -> ParseResult<Vec<TextOption>> {
    let mut options = Vec::new();
    while let Some(option) = words.option(|word| known.iter().any(|(name, _)| *name == word)) {
        let takes = known.iter().any(|(name, takes)| *name == option && *takes);
        let value = if takes { Some(words.value()?.to_owned()) } else { None };
        options.push(TextOption { not: words.negated(), name: option.to_owned(), value });
    }
    Ok(options)
}

pub(crate) fn print(options: &[TextOption], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    options.iter().try_for_each(|option| write!(f, "{option}"))
}

pub(crate) fn print_flags(f: &mut fmt::Formatter<'_>, flags: &[(&str, bool)]) -> fmt::Result {
    flags.iter().filter(|(_, set)| *set).try_for_each(|(name, _)| write!(f, " {name}"))
}
