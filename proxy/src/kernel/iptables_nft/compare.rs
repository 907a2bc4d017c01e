//! Compares a chain's canonical bytes with the expected rules'.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use nf_tables::{NfSocket, RuleInfo, canonical_into};

use super::{encode, read_error};
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::ChainComparer;
use crate::model::Family;
use crate::nftables::text::of_kernel;
use crate::ruleset::{Rule, Table};

pub(super) struct ChainComparison {
    family: Family,
    /// IP sets' numbers; `None` for a missing set.
    sets: HashMap<String, Option<u16>>,
    rule: nf_tables::Rule,
    wanted: Vec<u8>,
    present: Vec<u8>,
}

impl ChainComparison {
    pub(super) fn new(family: Family) -> ChainComparison {
        let (sets, rule) = (HashMap::new(), nf_tables::Rule::default());
        ChainComparison { family, sets, rule, wanted: Vec::new(), present: Vec::new() }
    }

    pub(super) fn forget_sets(&mut self) {
        self.sets.clear();
    }

    /// Clears `known` after another program's change.
    pub(super) fn chain_equals(
        &mut self,
        socket: &mut NfSocket,
        known: &mut Option<u32>,
        table: Table,
        chain: &str,
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError> {
        let rules: Vec<&Rule> = rules.collect();
        for name in rules.iter().flat_map(|rule| rule.sets()) {
            if !self.sets.contains_key(name) {
                let index = socket.ip_set(name).map_err(read_error)?;
                self.sets.insert(name.to_owned(), index);
            }
        }
        let of = nf_tables::Table::new(of_kernel(self.family), table.as_str());
        let mut compare = |socket: &mut NfSocket| {
            let mut present = socket.rules(of, chain)?;
            let all = rules.iter().all(|rule| present.next().is_some_and(|present| self.is_same(rule, &present)));
            Ok(all && present.next().is_none())
        };
        let at_once = known.map(|known| socket.at_generation(known, &mut compare));
        match at_once.unwrap_or_else(|| compare(socket)) {
            Err(error) if error.source.kind() == io::ErrorKind::ResourceBusy => {
                *known = None;
                compare(socket)
            }
            result => result,
        }
        .map_err(read_error)
    }

    fn is_same(&mut self, rule: &Rule, present: &RuleInfo<'_>) -> bool {
        let index = |name: &str| self.sets.get(name).copied().flatten().ok_or(());
        if encode::encode(rule, self.family, &mut self.rule, index).is_err() || self.rule.error().is_some() {
            return false;
        }
        self.wanted.clear();
        self.present.clear();
        let family = of_kernel(self.family);
        canonical_into(family, self.rule.expressions(), &mut self.wanted);
        canonical_into(family, present.expressions, &mut self.present);
        self.wanted == self.present
    }
}

pub(super) struct ThreadComparer {
    pub(super) socket: NfSocket,
    pub(super) comparison: ChainComparison,
    pub(super) known: Option<u32>,
}

impl ChainComparer for Arc<Mutex<ThreadComparer>> {
    fn chain_equals(
        &mut self,
        table: Table,
        chain: &str,
        _: &[String],
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError> {
        let mut next = self.lock().unwrap_or_else(PoisonError::into_inner);
        let ThreadComparer { socket, comparison, known } = &mut *next;
        comparison.chain_equals(socket, known, table, chain, rules)
    }
}
