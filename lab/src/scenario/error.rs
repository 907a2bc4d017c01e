//! What is wrong with a file, where, and what was expected there.

use std::fmt;

/// One error at one place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct FileError {
    /// The file as it was named.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1.
    pub column: usize,
    /// What is wrong and what was expected.
    pub message: String,
}

/// Everything that is wrong with a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// At least one.
    pub errors: Vec<FileError>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.errors.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for LoadError {}

/// A problem somewhere in the file that is being checked.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub(super) at: serde_saphyr::Location,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(at: serde_saphyr::Location, message: impl Into<String>) -> Self {
        Problem { at, message: message.into() }
    }

    /// The same problem at `at` if it does not know its place.
    pub(super) fn or_at(self, at: serde_saphyr::Location) -> Self {
        if self.at == serde_saphyr::Location::UNKNOWN { Problem { at, ..self } } else { self }
    }
}

/// A YAML error's message alone: no source excerpt, no position, and numbers' ranges in plain words.
pub fn plain_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    for (type_name, words) in [
        ("u8", "a whole number from 0 to 255"),
        ("u16", "a whole number from 0 to 65535"),
        ("u64", "a whole number"),
        ("usize", "a whole number"),
        ("i32", "a whole number"),
        ("i64", "a whole number"),
        ("bool", "true or false"),
    ] {
        if text == format!("invalid {type_name}") {
            return format!("expected {words}");
        }
    }
    text.replace(", set DuplicateKeyPolicy in Options if acceptable", "")
}
