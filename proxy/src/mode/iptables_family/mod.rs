//! The modes that program iptables rules: one engine for their syncs, and the rules that they share.

pub mod engine;
pub mod iptables;
pub mod ipvs;
pub mod rules;
pub mod userspace;
