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

pub use batch::{BaseChain, Batch, BatchCheckpoint, ChainPolicy, Element, MapData, NfHook, Operation, RulePosition};
pub use batch::{ElementValue, SetFlags, SetSpec};
pub use canonical::{canonical, canonical_into};
pub use error::EncodeError;
pub use family::{Family, Table};
pub use inspect::{Counter, Expression, counter, expressions, verdict, xt_comment, xt_target};
pub use objects::{BaseChainInfo, ChainInfo, CounterInfo, ElementInfo, FlowtableInfo, RuleInfo, SetInfo, TableInfo};
pub use rule::{
    Bitwise, CmpOp, CtKey, FibResult, Jhash, Lookup, MetaKey, Nat, NatKind, Numgen, PayloadBase, Register, Reject,
    Rule, SetUpdate, XtCompat,
};
pub use rule::{FIB_DESTINATION, FIB_SOURCE};
pub use socket::{CommitError, Committed, NfSocket, OperationRefusal, QueryError};
pub use verdict::NfVerdict;
