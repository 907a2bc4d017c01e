//! Errors of the rule reader.

use super::TableName;

/// What is wrong with a rule line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub enum Problem {
    /// A match that is not modelled.
    #[error("match {0:?} is not modelled")]
    UnknownMatch(String),
    #[error("target {0:?} is neither modelled nor a chain of this table")]
    UnknownTarget(String),
    #[error("{of} has no option {option:?} that is modelled here")]
    UnknownOption {
        /// The match or target.
        of: String,
        /// The option.
        option: String,
    },
    #[error("{option} {value:?}: expected {expected}")]
    Value {
        /// The option.
        option: String,
        /// What stands there.
        value: String,
        /// What could.
        expected: &'static str,
    },
    /// An option at the end of the line without its value.
    #[error("{0} needs a value")]
    NoValue(String),
    #[error("{of} needs {what}")]
    Missing { of: String, what: &'static str },
    /// A rule that the kernel would refuse.
    #[error("{0}")]
    Impossible(String),
    /// A line that no listing has.
    #[error("{0}")]
    Line(&'static str),
}

/// A line of a listing that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}line {line}: {problem}: {text}", self.place())]
pub struct RuleReadError {
    /// The table, if the line is in one.
    pub table: Option<TableName>,
    /// Counted from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// What is wrong.
    pub problem: Problem,
}

impl RuleReadError {
    fn place(&self) -> String {
        self.table.map(|table| format!("table {table}, ")).unwrap_or_default()
    }
}

/// The result of reading a part of a line.
pub(crate) type ParseResult<T> = Result<T, Problem>;
