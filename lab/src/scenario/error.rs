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
