//! wip
pub mod chance;
pub mod conntrack;
pub mod fraction;
pub mod host;
pub mod ipvs;
pub mod masked;
pub mod network;
pub mod packet;
pub mod protocol;
pub mod rules;
pub mod set;
pub mod trace;
mod walk;
