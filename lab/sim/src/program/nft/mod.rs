//! Rules compiled for walking: names are numbers, literals are ranges, jumps lead to places.

pub(crate) mod compile;
pub(crate) mod hash;

use std::collections::HashMap;
use std::sync::Arc;

use crate::hook::Hook;
use crate::nft::{Binary, DataType, NatKind, Ruleset, SetOperation, TableFamily};
use crate::protocol::{Family, Protocol};
use crate::rules::ChainPolicy;
use crate::rules::nat::NatRange;
use crate::rules::target::RejectWith;
use crate::trace::RuleRef;

/// What a rule loads from a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PacketField {
    /// The source or destination of an IP header of this family.
    Address {
        family: Family,
        source: bool,
    },
    /// The version of an IP header.
    Version(Family),
    /// The protocol that an IP header of this family names.
    HeaderProtocol(Family),
    /// A port, of this protocol or of any.
    Port {
        of: Option<Protocol>,
        source: bool,
    },
    TcpFlags,
    IcmpType(Family),
    IcmpCode(Family),
    Mark,
    InterfaceName {
        input: bool,
    },
    Interface {
        input: bool,
    },
    Protocol,
    Family,
    EtherType,
    State,
    Status,
    Direction,
    ConnectionMark,
    /// Of a connection's tuple.
    ConnectionAddress {
        reply: Option<bool>,
        source: bool,
        family: Family,
    },
    ConnectionPort {
        reply: Option<bool>,
        source: bool,
    },
    ConnectionProtocol,
    Fib {
        source: bool,
        limit: Option<bool>,
        result: FibResult,
    },
}

/// What `fib` asks of the routing tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FibResult {
    AddressType,
    Interface,
    InterfaceName,
}

/// A value, ready to be made.
#[derive(Debug, Clone)]
pub(crate) enum CompiledExpr {
    Constant(u128),
    Field(PacketField),
    /// Cut to so many bits.
    Binary(Binary, Box<CompiledExpr>, Box<CompiledExpr>, u32),
    Random {
        modulus: u32,
        offset: u32,
    },
    Rotation {
        modulus: u32,
        offset: u32,
        counter: usize,
    },
    /// `None`: of a key that only the kernel knows.
    Hash {
        key: Option<Vec<(CompiledExpr, DataType)>>,
        modulus: u32,
        seed: Option<u32>,
        offset: u32,
    },
    /// One or more values, which an element has.
    Map {
        key: Vec<CompiledExpr>,
        set: usize,
    },
    NotModelled(Arc<str>),
}

/// Where a packet goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompiledVerdict {
    Accept,
    Drop,
    Return,
    Continue,
    Jump(usize),
    Goto(usize),
}

/// How a value is compared.
#[derive(Debug, Clone)]
pub(crate) enum Comparison {
    /// Each part is within its range (or `not`).
    Within { not: bool, ranges: Vec<(u128, u128)> },
    /// Any of these bits is set (or, `not`, none).
    Any { not: bool, bits: u128 },
    /// An element has it (or `not`).
    In { not: bool, set: usize },
}

/// What a translation changes an address or port to.
#[derive(Debug, Clone)]
pub(crate) enum NatOperand {
    /// As it is.
    Nothing,
    /// From first to last.
    Range(u128, u128),
    Load(CompiledExpr),
}

/// A translation.
#[derive(Debug, Clone)]
pub(crate) struct Nat {
    pub(crate) kind: NatKind,
    /// Only packets of this family.
    pub(crate) family: Option<Family>,
    pub(crate) address: NatOperand,
    pub(crate) port: NatOperand,
    /// The flags; address and ports are filled in.
    pub(crate) range: NatRange,
}

