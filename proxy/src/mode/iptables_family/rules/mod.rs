//! What modes do with iptables alike: names of chains, what they add to a rule, the jumps from the kernel's own chains, and how to get from what is there to what is wanted.

pub mod cleanup;
pub mod common;
pub mod difference;
pub mod filter;
pub mod found;
pub mod guard;
pub mod jumps;
pub mod matching;
pub mod names;
pub mod node_ports;
