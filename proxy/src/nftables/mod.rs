//! A table as values, and its changes; no I/O. `kernel::nftables` writes them for the kernel, [`text`] as `nft` prints
//! them.

pub mod change;
pub mod element;
pub mod rule;
pub mod set;
pub mod text;

use std::sync::Arc;

pub use change::NftChange;
pub use element::{Element, ElementKey, ElementValue};
pub use rule::{AddressSide, NftVerdict, Rule, SlotNumber, Statement};
pub use set::{ElementKind, Set};

/// A name, which many elements share.
pub type Name = Arc<str>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NftHook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

/// A base chain's hook. Its policy is accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseHook {
    pub is_nat: bool,
    pub hook: NftHook,
    /// Lower priorities are first (`enum nf_ip_hook_priorities` in `include/uapi/linux/netfilter_ipv4.h`).
    pub priority: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub comment: &'static str,
    /// `None`: a regular chain.
    pub base: Option<BaseHook>,
    pub rules: Vec<Rule>,
}

impl Chain {
    pub fn new(comment: &'static str, rules: Vec<Rule>) -> Chain {
        Chain { comment, base: None, rules }
    }
}
