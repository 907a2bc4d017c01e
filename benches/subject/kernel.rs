//! Kernel adapters that count and record their calls, and one that accepts everything and stores nothing.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nf_tables::Batch;
use serde::{Deserialize, Serialize};
use svcproxy::kernel::iptables::{Iptables, IptablesError};
use svcproxy::kernel::iptables_nft::NfTables;
use svcproxy::kernel::packet_filter::PacketFilter;
use svcproxy::model::Family;
use svcproxy::nftables::NftChange;
use svcproxy::ruleset::{RestoreLine, Rule, SavedTables, Table, Transaction};

use super::ipvs::IpvsCall;
use crate::allocations::Allocated;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelRequests {
    /// Reads of tables; with the commands, child processes that read.
    pub dumps: usize,
    /// Transactions; with the commands, child processes that write.
    pub restores: usize,
    #[serde(default)]
    pub messages: usize,
    /// Added and deleted elements of sets and maps.
    #[serde(default)]
    pub elements: usize,
    /// Reads of chains' reference counts.
    pub looks: usize,
    #[serde(default)]
    pub lists: usize,
    pub bytes: usize,
    pub rules: usize,
    /// Chains created or flushed.
    pub chains: usize,
    pub removed_chains: usize,
}

impl KernelRequests {
    pub fn is_change(&self) -> bool {
        self.restores > 0 || self.messages > 0
    }
}

impl std::ops::Sub for KernelRequests {
    type Output = KernelRequests;

    fn sub(self, before: KernelRequests) -> KernelRequests {
        KernelRequests {
            dumps: self.dumps - before.dumps,
            restores: self.restores - before.restores,
            messages: self.messages - before.messages,
            elements: self.elements - before.elements,
            looks: self.looks - before.looks,
            lists: self.lists - before.lists,
            bytes: self.bytes - before.bytes,
            rules: self.rules - before.rules,
            chains: self.chains - before.chains,
            removed_chains: self.removed_chains - before.removed_chains,
        }
    }
}

#[derive(Debug, Clone)]
pub enum SentTransaction {
    Text(String),
    /// Netlink messages without a generation of the tables.
    Batch(Batch),
    Change(Box<NftChange>),
    Call(IpvsCall),
}

#[derive(Debug, Default)]
pub struct CallTotals {
    pub asked: KernelRequests,
    /// Time in the kernel and in commands.
    pub busy: Duration,
    pub longest: Duration,
    pub rendered: Duration,
    /// Allocations of the adapter, which are not the proxy's.
    pub allocated: Allocated,
    pub error: Option<String>,
    pub sent: Option<Vec<SentTransaction>>,
}

#[derive(Debug, Clone, Default)]
pub struct CallLog(Arc<Mutex<CallTotals>>);

impl CallLog {
    pub fn lock(&self) -> MutexGuard<'_, CallTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch<T, E: Display>(
        &self,
        call: impl FnOnce() -> Result<T, E>,
        count: impl FnOnce(&mut KernelRequests),
    ) -> Result<T, E> {
        let (start, allocated) = (Instant::now(), Allocated::by_this_thread());
        let result = call();
        let (busy, allocated) = (start.elapsed(), Allocated::by_this_thread() - allocated);
        let mut seen = self.lock();
        count(&mut seen.asked);
        seen.busy += busy;
        seen.allocated += allocated;
        if let Err(error) = &result {
            seen.error.get_or_insert_with(|| error.to_string());
        }
        result
    }
}

pub struct CountedIptables {
    kernel: Box<dyn Iptables + Send>,
    log: CallLog,
}

impl CountedIptables {
    pub fn new(kernel: Box<dyn Iptables + Send>, log: CallLog) -> CountedIptables {
        CountedIptables { kernel, log }
    }

    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Iptables) -> Result<T, IptablesError>,
        count: impl FnOnce(&mut KernelRequests),
    ) -> Result<T, IptablesError> {
        let kernel = &mut *self.kernel;
        self.log.watch(|| call(kernel), count)
    }
}

