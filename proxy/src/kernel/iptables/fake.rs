//! A packet filter in memory, with the kernel's checks of references.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Iptables, IptablesError, RuleRefusal, Table};
use crate::ruleset::{Transaction, target_of as target};

type Chains = BTreeMap<String, Vec<String>>;

#[derive(Debug, Clone)]
pub struct FakeIptables {
    pub tables: BTreeMap<Table, Chains>,
    /// The inputs of all restores, including refused ones.
    pub restored: Vec<String>,
    /// The number of next restores that fail as if another program held the lock.
    pub fail_restores: usize,
    /// The numbers of tables after which the next restores are killed.
    pub kill_after: Vec<usize>,
    /// Refuses a table whose input contains this text.
    pub refuse: Option<String>,
    pub line_limit: usize,
}

impl Default for FakeIptables {
    fn default() -> FakeIptables {
        let built_in =
            |chains: &[&str]| chains.iter().map(|chain| ((*chain).to_owned(), Vec::new())).collect::<Chains>();
        let tables = BTreeMap::from([
            (Table::Filter, built_in(&["INPUT", "FORWARD", "OUTPUT"])),
            (Table::Mangle, built_in(&["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"])),
            (Table::Nat, built_in(&["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"])),
        ]);
        FakeIptables {
            tables,
            restored: Vec::new(),
            fail_restores: 0,
            kill_after: Vec::new(),
            refuse: None,
            line_limit: usize::MAX,
        }
    }
}

const TARGETS: [&str; 10] =
    ["ACCEPT", "DROP", "REJECT", "RETURN", "MARK", "DNAT", "SNAT", "REDIRECT", "MASQUERADE", "LOG"];

impl FakeIptables {
    /// Deletes all rules and user-defined chains, like a firewall's reload.
    pub fn flush(&mut self) {
        self.tables = FakeIptables::default().tables;
    }

    fn chains(&mut self, table: Table) -> &mut Chains {
        self.tables.entry(table).or_default()
    }

    fn refuse<T>(line: usize, why: &str) -> Result<T, IptablesError> {
        let message = format!("line {line} failed: {why}");
        Err(IptablesError::Failed { command: "restore".into(), status: 1, message })
    }

    fn apply_line(chains: &mut Chains, number: usize, line: &str) -> Result<(), IptablesError> {
        if let Some(declared) = line.strip_prefix(':') {
            let chain = declared.split(' ').next().unwrap_or_default();
            chains.insert(chain.to_owned(), Vec::new());
            return Ok(());
        }
        if let Some((option, rest)) = line.split_once(' ').filter(|(option, _)| ["-A", "-I", "-D"].contains(option)) {
            let (chain, rule) = rest.split_once(' ').unwrap_or((rest, ""));
            let Some(rules) = chains.get_mut(chain) else {
                return FakeIptables::refuse(number, &format!("no chain {chain}"));
            };
            match option {
                "-A" => rules.push(rule.to_owned()),
                "-I" => rules.insert(0, rule.to_owned()),
                _ => match rules.iter().position(|present| present == rule) {
                    Some(at) => drop(rules.remove(at)),
                    None => return FakeIptables::refuse(number, "no such rule"),
                },
            }
            return Ok(());
        }
        match line.strip_prefix("-X ") {
            Some(chain) if chains.get(chain).is_some_and(Vec::is_empty) => {
                chains.remove(chain);
                Ok(())
            }
            Some(chain) => FakeIptables::refuse(number, &format!("chain {chain} is not there or not empty")),
            None => FakeIptables::refuse(number, "not understood"),
        }
    }

    fn dangling(chains: &Chains) -> Option<String> {
        let mut targets = chains.values().flatten().filter_map(|rule| target(rule));
        targets.find(|t| !TARGETS.contains(t) && !chains.contains_key(*t)).map(str::to_owned)
    }
}

impl FakeIptables {
    pub fn dump(&mut self, table: Table) -> String {
        let chains = self.chains(table);
        let mut text = format!("*{table}\n");
        for chain in chains.keys() {
            text.push_str(&format!(":{chain} - [0:0]\n"));
        }
        for (chain, rules) in chains.iter() {
            for rule in rules {
                text.push_str(format!("-A {chain} {rule}").trim_end());
                text.push('\n');
            }
        }
        text + "COMMIT\n"
    }

    pub fn take(&mut self, input: &str) -> Result<(), IptablesError> {
        self.restored.push(input.to_owned());
        if self.fail_restores > 0 {
            self.fail_restores -= 1;
            let message = "Another app is currently holding the xtables lock".into();
            return Err(IptablesError::Failed { command: "restore".into(), status: 4, message });
        }
        let mut tables_left = self.kill_after.pop();
        let (mut open, mut lines): (Option<(Table, Chains)>, usize) = (None, 0);
        for (index, line) in input.lines().enumerate() {
            let number = index + 1;
            if let Some(name) = line.strip_prefix('*') {
                let Some(table) = Table::ALL.into_iter().find(|t| t.as_str() == name) else {
                    return FakeIptables::refuse(number, "no such table");
                };
                (open, lines) = (Some((table, self.chains(table).clone())), 0);
            } else if line == "COMMIT" {
                let Some((table, chains)) = open.take() else { return FakeIptables::refuse(number, "no table") };
                if let Some(target) = FakeIptables::dangling(&chains) {
                    return FakeIptables::refuse(number, &format!("no chain {target}"));
                }
                if tables_left == Some(0) {
                    break;
                }
                tables_left = tables_left.map(|left| left - 1);
                self.tables.insert(table, chains);
            } else {
                lines += 1;
                if lines > self.line_limit {
                    return Err(IptablesError::TooLarge { command: "restore".into() });
                }
                let Some((table, chains)) = &mut open else { return FakeIptables::refuse(number, "no table") };
                if self.refuse.as_ref().is_some_and(|refused| line.contains(refused)) {
                    return match RuleRefusal::of_line(*table, line, "no such extension".to_owned()) {
                        Some(refusal) => Err(IptablesError::Refused(vec![refusal])),
                        None => FakeIptables::refuse(number, &format!("no such extension [{line}]")),
                    };
                }
                FakeIptables::apply_line(chains, number, line)?;
            }
        }
        match tables_left {
            None => Ok(()),
            Some(_) => Err(IptablesError::TimedOut { command: "restore".into(), limit: Duration::ZERO }),
        }
    }
}

impl Iptables for FakeIptables {
    fn save(&mut self, tables: &[Table]) -> Result<String, IptablesError> {
        Ok(tables.iter().map(|table| self.dump(*table)).collect())
    }

    fn restore(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        self.take(&change.text())
    }

    fn reference_counts(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        let present = self.chains(table);
        let leads = |chain: &str| present.values().flatten().filter(|rule| target(rule) == Some(chain)).count();
        Ok(chains.iter().map(|chain| Some(present.get(*chain)?.len() + leads(chain))).collect())
    }

    fn random_fully(&self) -> bool {
        true
    }
}
