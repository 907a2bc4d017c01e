use std::borrow::Cow;
use std::time::Duration;

use anyhow::Result;
use nf_tables::Batch;
use svcproxy::kernel::nftables::{
    FakeNftTable, NetlinkTable, NftTable, NftTableError, RuleFingerprint, SetShape, TableQuery, TableState, batches,
};
use svcproxy::mode::nftables::layout;
use svcproxy::model::Family;
use svcproxy::nftables::{Element, NftChange, Rule, Set};

use super::kernel::{CallLog, KernelRequests, SentTransaction};
use crate::allocations::Allocated;

pub struct CountedTable<T> {
    table: T,
    log: CallLog,
    /// Whether to count batches here: the netlink table reports them itself.
    counts_batches: bool,
}

pub fn open(family: Family) -> Result<NetlinkTable> {
    Ok(NetlinkTable::open(family, layout::TABLE, layout::COMMENT)?)
}

impl CountedTable<NetlinkTable> {
    /// Opens a table by netlink. Times include the encoding of changes.
    pub fn open(family: Family, log: CallLog) -> Result<CountedTable<NetlinkTable>> {
        let (mut table, seen) = (open(family)?, log.clone());
        table.observe(Box::new(move |batch, took| {
            let mut seen = seen.lock();
            count(&mut seen.asked, batch);
            seen.longest = seen.longest.max(took);
            if let Some(sent) = &mut seen.sent {
                sent.push(SentTransaction::Batch(batch.clone()));
            }
        }));
        Ok(CountedTable { table, log, counts_batches: false })
    }
}

impl CountedTable<FakeNftTable> {
    pub fn new(table: FakeNftTable, log: CallLog) -> CountedTable<FakeNftTable> {
        CountedTable { table, log, counts_batches: true }
    }
}

fn count(asked: &mut KernelRequests, batch: &Batch) {
    asked.restores += 1;
    asked.messages += batch.messages();
    asked.bytes += batch.len();
}

impl<T: NftTable> NftTable for CountedTable<T> {
    fn list(&mut self, query: TableQuery<'_>) -> Result<TableState, NftTableError> {
        self.log.watch(|| self.table.list(query), |asked| asked.dumps += 1)
    }

    /// Writes the change and the further elements. A fake table records these as part of the change.
    fn fill(&mut self, change: &NftChange, more: &mut dyn Iterator<Item = Element>) -> Result<(), NftTableError> {
        let (mut added, mut change) = (0, Cow::Borrowed(change));
        if self.counts_batches {
            let before = Allocated::by_this_thread();
            change.to_mut().add_elements.extend(&mut *more);
            self.log.lock().allocated += Allocated::by_this_thread() - before;
        }
        let result = self.log.watch(|| self.table.fill(&change, &mut more.inspect(|_| added += 1)), |_| {});
        let before = Allocated::by_this_thread();
        let mut seen = self.log.lock();
        seen.asked.elements += change.elements() + added;
        seen.asked.rules += change.rules();
        seen.asked.chains += change.add_chains.len() + change.write_rules.len();
        seen.asked.removed_chains += change.delete_chains.len();
        if self.counts_batches {
            batches(&change, &mut std::iter::empty(), Family::V4, layout::TABLE, |batch| {
                count(&mut seen.asked, batch)
            })?;
            if let Some(sent) = &mut seen.sent {
                sent.push(SentTransaction::Change(Box::new(change.into_owned())));
            }
        }
        seen.allocated += Allocated::by_this_thread() - before;
        result
    }

    fn reference_counts(&mut self, chains: &[&str]) -> Result<Vec<Option<usize>>, NftTableError> {
        self.log.watch(|| self.table.reference_counts(chains), |asked| asked.looks += 1)
    }

    fn is_untouched(&mut self) -> Result<bool, NftTableError> {
        self.log.watch(|| self.table.is_untouched(), |_| {})
    }

    fn delete(&mut self) -> Result<bool, NftTableError> {
        self.table.delete()
    }

    fn fingerprints(&self, rules: &[Rule]) -> Vec<RuleFingerprint> {
        self.table.fingerprints(rules)
    }

    fn shape(&self, set: &Set) -> SetShape {
        self.table.shape(set)
    }
}

pub fn take_longest(log: &CallLog) -> Duration {
    std::mem::take(&mut log.lock().longest)
}
