//! The rule reader's errors.

use super::TableName;

/// An error in rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub enum Problem {
    #[error("match {0:?} is not modelled")]
    UnknownMatch(String),
    #[error("target {0:?} is neither modelled nor a chain of this table")]
    UnknownTarget(String),
    #[error("{of} has no option {option:?} that is modelled here")]
    UnknownOption {
        /// The match or target.
        of: String,
        option: String,
    },
    #[error("{option} {value:?}: expected {expected}")]
    Value {
        option: String,
        value: String,
        /// Valid values.
        expected: &'static str,
    },
    #[error("{0} needs a value")]
    NoValue(String),
    #[error("{of} needs {what}")]
    Missing { of: String, what: &'static str },
    /// A rule that the kernel refuses.
    #[error("{0}")]
    Impossible(String),
    /// The line does not have the format of `iptables-save`.
    #[error("{0}")]
    Line(&'static str),
}

/// A line of a listing that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}{}", self.place(), self.quote())]
pub struct RuleReadError {
    /// The table, if the line is in one.
    pub table: Option<TableName>,
    /// Counted from 1; 0 for the whole text.
    pub line: usize,
    /// The line.
    pub text: String,
    /// The error.
    pub problem: Problem,
}

impl RuleReadError {
    fn place(&self) -> String {
        let table = self.table.map(|table| format!("table {table}, ")).unwrap_or_default();
        if self.line == 0 { table } else { format!("{table}line {}: ", self.line) }
    }

    fn quote(&self) -> String {
        if self.line == 0 { String::new() } else { format!(": {}", self.text) }
    }
}

pub(crate) type ParseResult<T> = Result<T, Problem>;
