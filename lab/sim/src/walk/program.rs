//! Rules compiled for walking: names are numbers, comments are gone, jumps lead to places.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::masked::{Masked, bits};
use crate::protocol::Protocol;
use crate::rules::header::{Header, InterfacePattern};
use crate::rules::matches::{
    Addrtype, Conntrack, Icmp, IpRange, Limit, Match, Multiport, Ports, Recent, RecentAction, Rpfilter, Side, Statistic,
};
use crate::rules::nat::NatRange;
use crate::rules::target::{ConnmarkAction, RejectWith};
use crate::rules::{Policy, Rule, Rules, TableName, Target, Test};
use crate::set::Lookup;
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
pub(crate) struct Interfaces(Test<Box<[bool]>>);

impl Interfaces {
    fn new(test: &Test<InterfacePattern>, names: &[Arc<str>]) -> Interfaces {
        Interfaces(Test { not: test.not, is: names.iter().map(|name| test.is.matches(name)).collect() })
    }

    /// Without an interface only an inverted test holds.
    pub(crate) fn holds(&self, interface: Option<usize>) -> bool {
        self.0.judge(interface.and_then(|at| self.0.is.get(at)).copied().unwrap_or(false))
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
    Random { not: bool, threshold: u32 },
    Nth { not: bool, every: u32, first: u32, counter: usize },
    Recent(RecentCheck),
    Set { not: bool, set: usize, sides: Vec<Side>, return_nomatch: bool },
    Addrtype(Addrtype),
    Ports(Ports),
    Multiport(Multiport),
    Physdev(PhysdevCheck),
    Icmp(Icmp),
    IpRange(IpRange),
    Rpfilter(Rpfilter),
    Limit { limit: Limit, counter: usize },
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
    Mark { value: u32, mask: u32 },
    Connmark { action: ConnmarkAction, value: u32, mask: u32 },
    Dnat(NatRange),
    Snat(NatRange),
    Masquerade(NatRange),
    Redirect(NatRange),
    Notrack,
}

/// A rule.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) source: Option<Test<Masked>>,
    pub(crate) destination: Option<Test<Masked>>,
    pub(crate) protocol: Option<Test<Protocol>>,
    pub(crate) input: Option<Interfaces>,
    pub(crate) output: Option<Interfaces>,
    /// Asks for fragments, of which there are none.
    pub(crate) never: bool,
    pub(crate) checks: Box<[Check]>,
    pub(crate) action: Action,
}

#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) policy: Option<Policy>,
    pub(crate) steps: Vec<Step>,
}

/// A table.
#[derive(Debug, Clone)]
pub(crate) struct CompiledTable {
    /// Its place among the rules' tables.
    pub(crate) place: usize,
    pub(crate) chains: Vec<Block>,
    /// Places of the built-in chains, by name.
    entries: BTreeMap<&'static str, usize>,
}

impl CompiledTable {
    pub(crate) fn entry(&self, name: &str) -> Option<usize> {
        self.entries.get(name).copied()
    }
}

/// The rules of a family.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) rules: Arc<Rules>,
    tables: [Option<CompiledTable>; 5],
}

struct Compiler<'a> {
    names: &'a [Arc<str>],
    sets: &'a [Lookup],
    counters: usize,
}

impl Program {
    pub(crate) fn compile(rules: &Arc<Rules>, names: &[Arc<str>], sets: &[Lookup]) -> Result<Program, CompileError> {
        let mut compiler = Compiler { names, sets, counters: 0 };
        let mut tables: [Option<CompiledTable>; 5] = [const { None }; 5];
        for (place, table) in rules.tables.iter().enumerate() {
            tables[table.name as usize] = Some(compiler.table(place, table)?);
        }
        Ok(Program { rules: Arc::clone(rules), tables })
    }

    pub(crate) fn table(&self, name: TableName) -> Option<&CompiledTable> {
        self.tables[name as usize].as_ref()
    }

    pub(crate) fn rule(&self, table: &CompiledTable, chain: usize, rule: usize) -> RuleRef {
        RuleRef { rules: Arc::clone(&self.rules), table: table.place, chain, rule: Some(rule) }
    }
}

