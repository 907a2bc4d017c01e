//! Rules for the walk: names and jumps as indexes, literals as numbers.

pub(crate) mod iptables;
pub(crate) mod nft;

pub use iptables::CompileError;
pub use nft::compile::MissingReference;