impl Iptables for CountedIptables {
    fn save(&mut self, tables: &[Table]) -> Result<String, IptablesError> {
        self.call(|kernel| kernel.save(tables), |asked| asked.dumps += 1)
    }

    fn restore(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        let result = self.call(|kernel| kernel.restore(change), |asked| asked.restores += 1);
        let before = Allocated::by_this_thread();
        let text = change.text();
        let mut seen = self.log.lock();
        seen.asked.bytes += text.len();
        for line in change.lines() {
            match line {
                RestoreLine::Declared(_) => seen.asked.chains += 1,
                RestoreLine::Rule(..) => seen.asked.rules += 1,
                RestoreLine::Removed(_) => seen.asked.removed_chains += 1,
                RestoreLine::Table(_) | RestoreLine::Commit => {}
            }
        }
        if let Some(sent) = &mut seen.sent {
            sent.push(SentTransaction::Text(text));
        }
        seen.allocated += Allocated::by_this_thread() - before;
        result
    }

    fn reference_counts(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        self.call(|kernel| kernel.reference_counts(table, chains), |asked| asked.looks += 1)
    }

    fn random_fully(&self) -> bool {
        self.kernel.random_fully()
    }
}

/// A netlink adapter that also counts the encoding.
pub struct CountedNetlink {
    tables: NfTables,
    log: CallLog,
}

impl CountedNetlink {
    pub fn open(family: Family, log: CallLog) -> Result<CountedNetlink, IptablesError> {
        let (mut tables, seen) = (NfTables::open(family)?.with_comparer()?, log.clone());
        tables.observe(Box::new(move |batch| {
            let mut seen = seen.lock();
            seen.asked.restores += 1;
            seen.asked.messages += batch.messages();
            seen.asked.bytes += batch.len();
            if let Some(sent) = &mut seen.sent {
                let mut batch = batch.clone();
                batch.set_generation(None);
                sent.push(SentTransaction::Batch(batch));
            }
        }));
        Ok(CountedNetlink { tables, log })
    }
}

impl PacketFilter for CountedNetlink {
    fn inner(&mut self) -> Option<&mut dyn PacketFilter> {
        Some(&mut self.tables)
    }

    fn list(&mut self, tables: &[Table], unread: &dyn Fn(Table, &str) -> bool) -> Result<SavedTables, IptablesError> {
        self.log.watch(|| self.tables.list(tables, unread), |asked| asked.dumps += 1)
    }

    fn rules(&mut self, table: Table, chain: &str, present: &[String]) -> Result<Vec<String>, IptablesError> {
        self.log.watch(|| self.tables.rules(table, chain, present), |_| {})
    }

    fn chain_equals(
        &mut self,
        table: Table,
        chain: &str,
        present: &[String],
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError> {
        self.log.watch(|| self.tables.chain_equals(table, chain, present, rules), |_| {})
    }

    fn commit(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        self.log.watch(|| self.tables.commit(change), |_| {})
    }

    fn reference_counts(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        self.log.watch(|| self.tables.reference_counts(table, chains), |asked| asked.looks += 1)
    }

    fn generation(&mut self) -> Result<Option<u32>, IptablesError> {
        self.log.watch(|| self.tables.generation(), |_| {})
    }

    fn random_fully(&mut self) -> bool {
        self.tables.random_fully()
    }
}

/// An adapter that stores nothing. Dumps are empty, so a full sync sends everything.
#[derive(Debug, Default)]
pub struct Silent;

impl Iptables for Silent {
    fn save(&mut self, _: &[Table]) -> Result<String, IptablesError> {
        Ok(String::new())
    }

    fn restore(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        // Rendering the commands' input is the proxy's own work.
        change.pieces(64 << 10).for_each(|piece| drop(std::hint::black_box(piece)));
        Ok(())
    }

    fn reference_counts(&mut self, _: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        Ok(vec![Some(usize::MAX); chains.len()])
    }

    fn random_fully(&self) -> bool {
        true
    }
}
