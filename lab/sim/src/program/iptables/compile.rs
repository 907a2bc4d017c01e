use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    Action, Check, CompileError, CompiledChain, CompiledRule, CompiledTable, InterfaceTests, Interfaces,
    IptablesProgram, OpenCheck, PhysdevCheck, RecentCheck, UndecidedChecks,
};
use crate::masked::bits;
use crate::rules::ct::{Zone, ZoneId, ZoneOf};
use crate::rules::header::{InterfacePattern, RuleHeader};
use crate::rules::matches::{Match, Physdev, Recent, Statistic};
use crate::rules::{Rule, RuleTarget, Rules, TableName, Test, unmodelled};
use crate::set::CompiledIpSet;

pub(crate) struct MachineNames<'a> {
    pub(crate) names: &'a [Arc<str>],
    pub(crate) invented: Vec<bool>,
    pub(crate) sets: &'a [CompiledIpSet],
    pub(crate) changing: Vec<&'a str>,
    pub(crate) other_sets: bool,
}

impl<'a> MachineNames<'a> {
    pub(crate) fn changing(rules: &'a Rules) -> impl Iterator<Item = &'a str> {
        let rules = rules.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
        rules
            .filter_map(|rule| if let RuleTarget::Set(set) = &rule.target { Some(set) } else { None })
            .flat_map(|set| set.changes())
    }

    fn interfaces(&self, test: &Test<InterfacePattern>) -> Interfaces {
        let means = self.names.iter().map(|name| test.is.matches(name));
        let exists = |name: &str| self.names.iter().zip(&self.invented).any(|(known, new)| !new && **known == *name);
        let (any, certain) = (test.is.0 == "+", exists(&test.is.0));
        let unknown: Box<[bool]> = self.invented.iter().map(|invented| *invented && !any && !certain).collect();
        let unknown = unknown.contains(&true).then(|| Box::new((test.is.clone(), unknown)));
        Interfaces { test: Test { not: test.not, is: means.collect() }, unknown }
    }
}

struct Compiler<'a> {
    machine: &'a MachineNames<'a>,
    counters: usize,
}

pub(crate) fn compile(
    rules: &Arc<Rules>,
    machine: &MachineNames<'_>,
    first_counter: usize,
) -> Result<IptablesProgram, CompileError> {
    let mut compiler = Compiler { machine, counters: first_counter };
    let mut tables: [Option<CompiledTable>; 5] = [const { None }; 5];
    for (place, table) in rules.tables.iter().enumerate() {
        tables[table.name as usize] = Some(compiler.table(place, table)?);
    }
    Ok(IptablesProgram { rules: Arc::clone(rules), tables })
}

