//! What the kernel refused.

use std::fmt;
use std::io;

use crate::batch::Operation;

/// An operation that the kernel refused.
#[derive(Debug)]
pub struct Refusal {
    /// Which one.
    pub operation: Operation,
    /// Why, by error number.
    pub error: io::Error,
    /// The kernel's explanation, which it seldom has.
    pub text: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}: {}", self.operation.0, self.error)?;
        self.text.as_ref().map_or(Ok(()), |text| write!(f, " ({text})"))
    }
}

/// Why a batch was not applied. Nothing of it was, but where that is said to be unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// These operations were refused. Later ones can be refused only because they need an earlier one.
    #[error("the kernel refuses {} of the batch's operations, the first of them {}", .0.len(), first(.0))]
    Refused(Vec<Refusal>),
    /// Each operation was accepted, and the whole was not: chains in a circle (`ELOOP`, `EMLINK`), memory.
    #[error("the kernel refuses the batch as a whole: {0}")]
    Whole(io::Error),
    /// The tables changed since the generation that the batch is for.
    #[error("the tables changed in between")]
    Restart,
    /// The batch is longer than the socket's send buffer.
    #[error("the batch has {bytes} bytes, and {limit} can be sent: split it")]
    TooLarge {
        /// The batch's.
        bytes: usize,
        /// What can be sent.
        limit: usize,
    },
    /// No `CAP_NET_ADMIN` for this network namespace.
    #[error("changing nf_tables needs CAP_NET_ADMIN in this network namespace")]
    NotPermitted,
    /// Sending failed.
    #[error("cannot send the batch: {0}")]
    Send(io::Error),
    /// The answer was lost: whether the batch was applied is unknown.
    #[error("the kernel's answer to the batch was lost: {0}")]
    Unknown(io::Error),
}

fn first(refusals: &[Refusal]) -> String {
    refusals.first().map_or_else(String::new, ToString::to_string)
}

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} of nf_tables: {source}")]
pub struct ReadError {
    /// What was asked for.
    pub what: &'static str,
    /// What the kernel said; [`io::ErrorKind::ResourceBusy`] where the tables did not hold still for a dump.
    pub source: io::Error,
}
