//! The rules of the tables' chains, beside those that are wanted.

use std::collections::HashMap;

use nf_tables::{ReadError, RuleInfo, Socket, canonical_into};

use super::encode::{self, encode};
use crate::model::Family;
use crate::ruleset::{Rule, Table, Tables};

/// A chain.
pub(super) struct Dumped {
    pub(super) table: Table,
    pub(super) chain: String,
    /// Its rules' expressions; `None` where they are just those that are wanted.
    pub(super) rules: Option<Vec<Vec<u8>>>,
}

/// A dump in the making. Its buffers serve for all rules.
pub(super) struct Dump<'a> {
    family: Family,
    tables: &'a [Table],
    wanted: &'a Tables,
    /// Numbers of IP sets; `None` for one that is not there.
    sets: HashMap<&'a str, Option<u16>>,
    encoded: nf_tables::Rule,
    buffers: (Vec<u8>, Vec<u8>),
}

impl<'a> Dump<'a> {
    pub(super) fn of(family: Family, tables: &'a [Table], wanted: &'a Tables) -> Dump<'a> {
        let encoded = nf_tables::Rule::new();
        Dump { family, tables, wanted, sets: HashMap::new(), encoded, buffers: (Vec::new(), Vec::new()) }
    }

    pub(super) fn take(mut self, socket: &mut Socket) -> Result<Vec<Dumped>, ReadError> {
        let family = encode::family(self.family);
        for name in self.wanted.values().flat_map(|chains| chains.values()).flatten().flat_map(Rule::sets) {
            if !self.sets.contains_key(name) {
                self.sets.insert(name, socket.ip_set(name)?);
            }
        }
        let named = |name: &str| self.tables.iter().copied().find(|table| table.as_str() == name);
        let chains = socket.chains(family)?;
        let chains = chains.filter_map(|chain| Some((named(chain.table)?, chain.name.to_owned())));
        let chains: Vec<(Table, String)> = chains.collect();
        let mut dumped = Vec::with_capacity(chains.len());
        for (table, chain) in chains {
            let of = nf_tables::Table::new(family, table.as_str());
            let wanted = self.wanted.get(&table).and_then(|chains| chains.get(&chain));
            let is_same = match wanted {
                Some(wanted) => self.is_same(wanted, socket.rules(of, &chain)?),
                None => false,
            };
            let rules = if is_same {
                None
            } else {
                Some(socket.rules(of, &chain)?.map(|rule| rule.expressions.to_vec()).collect())
            };
            dumped.push(Dumped { table, chain, rules });
        }
        Ok(dumped)
    }

    fn is_same<'r>(&mut self, wanted: &'a [Rule], mut present: impl Iterator<Item = RuleInfo<'r>>) -> bool {
        let all = wanted.iter().all(|rule| present.next().is_some_and(|present| self.is(rule, &present)));
        all && present.next().is_none()
    }

    fn is(&mut self, rule: &'a Rule, present: &RuleInfo<'_>) -> bool {
        let sets = &self.sets;
        let index = |name: &'a str| sets.get(name).copied().flatten().ok_or(());
        if encode(rule, self.family, &mut self.encoded, index).is_err() || self.encoded.error().is_some() {
            return false;
        }
        let (ours, theirs) = &mut self.buffers;
        ours.clear();
        theirs.clear();
        canonical_into(self.encoded.expressions(), ours);
        canonical_into(present.expressions, theirs);
        ours == theirs
    }
}
