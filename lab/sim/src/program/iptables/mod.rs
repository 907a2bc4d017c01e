//! Rules compiled for walking: names are numbers, comments are gone, jumps lead to places.

pub(crate) mod compile;
mod loops;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::masked::Masked;
use crate::protocol::Protocol;
use crate::rules::ct::Zone;
use crate::rules::header::InterfacePattern;
use crate::rules::matches::{
    Addrtype, Conntrack, Icmp, IpRange, Limit, MacAddress, Multiport, Owner, PacketType, PortMatch, RecentAction,
    Rpfilter, Side, Sizes, SocketMatch,
};
use crate::rules::nat::NatRange;
use crate::rules::target::{ConnmarkAction, RejectWith};
use crate::rules::{ChainPolicy, Rules, TableName, Test};
use crate::trace::RuleRef;

/// What rules ask for that the machine does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A set.
    #[error("table {table}, line {line}: there is no set {set:?}")]
    NoSet {
        /// The table.
        table: TableName,
        /// The line of the rule.
        line: usize,
        /// The set.
        set: String,
    },
    /// A chain; only in rules that were changed after they were read.
    #[error("table {table}, line {line}: there is no chain {chain:?}")]
    NoChain {
        /// The table.
        table: TableName,
        /// The line of the rule.
        line: usize,
        /// The chain.
        chain: String,
    },
    /// Chains that call each other in a circle, which the kernel refuses.
    #[error("table {table}: chain {chain:?} calls itself")]
    Loop {
        /// The table.
        table: TableName,
        /// The chain.
        chain: String,
    },
}

/// Which of the machine's interfaces a pattern means.
#[derive(Debug, Clone)]
pub(crate) struct Interfaces {
    pub(super) test: Test<Box<[bool]>>,
    /// The pattern, and of which interfaces nobody knows whether it means them; only if there are such.
    pub(super) unknown: Option<Box<(InterfacePattern, Box<[bool]>)>>,
}

impl Interfaces {
    /// Without an interface only an inverted test holds.
    pub(crate) fn holds(&self, interface: Option<usize>) -> bool {
        self.test.judge(interface.and_then(|at| self.test.is.get(at)).copied().unwrap_or(false))
    }

    /// The pattern, if nobody knows whether it means this interface.
    pub(crate) fn unknown_of(&self, interface: usize) -> Option<&InterfacePattern> {
        let (pattern, unknown) = &**self.unknown.as_ref()?;
        unknown.get(interface).is_some_and(|unknown| *unknown).then_some(pattern)
    }

    /// Whether it is turned around.
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
    /// Its name: lists outlive the rules that use them, and both families share them.
    pub(crate) list: Arc<str>,
    pub(crate) mask: u128,
    pub(crate) destination: bool,
}

/// A match, ready to be asked.
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
    /// `changes`: a rule of the machine's changes the set.
    Set {
        not: bool,
        set: usize,
        sides: Vec<Side>,
        return_nomatch: bool,
        changes: bool,
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
    /// Always the same.
    Constant(bool),
    PacketType(Test<PacketType>),
    Open(OpenCheck),
}

/// A match that some packets leave open: nobody knows the answer.
#[derive(Debug, Clone)]
pub(crate) enum OpenCheck {
    Owner(Owner),
    Socket(SocketMatch),
    Mac(Test<MacAddress>),
    Length(Test<Sizes>),
    TcpMss(Test<Sizes>),
    /// `more`: something is asked of the connection.
    Ipvs {
        handled: Option<Test<()>>,
        more: bool,
    },
    /// The port of a bridge by which the packet came in, or leaves, where that may be an invented interface.
    Port {
        input: bool,
        test: Interfaces,
    },
    /// Nobody can answer it; its name, and what it asks for.
    Unknown {
        name: Arc<str>,
        why: Arc<str>,
    },
}

impl Check {
    /// Whether there are packets for which nobody knows the answer.
    pub(crate) fn may_be_unknown(&self) -> bool {
        match self {
            Check::Open(_) => true,
            Check::Set { changes, .. } => *changes,
            _ => false,
        }
    }

    /// Whether asking it draws, or changes what the next one who asks hears.
    pub(crate) fn has_effect(&self) -> bool {
        matches!(self, Check::Random { .. } | Check::Nth { .. } | Check::Recent(_) | Check::Limit { .. })
    }
}

/// A target, ready to be done. Chains are places in the table.
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
    Connmark {
        action: ConnmarkAction,
        value: u32,
        mask: u32,
        shift: i8,
    },
    Dnat(NatRange),
    Snat(NatRange),
    Masquerade(NatRange),
    Redirect(NatRange),
    Netmap(Box<Masked>),
    Notrack,
    Track(Zone),
    ChangeSets(Box<[Arc<str>]>),
    /// What nobody knows the effect of: its name if an assumption can decide it, and what it does.
    Unknown {
        name: Option<Arc<str>>,
        why: Arc<str>,
    },
}

/// `-i` and `-o`.
#[derive(Debug, Clone)]
pub(crate) struct InterfaceTests {
    pub(crate) input: Option<Interfaces>,
    pub(crate) output: Option<Interfaces>,
}

/// What is kept of a rule for which there are packets of which nobody knows whether it matches.
#[derive(Debug, Clone)]
pub(crate) struct UndecidedChecks {
    /// For each check, which of the rule's matches it is.
    pub(crate) sources: Box<[usize]>,
}

/// A rule. Walks go over thousands of these, so what few rules have is behind a pointer.
#[derive(Debug, Clone)]
pub(crate) struct CompiledRule {
    pub(crate) source: Option<Test<Masked>>,
    pub(crate) destination: Option<Test<Masked>>,
    pub(crate) protocol: Option<Test<Protocol>>,
    /// The interfaces that it asks for, if any.
    pub(crate) ends: Option<Box<InterfaceTests>>,
    /// Asks for fragments, of which there are none.
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

/// A table.
#[derive(Debug, Clone)]
pub(crate) struct CompiledTable {
    /// Its place among the rules' tables.
    pub(crate) place: usize,
    pub(crate) chains: Vec<CompiledChain>,
    /// Places of the built-in chains, by name.
    pub(super) entries: BTreeMap<&'static str, usize>,
}

impl CompiledTable {
    pub(crate) fn entry(&self, name: &str) -> Option<usize> {
        self.entries.get(name).copied()
    }
}

/// The rules of a family.
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
