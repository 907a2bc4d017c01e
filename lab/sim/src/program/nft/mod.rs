pub(crate) mod compile;
pub(crate) mod hash;

use std::collections::HashMap;
use std::sync::Arc;

use crate::hook::Hook;
use crate::nft::selector::PacketField;
use crate::nft::{Binary, DataType, NatKind, Ruleset, SetOperation, TableFamily};
use crate::protocol::Family;
use crate::rules::ChainPolicy;
use crate::rules::nat::NatRange;
use crate::rules::target::RejectWith;
use crate::trace::RuleRef;

#[derive(Debug, Clone)]
pub(crate) enum CompiledExpr {
    Constant(u128),
    Field(PacketField),
    /// Operator, operands, bits of the result.
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
    /// Random if key or seed is missing.
    Hash {
        key: Option<Vec<(CompiledExpr, DataType)>>,
        modulus: u32,
        seed: Option<u32>,
        offset: u32,
    },
    Map {
        key: Vec<CompiledExpr>,
        set: usize,
    },
    NotModelled(Arc<str>),
}

/// A verdict; chains are indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompiledVerdict {
    Accept,
    Drop,
    Return,
    Continue,
    Jump(usize),
    Goto(usize),
}

#[derive(Debug, Clone)]
pub(crate) enum CompiledComparison {
    /// Every part is in range.
    Within { not: bool, ranges: Vec<(u128, u128)> },
    /// Any bit is set.
    Any { not: bool, bits: u128 },
    /// The set contains the value.
    In { not: bool, set: usize },
}

#[derive(Debug, Clone)]
pub(crate) enum NatOperand {
    Nothing,
    Range(u128, u128),
    Load(CompiledExpr),
}

#[derive(Debug, Clone)]
pub(crate) struct Nat {
    pub(crate) kind: NatKind,
    /// `None`: both families.
    pub(crate) family: Option<Family>,
    pub(crate) address: NatOperand,
    pub(crate) port: NatOperand,
    pub(crate) range: NatRange,
}

#[derive(Debug, Clone)]
pub(crate) enum CompiledStatement {
    Compare {
        left: Vec<CompiledExpr>,
        compare: CompiledComparison,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryContent {
    Nothing,
    Verdict(CompiledVerdict),
    Data(Vec<u128>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetEntry {
    pub(crate) content: EntryContent,
    /// Milliseconds.
    pub(crate) expires: Option<u64>,
}

pub(crate) type SetName = (TableFamily, String, String);

#[derive(Debug, Clone, Default)]
pub(crate) struct CompiledSet {
    pub(crate) dynamic: Option<SetName>,
    pub(crate) exact: HashMap<Vec<u128>, SetEntry>,
    pub(crate) ranges: Vec<(Vec<(u128, u128)>, SetEntry)>,
    pub(crate) any: Option<EntryContent>,
    pub(crate) timeout: Option<u64>,
    pub(crate) size: Option<usize>,
    pub(crate) not_modelled: Option<Arc<str>>,
}

#[derive(Debug, Clone)]
pub(crate) struct NftCompiledChain {
    pub(crate) policy: Option<ChainPolicy>,
    pub(crate) rules: Vec<Vec<CompiledStatement>>,
}

#[derive(Debug, Clone)]
pub(crate) struct NftCompiledTable {
    pub(crate) chains: Vec<NftCompiledChain>,
    pub(crate) sets: Vec<CompiledSet>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BaseChainRef {
    pub(crate) table: usize,
    pub(crate) chain: usize,
    pub(crate) priority: i32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct AtHook {
    pub(crate) filters: Vec<BaseChainRef>,
    pub(crate) nats: Vec<BaseChainRef>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct NftProgram {
    pub(crate) ruleset: Arc<Ruleset>,
    pub(crate) tables: Vec<NftCompiledTable>,
    pub(super) v4: [AtHook; 5],
    pub(super) v6: [AtHook; 5],
    pub(crate) ingress: Vec<(usize, BaseChainRef)>,
    pub(crate) egress: Vec<(usize, BaseChainRef)>,
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

    pub(crate) fn sees(&self, family: Family) -> bool {
        let all = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        all.iter().any(|at| !at.filters.is_empty() || !at.nats.is_empty())
    }

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

    pub(crate) fn dynamic(&self) -> impl Iterator<Item = &SetName> {
        self.tables.iter().flat_map(|table| &table.sets).filter_map(|set| set.dynamic.as_ref())
    }
}
