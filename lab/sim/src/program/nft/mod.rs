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
use crate::trace::{ElementRef, RuleRef};

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
    Within {
        not: bool,
        ranges: Vec<(u128, u128)>,
    },
    /// Any bit is set.
    Any {
        not: bool,
        bits: u128,
    },
    /// The set contains the value.
    In {
        not: bool,
        set: usize,
    },
    NotModelled,
}

/// A comparison's text, for comparisons whose result may be unknown.
#[derive(Debug, Clone)]
pub(crate) struct ComparisonText {
    pub(crate) text: Arc<str>,
    /// The text without `!=`.
    pub(crate) fact: Arc<str>,
    pub(crate) not: bool,
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
        text: Option<Box<ComparisonText>>,
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
        /// The new element's checks.
        checks: ElementChecks,
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
    /// A result that is the same for all packets.
    Constant(bool),
    UnknownMatch {
        name: Arc<str>,
        text: Arc<str>,
    },
    NotModelled(Arc<str>),
}

impl CompiledStatement {
    /// Whether the statement only matches, without memory.
    pub(crate) fn is_pure(&self) -> bool {
        match self {
            CompiledStatement::Compare { left, .. } => !left.iter().any(CompiledExpr::draws),
            CompiledStatement::Constant(_) | CompiledStatement::UnknownMatch { .. } => true,
            _ => false,
        }
    }
}

/// `Limit`, `Constant` and `UnknownMatch` of an element, in order.
pub(crate) type ElementChecks = Option<Arc<[CompiledStatement]>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryContent {
    Nothing,
    Verdict(CompiledVerdict),
    Data(Vec<u128>),
}

#[derive(Debug, Clone)]
pub(crate) struct SetEntry {
    /// The position in the listing; `None`: a rule has added it.
    pub(crate) at: Option<usize>,
    pub(crate) content: EntryContent,
    /// Milliseconds.
    pub(crate) expires: Option<u64>,
    pub(crate) checks: ElementChecks,
}

pub(crate) type SetName = (TableFamily, String, String);

#[derive(Debug, Clone, Default)]
pub(crate) struct CompiledSet {
    /// `None`: an anonymous set, which rules cannot change.
    pub(crate) name: Option<SetName>,
    pub(crate) exact: HashMap<Vec<u128>, SetEntry>,
    pub(crate) ranges: Vec<(Vec<(u128, u128)>, SetEntry)>,
    pub(crate) any: Option<SetEntry>,
    /// Checks of elements that rules add without their own.
    pub(crate) checks: ElementChecks,
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
    pub(crate) beside: BesideIptables,
}

/// When a chain runs, relative to the iptables table of equal priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BesideIptables {
    /// The chain is younger.
    Before,
    After,
    /// No listing has both.
    Unknown,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct AtHook {
    pub(crate) filters: Vec<BaseChainRef>,
    pub(crate) nats: Vec<BaseChainRef>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceChain {
    /// An interface; `None`: the listing does not have the chain's devices.
    pub(crate) device: Option<usize>,
    pub(crate) base: BaseChainRef,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct NftProgram {
    pub(crate) ruleset: Arc<Ruleset>,
    pub(crate) tables: Vec<NftCompiledTable>,
    pub(super) v4: [AtHook; 5],
    pub(super) v6: [AtHook; 5],
    pub(crate) ingress: Vec<DeviceChain>,
    pub(crate) egress: Vec<DeviceChain>,
    /// Chains of family bridge, by hook.
    pub(crate) bridge: [Vec<BaseChainRef>; 5],
    /// Chains of family arp, by hook.
    pub(crate) arp: [Vec<BaseChainRef>; 5],
}

impl CompiledExpr {
    /// Whether the value is random or counted.
    pub(crate) fn draws(&self) -> bool {
        match self {
            CompiledExpr::Random { .. } | CompiledExpr::Rotation { .. } => true,
            CompiledExpr::Hash { key: Some(key), seed: Some(_), .. } => key.iter().any(|(load, _)| load.draws()),
            CompiledExpr::Hash { .. } => true,
            CompiledExpr::Binary(_, left, right, _) => left.draws() || right.draws(),
            CompiledExpr::Map { key, .. } => key.iter().any(CompiledExpr::draws),
            CompiledExpr::Constant(_) | CompiledExpr::Field(_) | CompiledExpr::NotModelled(_) => false,
        }
    }

    /// Whether the value may be unknown.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            CompiledExpr::NotModelled(_) | CompiledExpr::Field(PacketField::Owner | PacketField::Socket) => true,
            CompiledExpr::Binary(_, left, right, _) => left.is_open() || right.is_open(),
            CompiledExpr::Map { key, .. } => key.iter().any(CompiledExpr::is_open),
            _ => false,
        }
    }
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

    /// Whether chains see frames, and ARP packets.
    pub(crate) fn sees_frames(&self) -> bool {
        let by_hook = self.arp.iter().chain(&self.bridge).any(|chains| !chains.is_empty());
        by_hook || !self.ingress.is_empty() || !self.egress.is_empty()
    }

    /// Whether the chain has no rule that decides or changes anything, and accepts.
    pub(crate) fn is_idle(&self, base: BaseChainRef) -> bool {
        let chain = &self.tables[base.table].chains[base.chain];
        chain.policy != Some(ChainPolicy::Drop) && chain.rules.iter().flatten().all(CompiledStatement::is_pure)
    }

    /// `None` for an element that a rule has added, and for anonymous sets.
    pub(crate) fn element(&self, table: usize, set: usize, entry: &SetEntry) -> Option<ElementRef> {
        self.tables[table].sets[set].name.as_ref()?;
        Some(ElementRef::new(&self.ruleset, table, set, entry.at?))
    }

    pub(crate) fn rule(&self, table: usize, chain: usize, rule: Option<usize>) -> RuleRef {
        RuleRef::nft(&self.ruleset, table, chain, rule)
    }

    pub(crate) fn named_sets(&self) -> impl Iterator<Item = &SetName> {
        self.tables.iter().flat_map(|table| &table.sets).filter_map(|set| set.name.as_ref())
    }
}
