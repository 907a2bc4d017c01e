//! The output of `iptables-save`: chains and the text of their rules.

use std::collections::{HashMap, HashSet};

use super::Table;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedTable {
    pub chains: HashMap<String, Vec<String>>,
}

impl SavedTable {
    pub fn parse_all(text: &str) -> HashMap<Table, SavedTable> {
        let dumps = text.split("\n*").map(|dump| dump.strip_prefix('*').unwrap_or(dump));
        let named = |dump: &str| Table::ALL.into_iter().find(|table| dump.lines().next() == Some(table.as_str()));
        dumps.filter_map(|dump| Some((named(dump)?, SavedTable::parse(dump)))).collect()
    }

    /// Ignores other lines, such as warnings of nft.
    pub fn parse(text: &str) -> SavedTable {
        let mut table = SavedTable::default();
        for line in text.lines() {
            if let Some(declared) = line.strip_prefix(':') {
                let chain = declared.split(' ').next().unwrap_or_default();
                table.chains.entry(chain.to_owned()).or_default();
            } else if let Some(rule) = line.strip_prefix("-A ") {
                let (chain, rule) = rule.split_once(' ').unwrap_or((rule, ""));
                table.chains.entry(chain.to_owned()).or_default().push(rule.to_owned());
            }
        }
        table
    }

    pub fn targets(&self, elsewhere: impl Fn(&str) -> bool) -> HashSet<&str> {
        let rules = self.chains.iter().filter(|(from, _)| elsewhere(from)).flat_map(|(_, rules)| rules);
        rules.filter_map(|rule| target_of(rule)).collect()
    }

    /// Whether a rule for which `gone` (chain, rule) returns false targets `chain`, in chains for which `elsewhere`
    /// returns true.
    pub fn is_referred_to(
        &self,
        chain: &str,
        elsewhere: impl Fn(&str) -> bool,
        gone: impl Fn(&str, &str) -> bool,
    ) -> bool {
        self.chains
            .iter()
            .filter(|(from, _)| elsewhere(from))
            .any(|(from, rules)| rules.iter().any(|rule| target_of(rule) == Some(chain) && !gone(from, rule)))
    }
}

pub fn target_of(rule: &str) -> Option<&str> {
    let rest = rule.split_once("-j ").or_else(|| rule.split_once("-g "))?.1;
    // Takes the last `-j `, because a comment may contain `-j `.
    let rest = rest.rsplit_once(" -j ").map_or(rest, |(_, last)| last);
    rest.split(' ').next()
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedTables {
    pub tables: HashMap<Table, SavedTable>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_and_rules_are_read() {
        let text = "# Generated\n*nat\n:PREROUTING ACCEPT [1:60]\n:KUBE-SVC-A - [0:0]\n:OTHER - [0:0]\n\
                    -A PREROUTING -m comment --comment \"a -j b\" -j KUBE-SVC-A\n-A OTHER\nCOMMIT\n";
        let table = SavedTable::parse(text);
        assert_eq!(table.chains.len(), 3);
        assert_eq!(table.chains["OTHER"], [""]);
        assert!(table.is_referred_to("KUBE-SVC-A", |from| from == "PREROUTING", |_, _| false));
        assert!(!table.is_referred_to("KUBE-SVC-A", |from| from == "OTHER", |_, _| false));
    }
}
