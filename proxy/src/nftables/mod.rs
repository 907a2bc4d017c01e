//! A table of nftables as values: sets, maps and their elements, chains and their rules, and a change of them. No I/O.
//!
//! What each is for the kernel, `kernel::nftables` writes; what it is for `nft`, [`text`] does.

pub mod change;
pub mod element;
pub mod rule;
pub mod set;
pub mod text;

use std::sync::Arc;

pub use change::Change;
pub use element::{Element, Key, Value};
pub use rule::{Rule, Side, Statement, Verdict};
pub use set::{Holds, Set};

/// The name of a chain, or of a set that belongs to one service port. Most are shared by many elements.
pub type Name = Arc<str>;

/// Where packets come into a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Before the route is looked up.
    Prerouting,
    /// To this node.
    Input,
    /// Through this node.
    Forward,
    /// From this node.
    Output,
    /// On its way out.
    Postrouting,
}

/// What makes a chain a base chain. Its policy is accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    /// It translates addresses; otherwise it filters.
    pub is_nat: bool,
    /// Where packets come from.
    pub hook: Hook,
    /// Order among the chains of a hook, lower ones first (`enum nf_ip_hook_priorities` in `include/uapi/linux/netfilter_ipv4.h`).
    pub priority: i32,
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// What it is for, in a line.
    pub comment: &'static str,
    /// Packets come in by a hook.
    pub base: Option<Base>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

impl Chain {
    /// A chain that others lead to.
    pub fn new(comment: &'static str, rules: Vec<Rule>) -> Chain {
        Chain { comment, base: None, rules }
    }
}
