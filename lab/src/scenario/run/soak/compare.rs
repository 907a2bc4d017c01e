//! The rules that a proxy has arrived at, change by change, against those that a fresh one writes on clean tables.

use std::collections::{BTreeMap, BTreeSet};

use super::super::marker;

/// Rules of every chain, by `FAMILY TABLE CHAIN`; a chain without rules is there, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rules(BTreeMap<String, Vec<String>>);

impl Rules {
    /// Reads `iptables-save`'s output. Counters and comments go, and so does the order of chains; that of a chain's rules
    /// stays.
    pub(super) fn read(&mut self, family: &str, saved: &str) {
        // The lab's own service changes with every look.
        let marker = marker::key();
        let mut table = "";
        let mut passed_over = BTreeSet::new();
        for line in saved.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = name;
            } else if let Some(chain) = line.strip_prefix(':') {
                let name = chain.split(' ').next().unwrap_or_default();
                self.0.entry(format!("{family} {table} {name}")).or_default();
            } else if let Some((chain, rule)) = line.strip_prefix("-A ").and_then(|rule| rule.split_once(' ')) {
                let chain = format!("{family} {table} {chain}");
                if rule.contains(&marker) {
                    passed_over.insert(chain);
                } else {
                    self.0.entry(chain).or_default().push(rule.to_owned());
                }
            }
        }
        // The marker's own chains.
        self.0.retain(|chain, rules| !(rules.is_empty() && passed_over.contains(chain)));
    }

    /// Lets the order of rules go as well: of a proxy that has none.
    pub(super) fn sort(&mut self) {
        self.0.values_mut().for_each(|rules| rules.sort());
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Every chain that differs, in words.
    pub(super) fn differences(&self, fresh: &Rules) -> Vec<String> {
        let chains: BTreeSet<&String> = self.0.keys().chain(fresh.0.keys()).collect();
        chains.into_iter().filter_map(|chain| difference(chain, self.0.get(chain), fresh.0.get(chain))).collect()
    }
}

fn difference(chain: &str, here: Option<&Vec<String>>, fresh: Option<&Vec<String>>) -> Option<String> {
    match (here, fresh) {
        (Some(here), Some(fresh)) if here == fresh => None,
        (Some(_), None) => Some(format!("{chain} would not be there after a fresh start")),
        (None, _) => Some(format!("{chain} is missing")),
        (Some(here), Some(fresh)) => {
            let extra = here.iter().find(|rule| !fresh.contains(rule)).map(|rule| format!("too much: {rule}"));
            let missing = fresh.iter().find(|rule| !here.contains(rule)).map(|rule| format!("missing: {rule}"));
            let words = extra.or(missing).unwrap_or_else(|| "the order, or the number, of its rules".to_owned());
            Some(format!("{chain} differs; {words}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        let mut rules = Rules::default();
        rules.read("ipv4", text);
        rules
    }

    #[test]
    fn counters_and_the_order_of_chains_do_not_count() {
        let one = "# x\n*nat\n:A - [1:2]\n:B - [0:0]\n-A A -j B\n-A B -j RETURN\nCOMMIT\n";
        let two = "*nat\n:B - [7:7]\n:A - [0:0]\n-A B -j RETURN\n-A A -j B\nCOMMIT\n# y\n";
        assert_eq!(rules(one).differences(&rules(two)), Vec::<String>::new());
        assert_eq!(rules(one).len(), 2);
    }

    #[test]
    fn the_marker_does_not_count() {
        let with = "*nat\n:A - [0:0]\n:B - [0:0]\n:M - [0:0]\n-A A --comment svclab/marker -j M\n-A A -j B\n-A M --comment svclab/marker -j B\n";
        assert_eq!(rules(with), rules("*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n"));
    }

    #[test]
    fn anything_else_does() {
        let fresh = rules("*nat\n:A - [0:0]\n-A A -j X\n-A A -j Y\n");
        for (text, says) in [
            ("*nat\n:A - [0:0]\n-A A -j Y\n-A A -j X\n", "the order"),
            ("*nat\n:A - [0:0]\n-A A -j X\n", "missing: -j Y"),
            ("*nat\n:A - [0:0]\n-A A -j X\n-A A -j Y\n-A A -j Z\n", "too much: -j Z"),
            ("*nat\n:A - [0:0]\n:C - [0:0]\n-A A -j X\n-A A -j Y\n", "nat C would not be there"),
            ("*filter\n", "nat A is missing"),
        ] {
            let found = rules(text).differences(&fresh);
            assert!(matches!(&found[..], [one] if one.contains(says)), "{text}: {found:?}");
        }
        let mut turned = rules("*nat\n:A - [0:0]\n-A A -j Y\n-A A -j X\n");
        turned.sort();
        assert_eq!(turned.differences(&fresh), Vec::<String>::new(), "sorted, the order does not count");
    }
}
