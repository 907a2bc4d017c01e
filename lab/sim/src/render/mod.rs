//! Traces and verdicts as text.

mod printable;
mod sentence;
pub(crate) mod text;

pub use printable::printable;
pub use sentence::{reply_failure, verdict};
pub use text::{journey, tree};
