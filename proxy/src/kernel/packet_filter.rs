//! The tables of one address family, written by netlink or by the iptables commands.

use std::fmt::Write as _;

use super::iptables::{Iptables, IptablesError};
use crate::ruleset::{Rule, SavedTable, SavedTables, Table, Transaction};

/// Rules of a transaction that is split because the kernel takes no larger ones: with the usual `net.core.wmem_max` of 212,992
/// bytes about 480 rules with a comment were taken by iptables-nft 1.8.9.
const PART: usize = 200;

/// Reads and changes the tables.
pub trait PacketFilter {
    /// What stands in these tables. Of chains that are `unread` the rules may be left out: [`PacketFilter::rules`] and
    /// [`PacketFilter::holds`] know them.
    ///
    /// # Errors
    /// When the kernel, or the command, does not say.
    fn look(&mut self, tables: &[Table], unread: &dyn Fn(Table, &str) -> bool) -> Result<SavedTables, IptablesError>;

    /// What stands in these tables, every rule of it.
    ///
    /// # Errors
    /// As [`PacketFilter::look`].
    fn read(&mut self, tables: &[Table]) -> Result<SavedTables, IptablesError> {
        self.look(tables, &|_, _| false)
    }

    /// The rules of a chain that was unread; `present`: what was reported of it.
    ///
    /// # Errors
    /// As [`PacketFilter::look`].
    fn rules(&mut self, _table: Table, _chain: &str, present: &[String]) -> Result<Vec<String>, IptablesError> {
        Ok(present.to_vec())
    }

    /// Whether a chain that is there has these rules and no others; `present`: what was reported of it.
    ///
    /// # Errors
    /// As [`PacketFilter::look`].
    fn holds(
        &mut self,
        _table: Table,
        _chain: &str,
        present: &[String],
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError> {
        let (mut text, mut present) = (String::new(), present.iter());
        for rule in rules {
            text.clear();
            if write!(text, "{rule}").is_err() || present.next() != Some(&text) {
                return Ok(false);
            }
        }
        Ok(present.next().is_none())
    }

    /// Compares chains on another thread meanwhile, as they were at the last look; `None` where it would take no less time.
    fn comparer(&mut self) -> Option<Box<dyn Compare>> {
        None
    }

    /// Whether new chains may be sent before what leads to them at no cost. A command reads or writes a whole table each time.
    fn takes_chains_ahead(&self) -> bool {
        false
    }

    /// Brings a change to the kernel: in one transaction, or in several where it takes no larger ones.
    ///
    /// # Errors
    /// When it is refused; tables, or parts, before may have been taken.
    fn commit(&mut self, change: &Transaction) -> Result<(), IptablesError>;

    /// How much each of these chains is in use: its rules, plus the rules of whatever chain that lead to it. `None`: it is not
    /// there.
    ///
    /// # Errors
    /// When the kernel does not answer.
    fn uses(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError>;

    /// A number that every write to the tables changes, and that the adapter follows over its own; `None` where there is none.
    ///
    /// # Errors
    /// When the kernel does not answer.
    fn generation(&mut self) -> Result<Option<u32>, IptablesError> {
        Ok(None)
    }

    /// Whether the tables are certainly as they were when they were last read, or trusted, but for changes made by this adapter.
    fn is_untouched(&mut self, _now: Option<u32>) -> bool {
        false
    }

    /// At this generation everything that was written stood.
    fn trust(&mut self, _generation: Option<u32>) {}

    /// Whether MASQUERADE can draw ports at random.
    fn random_fully(&self) -> bool;
}

/// Reads what stands, beside the [`PacketFilter`] that made it.
pub trait Compare: Send {
    /// As [`PacketFilter::holds`].
    ///
    /// # Errors
    /// As [`PacketFilter::look`].
    fn holds(
        &mut self,
        table: Table,
        chain: &str,
        present: &[String],
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError>;
}

impl<K: Iptables> PacketFilter for K {
    fn look(&mut self, tables: &[Table], _: &dyn Fn(Table, &str) -> bool) -> Result<SavedTables, IptablesError> {
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
            Err(IptablesError::TooLarge { .. }) => change.parts(PART).iter().try_for_each(|part| self.restore(part)),
            result => result,
        }
    }

    fn uses(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        Iptables::uses(self, table, chains)
    }

    fn random_fully(&self) -> bool {
        Iptables::random_fully(self)
    }
}
