//! Compiled rules: names and jumps are indexes, literals are numbers.

pub(crate) mod iptables;
pub(crate) mod nft;

pub use iptables::CompileError;
pub use nft::compile::MissingReference;