impl Compiler<'_> {
    fn table(&mut self, place: usize, table: &crate::rules::Table) -> Result<CompiledTable, CompileError> {
        let index: BTreeMap<&str, usize> =
            table.chains.iter().enumerate().map(|(at, chain)| (chain.name.as_str(), at)).collect();
        let mut chains = Vec::with_capacity(table.chains.len());
        for chain in &table.chains {
            let steps = chain.rules.iter().map(|rule| self.step(table.name, rule, &index));
            chains.push(Block { policy: chain.policy, steps: steps.collect::<Result<_, _>>()? });
        }
        let built_in = table.name.built_in().iter();
        let entries = built_in.filter_map(|name| index.get(name).map(|at| (*name, *at))).collect();
        let compiled = CompiledTable { place, chains, entries };
        match super::cycle::find(&compiled.chains) {
            Some(at) => Err(CompileError::Loop { table: table.name, chain: table.chains[at].name.clone() }),
            None => Ok(compiled),
        }
    }

    fn step(&mut self, table: TableName, rule: &Rule, index: &BTreeMap<&str, usize>) -> Result<Step, CompileError> {
        let Header { source, destination, input, output, protocol, fragment } = &rule.header;
        let mut checks = Vec::new();
        for one in &rule.matches {
            checks.extend(self.check(one).map_err(|set| CompileError::NoSet { table, line: rule.line, set })?);
        }
        let place = |chain: &String| {
            let missing = || CompileError::NoChain { table, line: rule.line, chain: chain.clone() };
            index.get(chain.as_str()).copied().ok_or_else(missing)
        };
        let action = match &rule.target {
            Target::None | Target::NoEffect { .. } => Action::Continue,
            Target::Accept => Action::Accept,
            Target::Drop => Action::Drop,
            Target::Return => Action::Return,
            Target::Jump(chain) => Action::Jump(place(chain)?),
            Target::Goto(chain) => Action::Goto(place(chain)?),
            Target::Reject(with) => Action::Reject(*with),
            Target::Mark { value, mask } => Action::Mark { value: *value, mask: *mask },
            Target::Connmark { action, value, mask } => {
                Action::Connmark { action: *action, value: *value, mask: *mask }
            }
            Target::Dnat(range) => Action::Dnat(*range),
            Target::Snat(range) => Action::Snat(*range),
            Target::Masquerade(range) => Action::Masquerade(*range),
            Target::Redirect(range) => Action::Redirect(*range),
            Target::Notrack(_) => Action::Notrack,
        };
        Ok(Step {
            source: *source,
            destination: *destination,
            protocol: *protocol,
            input: input.as_ref().map(|test| Interfaces::new(test, self.names)),
            output: output.as_ref().map(|test| Interfaces::new(test, self.names)),
            never: *fragment == Some(false),
            checks: checks.into(),
            action,
        })
    }

    /// The check of a match that can fail; the error is the name of a set that is missing.
    fn check(&mut self, one: &Match) -> Result<Option<Check>, String> {
        Ok(Some(match one {
            Match::Comment(_) | Match::Nfacct(_) => return Ok(None),
            Match::Conntrack(conntrack, _) => Check::Conntrack(conntrack.clone()),
            Match::Mark(test) => Check::Mark(*test),
            Match::Connmark(test) => Check::Connmark(*test),
            Match::Statistic(Statistic::Random { not, threshold }) => {
                Check::Random { not: *not, threshold: *threshold }
            }
            Match::Statistic(Statistic::Nth { not, every, packet }) => {
                self.counters += 1;
                // libxt_statistic: count = every - packet - 1, so that packet number `packet` is the first to match.
                let first = every - 1 - packet;
                Check::Nth { not: *not, every: *every, first, counter: self.counters - 1 }
            }
            Match::Recent(recent) => Check::Recent(self::recent(recent)),
            Match::Set(set) => {
                let at = self.sets.iter().position(|known| known.name == set.set);
                let at = at.ok_or_else(|| set.set.clone())?;
                Check::Set { not: set.not, set: at, sides: set.sides.clone(), return_nomatch: set.return_nomatch }
            }
            Match::Addrtype(addrtype) => Check::Addrtype(addrtype.clone()),
            Match::Ports(ports) => Check::Ports(ports.clone()),
            Match::Multiport(multiport) => Check::Multiport(multiport.clone()),
            Match::Physdev(physdev) => {
                let resolve =
                    |test: &Option<Test<InterfacePattern>>| test.as_ref().map(|test| Interfaces::new(test, self.names));
                Check::Physdev(PhysdevCheck {
                    input: resolve(&physdev.input),
                    output: resolve(&physdev.output),
                    is_in: physdev.is_in,
                    is_out: physdev.is_out,
                    is_bridged: physdev.is_bridged,
                })
            }
            Match::Icmp(icmp) => Check::Icmp(*icmp),
            Match::Rpfilter(rpfilter) => Check::Rpfilter(*rpfilter),
            Match::Limit(limit) => {
                self.counters += 1;
                Check::Limit { limit: *limit, counter: self.counters - 1 }
            }
            Match::IpRange(range) => Check::IpRange(range.clone()),
        }))
    }
}

fn recent(recent: &Recent) -> RecentCheck {
    RecentCheck {
        action: recent.action,
        not: recent.not,
        seconds: recent.seconds,
        reap: recent.reap,
        hitcount: recent.hitcount.unwrap_or(0),
        list: recent.list.as_str().into(),
        mask: bits(recent.mask),
        destination: recent.destination,
    }
}
