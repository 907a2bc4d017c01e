//! One family's iptables tables, by netlink or by the commands.

use std::fmt::Write as _;

use super::iptables::{Iptables, IptablesError};
use crate::ruleset::{Rule, SavedTable, SavedTables, Table, Transaction};

/// Rules per restore: with the usual `net.core.wmem_max`, iptables-nft 1.8.9 accepted about 480 rules with comments.
const RULES_PER_PART: usize = 200;

pub trait PacketFilter {
    fn inner(&mut self) -> Option<&mut dyn PacketFilter> {
        None
    }

    /// Returns the chains with their rules. May omit the rules of `unread` chains, for which [`PacketFilter::rules`]
    /// and [`PacketFilter::chain_equals`] exist.
    fn list(&mut self, tables: &[Table], unread: &dyn Fn(Table, &str) -> bool) -> Result<SavedTables, IptablesError>;

    fn read(&mut self, tables: &[Table]) -> Result<SavedTables, IptablesError> {
        self.list(tables, &|_, _| false)
    }

    fn rules(&mut self, table: Table, chain: &str, present: &[String]) -> Result<Vec<String>, IptablesError> {
        match self.inner() {
            Some(inner) => inner.rules(table, chain, present),
            None => Ok(present.to_vec()),
        }
    }

    /// `present` is the chain as [`PacketFilter::list`] reported it.
    fn chain_equals(
        &mut self,
        table: Table,
        chain: &str,
        present: &[String],
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError> {
        if let Some(inner) = self.inner() {
            return inner.chain_equals(table, chain, present, rules);
        }
        let (mut text, mut present) = (String::new(), present.iter());
        for rule in rules {
            text.clear();
            if write!(text, "{rule}").is_err() || present.next() != Some(&text) {
                return Ok(false);
            }
        }
        Ok(present.next().is_none())
    }

    /// Returns a comparer for another thread, with the last list's state; `None` if that saves no time.
    fn comparer(&mut self) -> Option<Box<dyn ChainComparer>> {
        self.inner()?.comparer()
    }

    /// Whether new chains may be sent early at no cost: a command reads or writes a whole table each time.
    fn supports_early_chains(&mut self) -> bool {
        self.inner().is_some_and(|inner| inner.supports_early_chains())
    }

    /// Uses one transaction, or several if the change is too large for the kernel. After an error, parts may be
    /// applied.
    fn commit(&mut self, change: &Transaction) -> Result<(), IptablesError>;

    /// Counts each chain's rules plus rules that jump to it; `None` without the chain.
    fn reference_counts(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError>;

    /// Returns a number that every write to the tables changes; `None` if the tables have none.
    fn generation(&mut self) -> Result<Option<u32>, IptablesError> {
        self.inner().map_or(Ok(None), |inner| inner.generation())
    }

    /// Whether no other program has changed the tables since they were last listed or confirmed.
    fn is_untouched(&mut self, now: Option<u32>) -> bool {
        self.inner().is_some_and(|inner| inner.is_untouched(now))
    }

    /// Confirms that all written rules exist at this generation.
    fn set_known_generation(&mut self, generation: Option<u32>) {
        if let Some(inner) = self.inner() {
            inner.set_known_generation(generation);
        }
    }

    fn random_fully(&mut self) -> bool;
}

pub trait ChainComparer: Send {
    fn chain_equals(
        &mut self,
        table: Table,
        chain: &str,
        present: &[String],
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError>;
}

impl<K: Iptables> PacketFilter for K {
    fn list(&mut self, tables: &[Table], _: &dyn Fn(Table, &str) -> bool) -> Result<SavedTables, IptablesError> {
        let mut present = SavedTable::parse_all(&self.save(tables)?);
        let mut saved = SavedTables::default();
        for table in tables {
            saved.tables.insert(*table, present.remove(table).unwrap_or_default());
        }
        Ok(saved)
    }

    fn commit(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        if change.is_empty() {
            return Ok(());
        }
        match self.restore(change) {
            Err(IptablesError::TooLarge { .. }) => {
                change.parts(RULES_PER_PART).iter().try_for_each(|part| self.restore(part))
            }
            result => result,
        }
    }

    fn reference_counts(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        Iptables::reference_counts(self, table, chains)
    }

    fn random_fully(&mut self) -> bool {
        Iptables::random_fully(self)
    }
}
