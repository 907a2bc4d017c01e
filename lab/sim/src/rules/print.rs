use std::fmt;

use super::{Chain, ChainPolicy, Rule, RuleCounters, Rules, Table};

impl fmt::Display for RuleCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}:{}]", self.packets, self.bytes)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.header)?;
        self.matches.iter().try_for_each(|one| write!(f, "{one}"))?;
        write!(f, "{}", self.target)
    }
}

fn declaration(chain: &Chain, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let policy = match chain.policy {
        Some(ChainPolicy::Accept) => "ACCEPT",
        Some(ChainPolicy::Drop) => "DROP",
        None => "-",
    };
    let counters = chain.counters.unwrap_or(RuleCounters { packets: 0, bytes: 0 });
    writeln!(f, ":{} {policy} {counters}", chain.name)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "*{}", self.name)?;
        self.chains.iter().filter(|chain| chain.declared).try_for_each(|chain| declaration(chain, f))?;
        for chain in &self.chains {
            for rule in &chain.rules {
                if let Some(counters) = rule.counters {
                    write!(f, "{counters} ")?;
                }
                writeln!(f, "-A {}{rule}", chain.name)?;
            }
        }
        writeln!(f, "COMMIT")
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tables.iter().try_for_each(|table| write!(f, "{table}"))
    }
}
