//! The tables of one address family, written by netlink or by the iptables commands.

use super::iptables::{Iptables, IptablesError};
use crate::ruleset::{Chains, Saved, SavedTable, Table, Tables, Transaction};

/// Rules of a transaction that is split because the kernel takes no larger ones: with the usual `net.core.wmem_max` of 212,992
/// bytes about 480 rules with a comment were taken by iptables-nft 1.8.9.
const PART: usize = 200;

/// Reads and changes the tables.
pub trait PacketFilter {
    /// What stands in these tables, beside what is wanted: of chains that hold just that, the rules are not reported.
    ///
    /// # Errors
    /// When the kernel, or the command, does not say.
    fn compare(&mut self, tables: &[Table], wanted: &Tables) -> Result<Saved, IptablesError>;

    /// What stands in these tables.
    ///
    /// # Errors
    /// As [`PacketFilter::compare`].
    fn read(&mut self, tables: &[Table]) -> Result<Saved, IptablesError> {
        self.compare(tables, &Tables::new())
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

impl<K: Iptables> PacketFilter for K {
    fn compare(&mut self, tables: &[Table], wanted: &Tables) -> Result<Saved, IptablesError> {
        let mut present = SavedTable::parse_all(&self.save(tables)?);
        let (mut saved, nothing) = (Saved::default(), Chains::new());
        for table in tables {
            let present = present.remove(table).unwrap_or_default();
            saved.tables.insert(*table, present.against(wanted.get(table).unwrap_or(&nothing)));
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
