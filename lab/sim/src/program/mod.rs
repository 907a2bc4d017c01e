//! Rules compiled for the walk: names and jumps are indexes, literals numbers.

pub(crate) mod iptables;
pub(crate) mod nft;

pub use iptables::CompileError;
pub use nft::compile::MissingReference;
