//! What modes do with iptables alike: names of chains, the spelling of a rule, what a dump says, what a transaction
//! holds, the jumps from the kernel's own chains, and how to get from what is there to what is wanted.

pub mod cleanup;
pub mod common;
pub mod difference;
pub mod filter;
pub mod found;
pub mod guard;
pub mod jumps;
pub mod names;
pub mod node_ports;
pub mod report;
pub mod rule;
pub mod saved;
pub mod transaction;

use std::collections::BTreeMap;

use crate::kernel::iptables::Table;

/// Rules by chain.
pub type Chains = BTreeMap<String, Vec<String>>;

/// What the tables should hold of ours.
pub type Tables = BTreeMap<Table, Chains>;