impl Compiler<'_> {
    fn table(&mut self, place: usize, table: &crate::rules::Table) -> Result<CompiledTable, CompileError> {
        let index: BTreeMap<&str, usize> =
            table.chains.iter().enumerate().map(|(at, chain)| (chain.name.as_str(), at)).collect();
        let mut chains = Vec::with_capacity(table.chains.len());
        for chain in &table.chains {
            let steps = chain.rules.iter().map(|rule| self.step(table.name, rule, &index));
            chains.push(CompiledChain { policy: chain.policy, steps: steps.collect::<Result<_, _>>()? });
        }
        let built_in = table.name.built_in().iter();
        let entries = built_in.filter_map(|name| index.get(name).map(|at| (*name, *at))).collect();
        let compiled = CompiledTable { place, chains, entries };
        match super::loops::find(&compiled.chains) {
            Some(at) => Err(CompileError::Loop { table: table.name, chain: table.chains[at].name.clone() }),
            None => Ok(compiled),
        }
    }

    fn step(
        &mut self,
        table: TableName,
        rule: &Rule,
        index: &BTreeMap<&str, usize>,
    ) -> Result<CompiledRule, CompileError> {
        let RuleHeader { source, destination, input, output, protocol, fragment } = &rule.header;
        let (mut checks, mut sources) = (Vec::new(), Vec::new());
        let no_set = |set| CompileError::NoSet { table, line: rule.line, set };
        for (at, one) in rule.matches.iter().enumerate() {
            self.check(one, &mut checks).map_err(no_set)?;
            sources.resize(checks.len(), at);
        }
        let [input, output] = [input, output].map(|test| test.as_ref().map(|test| self.machine.interfaces(test)));
        let undecided = [&input, &output].into_iter().flatten().any(|test| test.unknown.is_some())
            || checks.iter().any(Check::may_be_unknown);
        let some = input.is_some() || output.is_some();
        let ends = some.then(|| Box::new(InterfaceTests { input, output }));
        Ok(CompiledRule {
            source: *source,
            destination: *destination,
            protocol: *protocol,
            ends,
            never: *fragment == Some(false),
            checks: checks.into(),
            action: self.action(table, rule, index)?,
            undecided: undecided.then(|| Box::new(UndecidedChecks { sources: sources.into() })),
        })
    }

    fn action(&self, table: TableName, rule: &Rule, index: &BTreeMap<&str, usize>) -> Result<Action, CompileError> {
        let place = |chain: &String| {
            let missing = || CompileError::NoChain { table, line: rule.line, chain: chain.clone() };
            index.get(chain.as_str()).copied().ok_or_else(missing)
        };
        Ok(match &rule.target {
            RuleTarget::None | RuleTarget::NoEffect { .. } => Action::Continue,
            RuleTarget::Accept => Action::Accept,
            RuleTarget::Drop => Action::Drop,
            RuleTarget::Return => Action::Return,
            RuleTarget::Jump(chain) => Action::Jump(place(chain)?),
            RuleTarget::Goto(chain) => Action::Goto(place(chain)?),
            RuleTarget::Reject(with) => Action::Reject(*with),
            RuleTarget::Mark { value, mask } => Action::Mark { value: *value, mask: *mask },
            RuleTarget::Connmark(connmark) => Action::Connmark(*connmark),
            RuleTarget::Dnat(range) => Action::Dnat(*range),
            RuleTarget::Snat(range) => Action::Snat(*range),
            RuleTarget::Masquerade(range) => Action::Masquerade(*range),
            RuleTarget::Redirect(range) => Action::Redirect(*range),
            RuleTarget::Netmap(network) => Action::Netmap(Box::new(*network)),
            RuleTarget::HopLimit(change) => Action::HopLimit(*change),
            RuleTarget::Notrack(_) => Action::Notrack,
            RuleTarget::Ct(ct) => Action::Track(ct.zone.unwrap_or(Zone { id: ZoneId::Number(0), of: ZoneOf::Both })),
            RuleTarget::External(external) => {
                let name = (external.name == "NFQUEUE").then(|| external.name.into());
                Action::Unknown { name, why: external.effect().into() }
            }
            RuleTarget::Set(set) if set.maps() => {
                Action::Unknown { name: None, why: "takes unmodelled values from an element".into() }
            }
            RuleTarget::Set(set) => {
                let changes = set.changes().map(|name| {
                    self.set(name).map_err(|set| CompileError::NoSet { table, line: rule.line, set })?;
                    Ok(name.into())
                });
                Action::ChangeSets(changes.collect::<Result<_, _>>()?)
            }
            RuleTarget::Unknown { .. } => {
                Action::Unknown { name: None, why: "is not modelled, or not with these options".into() }
            }
        })
    }

    /// Returns a set's index; `None` if it is missing and further sets may exist.
    fn set(&self, name: &str) -> Result<Option<usize>, String> {
        match self.machine.sets.iter().position(|known| known.name == name) {
            None if !self.machine.other_sets => Err(name.to_owned()),
            place => Ok(place),
        }
    }

    /// Whether matches on the set or one of its members may be unknown.
    fn is_open(&self, set: usize) -> bool {
        let sets = self.machine.sets;
        let members = sets[set].members.iter().flatten().map(|(member, _)| *member);
        members
            .chain([set])
            .any(|at| sets[at].may_be_unknown() || self.machine.changing.contains(&sets[at].name.as_str()))
    }

    fn check(&mut self, one: &Match, checks: &mut Vec<Check>) -> Result<(), String> {
        checks.push(match one {
            Match::Comment(_) | Match::Nfacct(_) => return Ok(()),
            Match::Conntrack(conntrack, _) => Check::Conntrack(conntrack.clone()),
            Match::Mark(test) => Check::Mark(*test),
            Match::Connmark(test) => Check::Connmark(*test),
            Match::Statistic(Statistic::Random { not, threshold }) => {
                Check::Random { not: *not, threshold: *threshold }
            }
            Match::Statistic(Statistic::Nth { not, every, packet }) => {
                self.counters += 1;
                // libxt_statistic stores the number so that packet `packet` matches first.
                let first = every - 1 - packet;
                Check::Nth { not: *not, every: *every, first, counter: self.counters - 1 }
            }
            Match::Recent(recent) => Check::Recent(self::recent(recent)),
            Match::Set(set) => {
                let (not, sides, return_nomatch) = (set.not, set.sides.clone(), set.return_nomatch);
                match self.set(&set.set)? {
                    Some(set) => Check::Set { not, set, sides, return_nomatch, open: self.is_open(set) },
                    None => {
                        let (name, why) = ("set".into(), "matches a set that is not given".into());
                        Check::Open(OpenCheck::Unknown { name, why })
                    }
                }
            }
            Match::Addrtype(addrtype) => Check::Addrtype(addrtype.clone()),
            Match::Ports(ports) => Check::Ports(ports.clone()),
            Match::Multiport(multiport) => Check::Multiport(multiport.clone()),
            Match::Physdev(physdev) => {
                self.physdev(physdev, checks);
                return Ok(());
            }
            Match::Icmp(icmp) => Check::Icmp(*icmp),
            Match::Rpfilter(rpfilter) => Check::Rpfilter(*rpfilter),
            Match::Limit(limit) => {
                self.counters += 1;
                Check::Limit { limit: *limit, counter: self.counters - 1 }
            }
            Match::IpRange(range) => Check::IpRange(range.clone()),
            Match::Owner(owner) => Check::Open(OpenCheck::Owner(*owner)),
            Match::Socket(socket) => Check::Open(OpenCheck::Socket(*socket)),
            // Judged for the first packet on an idle machine.
            Match::Hashlimit(limit) => Check::Constant(!limit.above),
            Match::Connlimit(limit) => Check::Constant(limit.holds_for_one()),
            Match::Mac(test) => Check::Open(OpenCheck::Mac(*test)),
            Match::PacketType(test) => Check::PacketType(*test),
            Match::Length(test) => Check::Open(OpenCheck::Length(*test)),
            Match::TcpMss(test) => Check::Open(OpenCheck::TcpMss(*test)),
            // Judged without IPsec.
            Match::Policy(policy) => Check::Constant(policy.none),
            Match::Ipvs(ipvs) => Check::Ipvs(ipvs.clone()),
            Match::ExtensionHeader(header) => Check::Constant(header.matches_without()),
            Match::HopLimit(limit) => Check::Open(OpenCheck::HopLimit(*limit)),
            Match::Unknown { name, .. } => {
                let why = unmodelled::match_reason(name).into();
                Check::Open(OpenCheck::Unknown { name: name.as_str().into(), why })
            }
        });
        Ok(())
    }

    fn physdev(&self, physdev: &Physdev, checks: &mut Vec<Check>) {
        let mut known = PhysdevCheck {
            input: None,
            output: None,
            is_in: physdev.is_in,
            is_out: physdev.is_out,
            is_bridged: physdev.is_bridged,
        };
        let mut undecided = Vec::new();
        for (input, test) in [(true, &physdev.input), (false, &physdev.output)] {
            let Some(test) = test.as_ref().map(|test| self.machine.interfaces(test)) else { continue };
            match (test.unknown.is_some(), input) {
                (true, _) => undecided.push(Check::Open(OpenCheck::Port { input, test })),
                (false, true) => known.input = Some(test),
                (false, false) => known.output = Some(test),
            }
        }
        checks.push(Check::Physdev(known));
        checks.append(&mut undecided);
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