/// A statement, ready to be carried out.
#[derive(Debug, Clone)]
pub(crate) enum CompiledStatement {
    Compare {
        left: Vec<CompiledExpr>,
        compare: Comparison,
    },
    Verdict(CompiledVerdict),
    VerdictMap {
        key: Vec<CompiledExpr>,
        set: usize,
    },
    SetMark(CompiledExpr),
    SetConnectionMark(CompiledExpr),
    Element {
        operation: SetOperation,
        key: Vec<CompiledExpr>,
        data: Option<CompiledExpr>,
        set: usize,
        timeout: Option<u64>,
    },
    Nat(Nat),
    /// What is sent back, by family.
    Reject {
        v4: RejectWith,
        v6: RejectWith,
    },
    Notrack,
    Limit {
        rate: u64,
        per: u64,
        burst: u64,
        over: bool,
        counter: usize,
    },
    NotModelled(Arc<str>),
}

/// What an element has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryContent {
    Nothing,
    Verdict(CompiledVerdict),
    Data(Vec<u128>),
}

/// An element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetEntry {
    pub(crate) content: EntryContent,
    /// Milliseconds of the clock, from the beginning.
    pub(crate) expires: Option<u64>,
}

/// The name of a set, by which what rules put in is kept.
pub(crate) type SetName = (TableFamily, String, String);

/// A set or map.
#[derive(Debug, Clone, Default)]
pub(crate) struct CompiledSet {
    /// Of a set that rules may put elements into.
    pub(crate) dynamic: Option<SetName>,
    pub(crate) exact: HashMap<Vec<u128>, SetEntry>,
    pub(crate) ranges: Vec<(Vec<(u128, u128)>, SetEntry)>,
    pub(crate) any: Option<EntryContent>,
    pub(crate) timeout: Option<u64>,
    pub(crate) size: Option<usize>,
    /// An element, or a type, that is not modelled: nothing can be said of what is not found.
    pub(crate) not_modelled: Option<Arc<str>>,
}

/// A chain.
#[derive(Debug, Clone)]
pub(crate) struct NftCompiledChain {
    pub(crate) policy: Option<ChainPolicy>,
    pub(crate) rules: Vec<Vec<CompiledStatement>>,
}

/// A table.
#[derive(Debug, Clone)]
pub(crate) struct NftCompiledTable {
    pub(crate) chains: Vec<NftCompiledChain>,
    pub(crate) sets: Vec<CompiledSet>,
}

/// A base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BaseChainRef {
    pub(crate) table: usize,
    pub(crate) chain: usize,
    pub(crate) priority: i32,
}

/// The base chains that a packet of one family meets at one hook, in the order in which it meets them.
#[derive(Debug, Clone, Default)]
pub(crate) struct AtHook {
    pub(crate) filters: Vec<BaseChainRef>,
    pub(crate) nats: Vec<BaseChainRef>,
}

/// The rules of a machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct NftProgram {
    pub(crate) ruleset: Arc<Ruleset>,
    pub(crate) tables: Vec<NftCompiledTable>,
    pub(super) v4: [AtHook; 5],
    pub(super) v6: [AtHook; 5],
    /// Base chains of devices, by interface: what comes in.
    pub(crate) ingress: Vec<(usize, BaseChainRef)>,
    /// What goes out.
    pub(crate) egress: Vec<(usize, BaseChainRef)>,
    /// A chain with rules for frames that cross a bridge, which are not modelled.
    pub(crate) on_bridges: Option<BaseChainRef>,
}

impl NftProgram {
    pub(crate) fn at(&self, family: Family, hook: Hook) -> &AtHook {
        let all = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        &all[hook as usize]
    }

    /// Whether any chain is hooked in for packets of the family.
    pub(crate) fn sees(&self, family: Family) -> bool {
        let all = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        all.iter().any(|at| !at.filters.is_empty() || !at.nats.is_empty())
    }

    /// Whether destinations or sources may be translated.
    pub(crate) fn translates(&self, family: Family) -> bool {
        let all = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        all.iter().any(|at| !at.nats.is_empty())
    }

    pub(crate) fn rule(&self, table: usize, chain: usize, rule: Option<usize>) -> RuleRef {
        RuleRef::nft(&self.ruleset, table, chain, rule)
    }

    /// Sets that rules put elements into.
    pub(crate) fn dynamic(&self) -> impl Iterator<Item = &SetName> {
        self.tables.iter().flat_map(|table| &table.sets).filter_map(|set| set.dynamic.as_ref())
    }
}
