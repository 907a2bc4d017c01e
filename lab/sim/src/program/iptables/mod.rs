pub(crate) mod compile;
mod loops;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::masked::Masked;
use crate::protocol::Protocol;
use crate::rules::ct::Zone;
use crate::rules::header::InterfacePattern;
use crate::rules::matches::{
    Addrtype, Conntrack, HopLimit, Icmp, IpRange, Ipvs, Limit, MacAddress, Multiport, NumberRange, Owner, PacketType,
    PortMatch, RecentAction, Rpfilter, Side, SocketMatch,
};
use crate::rules::nat::NatRange;
use crate::rules::target::{Connmark, HopLimitChange, RejectWith};
use crate::rules::{ChainPolicy, Rules, TableName, Test};
use crate::trace::RuleRef;

/// Missing sets or chains, or loops.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub enum CompileError {
    #[error("table {table}, line {line}: unknown set {set:?}")]
    NoSet { table: TableName, line: usize, set: String },
    /// A missing chain; occurs only in rules changed after reading.
    #[error("table {table}, line {line}: unknown chain {chain:?}")]
    NoChain { table: TableName, line: usize, chain: String },
    /// A loop, which the kernel refuses.
    #[error("table {table}: chain {chain:?} reaches itself")]
    Loop { table: TableName, chain: String },
}

#[derive(Debug, Clone)]
pub(crate) struct Interfaces {
    pub(super) test: Test<Box<[bool]>>,
    pub(super) unknown: Option<Box<(InterfacePattern, Box<[bool]>)>>,
}

impl Interfaces {
    pub(crate) fn holds(&self, interface: Option<usize>) -> bool {
        self.test.judge(interface.and_then(|at| self.test.is.get(at)).copied().unwrap_or(false))
    }

    pub(crate) fn unknown_of(&self, interface: usize) -> Option<&InterfacePattern> {
        let (pattern, unknown) = &**self.unknown.as_ref()?;
        unknown.get(interface).is_some_and(|unknown| *unknown).then_some(pattern)
    }

    pub(crate) fn is_not(&self) -> bool {
        self.test.not
    }
}

#[derive(Debug, Clone)]
pub(crate) struct PhysdevCheck {
    pub(crate) input: Option<Interfaces>,
    pub(crate) output: Option<Interfaces>,
    pub(crate) is_in: Option<Test<()>>,
    pub(crate) is_out: Option<Test<()>>,
    pub(crate) is_bridged: Option<Test<()>>,
}

#[derive(Debug, Clone)]
pub(crate) struct RecentCheck {
    pub(crate) action: RecentAction,
    pub(crate) not: bool,
    pub(crate) seconds: Option<u32>,
    pub(crate) reap: bool,
    pub(crate) hitcount: u32,
    pub(crate) list: Arc<str>,
    pub(crate) mask: u128,
    pub(crate) destination: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Check {
    Conntrack(Conntrack),
    Mark(Test<(u32, u32)>),
    Connmark(Test<(u32, u32)>),
    Random {
        not: bool,
        threshold: u32,
    },
    Nth {
        not: bool,
        every: u32,
        first: u32,
        counter: usize,
    },
    Recent(RecentCheck),
    /// `open`: whether the result may be unknown, because the set does not tell or rules change it.
    Set {
        not: bool,
        set: usize,
        sides: Vec<Side>,
        return_nomatch: bool,
        open: bool,
    },
    Addrtype(Addrtype),
    Ports(PortMatch),
    Multiport(Multiport),
    Physdev(PhysdevCheck),
    Icmp(Icmp),
    IpRange(IpRange),
    Rpfilter(Rpfilter),
    Limit {
        limit: Limit,
        counter: usize,
    },
    Constant(bool),
    Ipvs(Ipvs),
    PacketType(Test<PacketType>),
    Open(OpenCheck),
}

#[derive(Debug, Clone)]
pub(crate) enum OpenCheck {
    Owner(Owner),
    Socket(SocketMatch),
    Mac(Test<MacAddress>),
    Length(Test<NumberRange>),
    TcpMss(Test<NumberRange>),
    HopLimit(HopLimit),
    /// A bridge port with a placeholder name.
    Port {
        input: bool,
        test: Interfaces,
    },
    /// The result is unknown for all packets.
    Unknown {
        name: Arc<str>,
        why: Arc<str>,
    },
}

impl Check {
    pub(crate) fn may_be_unknown(&self) -> bool {
        match self {
            Check::Open(_) => true,
            Check::Set { open, .. } => *open,
            _ => false,
        }
    }

    pub(crate) fn has_effect(&self) -> bool {
        matches!(self, Check::Random { .. } | Check::Nth { .. } | Check::Recent(_) | Check::Limit { .. })
    }
}

/// A target; chains are indexes.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Continue,
    Accept,
    Drop,
    Return,
    Jump(usize),
    Goto(usize),
    Reject(RejectWith),
    Mark {
        value: u32,
        mask: u32,
    },
    Connmark(Connmark),
    Dnat(NatRange),
    Snat(NatRange),
    Masquerade(NatRange),
    Redirect(NatRange),
    Netmap(Box<Masked>),
    HopLimit(HopLimitChange),
    Notrack,
    Track(Zone),
    ChangeSets(Box<[Arc<str>]>),
    /// `name`: how assumptions name the target.
    Unknown {
        name: Option<Arc<str>>,
        why: Arc<str>,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct InterfaceTests {
    pub(crate) input: Option<Interfaces>,
    pub(crate) output: Option<Interfaces>,
}

#[derive(Debug, Clone)]
pub(crate) struct UndecidedChecks {
    pub(crate) sources: Box<[usize]>,
}

#[derive(Debug, Clone)]
pub(crate) struct CompiledRule {
    pub(crate) source: Option<Test<Masked>>,
    pub(crate) destination: Option<Test<Masked>>,
    pub(crate) protocol: Option<Test<Protocol>>,
    pub(crate) ends: Option<Box<InterfaceTests>>,
    pub(crate) never: bool,
    pub(crate) checks: Box<[Check]>,
    pub(crate) action: Action,
    pub(crate) undecided: Option<Box<UndecidedChecks>>,
}

#[derive(Debug, Clone)]
pub(crate) struct CompiledChain {
    pub(crate) policy: Option<ChainPolicy>,
    pub(crate) steps: Vec<CompiledRule>,
}

#[derive(Debug, Clone)]
pub(crate) struct CompiledTable {
    pub(crate) place: usize,
    pub(crate) chains: Vec<CompiledChain>,
    pub(super) entries: BTreeMap<&'static str, usize>,
}

impl CompiledTable {
    pub(crate) fn entry(&self, name: &str) -> Option<usize> {
        self.entries.get(name).copied()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct IptablesProgram {
    pub(crate) rules: Arc<Rules>,
    pub(super) tables: [Option<CompiledTable>; 5],
}

impl IptablesProgram {
    pub(crate) fn table(&self, name: TableName) -> Option<&CompiledTable> {
        self.tables[name as usize].as_ref()
    }

    pub(crate) fn rule(&self, table: &CompiledTable, chain: usize, rule: usize) -> RuleRef {
        RuleRef::iptables(&self.rules, table.place, chain, rule)
    }
}
