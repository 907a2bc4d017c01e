//! Traces and verdicts as text.

mod sentence;
pub(crate) mod text;

pub use sentence::{reply_failure, verdict};
pub use text::{journey, tree};
