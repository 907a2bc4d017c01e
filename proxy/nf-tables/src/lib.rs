//! nf_tables over netlink.
#![warn(missing_docs)]
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod batch;
mod canonical;
mod comparisons;
mod error;
mod family;
pub mod field;
mod inspect;
pub mod iptables;
pub mod netlink;
mod objects;
mod rule;
mod socket;
mod verdict;
pub mod xt;

pub use batch::{BaseChain, Batch, Checkpoint, Element, Hook, MapData, Operation, Policy, Position};
pub use batch::{SetFlags, SetSpec, Value};
pub use canonical::{canonical, canonical_into};
pub use error::EncodeError;
pub use family::{Family, Table};
pub use inspect::{Counter, Expression, counter, expressions, verdict, xt_comment, xt_target};
pub use objects::{BaseChainInfo, ChainInfo, ElementInfo, FlowtableInfo, RuleInfo, SetInfo, TableInfo};
pub use rule::{
    Bitwise, Compare, Compat, CtKey, FibResult, Header, Lookup, MetaKey, Nat, NatKind, Numgen, Register, Reject, Rule,
    SetUpdate,
};
pub use rule::{FIB_DESTINATION, FIB_SOURCE};
pub use socket::{CommitError, Committed, ReadError, Refusal, Socket};
pub use verdict::Verdict;
