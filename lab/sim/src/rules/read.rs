use std::collections::BTreeMap;

use super::error::{ParseResult, Problem, RuleReadError};
use super::rule_line::{self, UnknownPolicy};
use super::target::RuleTarget;
use super::tokens::{self, OptionReader};
use super::{Chain, ChainPolicy, RuleCounters, Rules, Table, TableName};
use crate::protocol::Family;

struct OpenTable {
    table: Table,
    index: BTreeMap<String, usize>,
}

fn counters(text: &str) -> Option<RuleCounters> {
    let (packets, bytes) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
    Some(RuleCounters { packets: packets.parse().ok()?, bytes: bytes.parse().ok()? })
}

impl OpenTable {
    fn new(name: TableName) -> OpenTable {
        OpenTable { table: Table { name, chains: Vec::new() }, index: BTreeMap::new() }
    }

    fn add(
        &mut self,
        name: &str,
        policy: Option<ChainPolicy>,
        counters: Option<RuleCounters>,
        declared: bool,
    ) -> usize {
        let at = self.table.chains.len();
        self.index.insert(name.to_owned(), at);
        self.table.chains.push(Chain { name: name.to_owned(), policy, counters, declared, rules: Vec::new() });
        at
    }

    /// Reads `:NAME POLICY [packets:bytes]`.
    fn declare(&mut self, line: &str) -> ParseResult<()> {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let built_in = self.table.name.built_in().contains(&name);
        let policy = match (words.next(), built_in) {
            (Some("ACCEPT"), true) => Some(ChainPolicy::Accept),
            (Some("DROP"), true) => Some(ChainPolicy::Drop),
            (Some("-"), false) => None,
            _ => return Err(Problem::Line("a chain is declared as :NAME POLICY, with - for one that is not built in")),
        };
        let counted = match words.next() {
            Some(text) => Some(counters(text).ok_or(Problem::Line("counters are written as [packets:bytes]"))?),
            None => None,
        };
        if self.index.contains_key(name) {
            return Err(Problem::Line("this chain is declared twice"));
        }
        self.add(name, policy, counted, true);
        Ok(())
    }

    fn chain(&mut self, name: &str) -> ParseResult<usize> {
        if let Some(at) = self.index.get(name) {
            return Ok(*at);
        }
        if self.table.name.built_in().contains(&name) {
            return Ok(self.add(name, Some(ChainPolicy::Accept), None, false));
        }
        Err(Problem::Impossible(format!("chain {name} is not declared")))
    }

    /// Reads `[packets:bytes] -A CHAIN …`, `-I CHAIN [NUMBER] …`.
    fn rule(&mut self, line: &str, number: usize, family: Family, unknown: UnknownPolicy) -> ParseResult<()> {
        let (counted, line) = match line.split_once(' ') {
            Some((first, rest)) if first.starts_with('[') => {
                (Some(counters(first).ok_or(Problem::Line("counters are written as [packets:bytes]"))?), rest)
            }
            _ => (None, line),
        };
        let split = tokens::split(line)?;
        let mut words = OptionReader::new(&split);
        let appends = words.option(|word| matches!(word, "-A" | "--append"));
        let inserts = if appends.is_none() { words.option(|word| matches!(word, "-I" | "--insert")) } else { None };
        if appends.or(inserts).is_none() {
            return Err(Problem::Line("a line of a table is a chain (:), a rule (-A, -I) or COMMIT"));
        }
        let name = words.value()?;
        let chain = self.chain(name)?;
        let place = if inserts.is_some() { words.peek().and_then(|word| word.parse::<usize>().ok()) } else { None };
        if place.is_some() {
            words.value()?;
        }
        let mut rule = rule_line::read(&mut words, family, self.table.name, unknown)?;
        (rule.line, rule.counters) = (number, counted);
        let rules = &mut self.table.chains[chain].rules;
        let place = if inserts.is_some() { place.unwrap_or(1) } else { rules.len() + 1 };
        if place == 0 || place > rules.len() + 1 {
            return Err(Problem::Impossible(format!("chain {name} has no position {place}")));
        }
        rules.insert(place - 1, rule);
        Ok(())
    }

    fn close(mut self, unknown: UnknownPolicy) -> Result<Table, (usize, Problem)> {
        for name in self.table.name.built_in() {
            if !self.index.contains_key(*name) {
                self.add(name, Some(ChainPolicy::Accept), None, false);
            }
        }
        for rule in self.table.chains.iter_mut().flat_map(|chain| &mut chain.rules) {
            let (RuleTarget::Jump(to) | RuleTarget::Goto(to)) = &rule.target else {
                continue;
            };
            match self.index.get(to) {
                None if unknown == UnknownPolicy::Kept
                    && matches!(rule.target, RuleTarget::Jump(_))
                    && rule_line::is_name(to) =>
                {
                    rule.target = RuleTarget::Unknown { name: to.clone(), options: String::new() };
                }
                None => return Err((rule.line, Problem::UnknownTarget(to.clone()))),
                Some(_) if self.table.name.built_in().contains(&to.as_str()) => {
                    return Err((rule.line, Problem::Impossible(format!("{to} is called by the kernel only"))));
                }
                Some(_) => {}
            }
        }
        Ok(self.table)
    }
}

fn open(line: &str) -> ParseResult<OpenTable> {
    let found = TableName::ALL.into_iter().find(|table| table.name() == line);
    let table = found.ok_or(Problem::Line("this table is not modelled"))?;
    Ok(OpenTable::new(table))
}

pub(super) fn read(family: Family, text: &str, unknown: UnknownPolicy) -> Result<Rules, RuleReadError> {
    let mut rules = Rules::empty(family);
    let mut current: Option<OpenTable> = None;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let fail = |table: Option<TableName>, line: usize, problem: Problem| {
        let text = line.checked_sub(1).and_then(|at| lines.get(at)).copied().unwrap_or_default().to_owned();
        RuleReadError { table, line, text, problem }
    };
    for (line, number) in lines.iter().zip(1..) {
        let name = current.as_ref().map(|open| open.table.name);
        let wrong = |problem| fail(name, number, problem);
        match (&mut current, line.as_bytes().first()) {
            (_, None) => {}
            // The table has rules that iptables-nft cannot list.
            (_, Some(b'#')) if line.contains("is incompatible") => {
                return Err(wrong(Problem::Line(
                    "this dump is incomplete; save the table with the tool that created it",
                )));
            }
            (_, Some(b'#')) => {}
            (None, Some(b'*')) => current = Some(open(&line[1..]).map_err(wrong)?),
            (None, Some(b'-' | b':')) => return Err(wrong(Problem::Line("a table begins with *NAME"))),
            // Perhaps a secret: its text is not quoted.
            (None, _) => return Err(fail(None, 0, Problem::Line("this is no output of iptables-save"))),
            (Some(open), Some(b':')) => open.declare(&line[1..]).map_err(wrong)?,
            (Some(_), _) if *line == "COMMIT" => {
                if let Some(open) = current.take() {
                    let table = open.close(unknown).map_err(|(line, problem)| fail(name, line, problem))?;
                    // As in iptables-restore, a table's later text replaces an earlier one.
                    rules.tables.retain(|earlier| earlier.name != table.name);
                    rules.tables.push(table);
                }
            }
            (Some(open), _) => open.rule(line, number, family, unknown).map_err(wrong)?,
        }
    }
    match current {
        Some(open) => {
            let problem = Problem::Line("the text ends before this table's COMMIT");
            Err(fail(Some(open.table.name), lines.len(), problem))
        }
        None => Ok(rules),
    }
}
