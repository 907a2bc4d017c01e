//! Rules compiled for the walk: names are indexes, literals are numbers, jumps are indexes of chains.

pub(crate) mod iptables;
pub(crate) mod nft;

pub use iptables::CompileError;
pub use nft::compile::MissingReference;
