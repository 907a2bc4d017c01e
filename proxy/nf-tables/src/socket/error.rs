//! Errors of commits and reads.

use std::fmt;
use std::io;

use crate::batch::Operation;

/// A refused operation.
#[derive(Debug)]
pub struct OperationRefusal {
    /// The operation.
    pub operation: Operation,
    /// Kernel's error number.
    pub error: io::Error,
    /// Explanation, if any.
    pub text: Option<String>,
}

impl fmt::Display for OperationRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}: {}", self.operation.0, self.error)?;
        self.text.as_ref().map_or(Ok(()), |text| write!(f, " ({text})"))
    }
}

/// Nothing was applied, except perhaps after `Unknown`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The refused operations; some may depend on others.
    #[error("the kernel refuses {} of the batch's operations, the first of them {}", .0.len(), first(.0))]
    Refused(Vec<OperationRefusal>),
    /// Circular jumps (`ELOOP`, `EMLINK`), or too little memory.
    #[error("the kernel refuses the batch as a whole: {0}")]
    Whole(io::Error),
    /// The tables' generation has changed.
    #[error("the tables changed in between")]
    Restart,
    /// The batch exceeds the send buffer.
    #[error("the batch has {bytes} bytes, and {limit} can be sent: split it")]
    TooLarge {
        /// The batch's length.
        bytes: usize,
        /// The longest batch.
        limit: usize,
    },
    /// No `CAP_NET_ADMIN` in this namespace.
    #[error("changing nf_tables needs CAP_NET_ADMIN in this network namespace")]
    NotPermitted,
    /// Sending failed.
    #[error("cannot send the batch: {0}")]
    Send(io::Error),
    /// The batch was perhaps applied.
    #[error("the kernel's answer to the batch was lost: {0}")]
    Unknown(io::Error),
}

fn first(refusals: &[OperationRefusal]) -> String {
    refusals.first().map_or_else(String::new, ToString::to_string)
}

/// A failed query.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} of nf_tables: {source}")]
pub struct QueryError {
    /// The requested objects.
    pub what: &'static str,
    /// [`io::ErrorKind::ResourceBusy`] if the tables kept changing.
    pub source: io::Error,
}
