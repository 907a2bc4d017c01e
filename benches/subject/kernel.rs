//! A kernel adapter that counts what goes through it, and one that takes everything and keeps nothing.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nf_tables::Batch;
use serde::{Deserialize, Serialize};
use svcproxy::kernel::iptables::{Iptables, IptablesError};
use svcproxy::kernel::iptables_nft::NfTables;
use svcproxy::kernel::packet_filter::{Compare, PacketFilter};
use svcproxy::model::Family;
use svcproxy::nftables::NftChange;
use svcproxy::ruleset::{RestoreLine, Rule, SavedTables, Table, Transaction};

use super::ipvs::Call;
use crate::allocations::Allocated;

/// What a proxy asked of the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Reads of tables: with the commands, child processes that read.
    pub dumps: usize,
    /// Transactions sent: with the commands, child processes that write.
    pub restores: usize,
    /// Netlink messages in them.
    #[serde(default)]
    pub messages: usize,
    /// Elements of sets and maps that were sent, those that go as well.
    #[serde(default)]
    pub elements: usize,
    /// Looks at how chains are in use.
    pub looks: usize,
    /// Lists of virtual servers, sets and addresses.
    #[serde(default)]
    pub lists: usize,
    /// Bytes sent.
    pub bytes: usize,
    /// Rules sent.
    pub rules: usize,
    /// Chains written or emptied.
    pub chains: usize,
    /// Chains removed.
    pub removed_chains: usize,
}

impl Asked {
    /// Whether the kernel was asked to change something.
    pub fn is_change(&self) -> bool {
        self.restores > 0 || self.messages > 0
    }
}

impl std::ops::Sub for Asked {
    type Output = Asked;

    fn sub(self, before: Asked) -> Asked {
        Asked {
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

/// A transaction.
#[derive(Debug, Clone)]
pub enum Sent {
    /// What a command was fed with.
    Text(String),
    /// Netlink messages, for any generation of the tables.
    Batch(Batch),
    /// A change of a table in memory.
    Change(Box<NftChange>),
    /// What changes something other than rules.
    Call(Call),
}

/// All that was seen of a proxy's calls.
#[derive(Debug, Default)]
pub struct Seen {
    /// How much was asked.
    pub asked: Asked,
    /// How long the kernel and the commands took.
    pub busy: Duration,
    /// How long the kernel took for the longest transaction, where that is known.
    pub longest: Duration,
    /// How long writing down rules took.
    pub rendered: Duration,
    /// What the adapter below allocated, which is not the proxy's.
    pub allocated: Allocated,
    /// The first failure.
    pub error: Option<String>,
    /// The transactions, if they are to be kept.
    pub sent: Option<Vec<Sent>>,
}

/// A handle on what was observed, for the measurement.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Seen>>);

impl Log {
    /// What was seen so far.
    pub fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Times `call`, and counts it.
    pub(super) fn watch<T, E: Display>(
        &self,
        call: impl FnOnce() -> Result<T, E>,
        count: impl FnOnce(&mut Asked),
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

/// Counts and times every call.
pub struct Observed {
    kernel: Box<dyn Iptables + Send>,
    log: Log,
}

impl Observed {
    /// Hands calls on to `kernel`.
    pub fn new(kernel: Box<dyn Iptables + Send>, log: Log) -> Observed {
        Observed { kernel, log }
    }

    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Iptables) -> Result<T, IptablesError>,
        count: impl FnOnce(&mut Asked),
    ) -> Result<T, IptablesError> {
        let kernel = &mut *self.kernel;
        self.log.watch(|| call(kernel), count)
    }
}

impl Iptables for Observed {
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
            sent.push(Sent::Text(text));
        }
        seen.allocated += Allocated::by_this_thread() - before;
        result
    }

    fn uses(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        self.call(|kernel| kernel.uses(table, chains), |asked| asked.looks += 1)
    }

    fn random_fully(&self) -> bool {
        self.kernel.random_fully()
    }
}

/// Counts and times every call of the netlink writer. Encoding a change is part of what is timed: it is the writer's.
pub struct ObservedNetlink {
    tables: NfTables,
    log: Log,
}

impl ObservedNetlink {
    /// Opens the writer of a family.
    ///
    /// # Errors
    /// When the kernel has no nf_tables, or no right is given to change them.
    pub fn open(family: Family, log: Log) -> Result<ObservedNetlink, IptablesError> {
        let (mut tables, seen) = (NfTables::open(family)?.with_comparer()?, log.clone());
        tables.observe(Box::new(move |batch| {
            let mut seen = seen.lock();
            seen.asked.restores += 1;
            seen.asked.messages += batch.messages();
            seen.asked.bytes += batch.len();
            if let Some(sent) = &mut seen.sent {
                let mut batch = batch.clone();
                batch.set_generation(None);
                sent.push(Sent::Batch(batch));
            }
        }));
        Ok(ObservedNetlink { tables, log })
    }
}

impl PacketFilter for ObservedNetlink {
    fn look(&mut self, tables: &[Table], unread: &dyn Fn(Table, &str) -> bool) -> Result<SavedTables, IptablesError> {
        self.log.watch(|| self.tables.look(tables, unread), |asked| asked.dumps += 1)
    }

    fn rules(&mut self, table: Table, chain: &str, present: &[String]) -> Result<Vec<String>, IptablesError> {
        self.log.watch(|| self.tables.rules(table, chain, present), |_| {})
    }

    fn holds(
        &mut self,
        table: Table,
        chain: &str,
        present: &[String],
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError> {
        self.log.watch(|| self.tables.holds(table, chain, present, rules), |_| {})
    }

    fn comparer(&mut self) -> Option<Box<dyn Compare>> {
        self.tables.comparer()
    }

    fn takes_chains_ahead(&self) -> bool {
        self.tables.takes_chains_ahead()
    }

    fn commit(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        self.log.watch(|| self.tables.commit(change), |_| {})
    }

    fn uses(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        self.log.watch(|| self.tables.uses(table, chains), |asked| asked.looks += 1)
    }

    fn generation(&mut self) -> Result<Option<u32>, IptablesError> {
        self.log.watch(|| self.tables.generation(), |_| {})
    }

    fn is_untouched(&mut self, now: Option<u32>) -> bool {
        self.tables.is_untouched(now)
    }

    fn trust(&mut self, generation: Option<u32>) {
        self.tables.trust(generation);
    }

    fn random_fully(&self) -> bool {
        self.tables.random_fully()
    }
}

/// A packet filter that takes everything and keeps nothing. Its dumps are empty, so a full sync sends everything.
#[derive(Debug, Default)]
pub struct Silent;

impl Iptables for Silent {
    fn save(&mut self, _: &[Table]) -> Result<String, IptablesError> {
        Ok(String::new())
    }

    fn restore(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        // What the commands are fed with is the proxy's own work too.
        change.pieces(64 << 10).for_each(|piece| drop(std::hint::black_box(piece)));
        Ok(())
    }

    fn uses(&mut self, _: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        Ok(vec![Some(usize::MAX); chains.len()])
    }

    fn random_fully(&self) -> bool {
        true
    }
}
