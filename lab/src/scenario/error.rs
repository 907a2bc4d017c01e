use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct FileError {
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    pub errors: Vec<FileError>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.errors.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for LoadError {}

#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub(super) at: serde_saphyr::Location,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(at: serde_saphyr::Location, message: impl Into<String>) -> Self {
        Problem { at, message: message.into() }
    }

    pub(super) fn or_at(self, at: serde_saphyr::Location) -> Self {
        if self.at == serde_saphyr::Location::UNKNOWN { Problem { at, ..self } } else { self }
    }
}
