//! The tables of iptables-nft, through netlink.
//!
//! A change is one transaction over all tables of a family, valid for one generation. It edits chains by handles, so
//! unchanged rules keep their counters.

mod commit;
mod compare;
mod decode;
mod dump;
mod edit;
mod encode;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use nf_tables::{NfSocket, QueryError};

use crate::kernel::iptables::{CountedRule, IptablesError};
use crate::kernel::packet_filter::{ChainComparer, PacketFilter};
use crate::model::Family;
use crate::nftables::text::of_kernel;
use crate::ruleset::{Rule, SavedTable, SavedTables, Table, Transaction};
use compare::{ChainComparison, ThreadComparer};
use dump::DumpedChain;

/// The number of conditional commits before an unconditional one.
const TRIES: usize = 10;

pub struct NfTables {
    family: Family,
    socket: NfSocket,
    batch: nf_tables::Batch,
    comparison: ChainComparison,
    /// Its socket is in the same network namespace.
    comparer: Option<Arc<Mutex<ThreadComparer>>>,
    ready: BTreeSet<Table>,
    /// The generation after which no other program changed the tables.
    known: Option<u32>,
    observer: Option<BatchObserver>,
}

pub type BatchObserver = Box<dyn FnMut(&nf_tables::Batch) + Send>;

impl NfTables {
    /// Fails without rights or kernel support.
    pub fn open(family: Family) -> Result<NfTables, IptablesError> {
        let mut socket = open()?;
        socket.generation().map_err(read_error)?;
        let batch = nf_tables::Batch::new();
        Ok(NfTables {
            family,
            socket,
            batch,
            comparison: ChainComparison::new(family),
            comparer: None,
            ready: BTreeSet::new(),
            known: None,
            observer: None,
        })
    }

    pub fn with_comparer(mut self) -> Result<NfTables, IptablesError> {
        if available_parallelism().is_ok_and(|processors| processors.get() > 1) {
            let (socket, comparison) = (open()?, ChainComparison::new(self.family));
            self.comparer = Some(Arc::new(Mutex::new(ThreadComparer { socket, comparison, known: None })));
        }
        Ok(self)
    }

    pub fn family(&self) -> Family {
        self.family
    }

    pub fn observe(&mut self, observer: BatchObserver) {
        self.observer = Some(observer);
    }

    fn table(&self, table: Table) -> nf_tables::Table<'static> {
        nf_tables::Table::new(of_kernel(self.family), table.as_str())
    }

    fn dump(&mut self, table: Table, chain: &str) -> Result<Vec<(u64, Vec<u8>)>, IptablesError> {
        let table = self.table(table);
        let rules = self.socket.rules(table, chain).map_err(read_error)?;
        Ok(rules.map(|rule| (rule.handle, rule.expressions.to_vec())).collect())
    }

    pub fn counted(&mut self, table: Table, chain: Option<&str>) -> Result<Vec<CountedRule>, IptablesError> {
        let chains = match chain {
            Some(chain) => vec![chain.to_owned()],
            None => self.chains(&[table])?.into_iter().map(|(_, chain)| chain).collect(),
        };
        let (mut names, mut all) = (HashMap::new(), Vec::new());
        for chain in chains {
            for (_, bytes) in self.dump(table, &chain)? {
                let packets = nf_tables::counter(&bytes).map_or(0, |counter| counter.packets);
                let rule = self.text(&bytes, &mut names);
                all.push(CountedRule { chain: chain.clone(), rule, packets });
            }
        }
        Ok(all)
    }

    fn text(&mut self, bytes: &[u8], names: &mut HashMap<u16, Option<String>>) -> String {
        let socket = &mut self.socket;
        decode::text(bytes, self.family, &mut |index| {
            names.entry(index).or_insert_with(|| socket.ip_set_name(index).ok().flatten()).clone()
        })
    }

    /// Forgets which tables exist after another program's change, such as `nft flush ruleset` or `iptables-nft -X`.
    fn distrust_tables(&mut self, generation: u32) {
        if self.known != Some(generation) {
            self.ready.clear();
        }
    }

    fn chains(&mut self, tables: &[Table]) -> Result<Vec<(Table, String)>, IptablesError> {
        let named = |name: &str| tables.iter().copied().find(|table| table.as_str() == name);
        let chains = self.socket.chains(of_kernel(self.family)).map_err(read_error)?;
        Ok(chains.filter_map(|chain| Some((named(chain.table)?, chain.name.to_owned()))).collect())
    }
}

impl PacketFilter for NfTables {
    /// Reads chain by chain: the time of a table's dump grows with the square of its rules.
    fn list(&mut self, tables: &[Table], unread: &dyn Fn(Table, &str) -> bool) -> Result<SavedTables, IptablesError> {
        let before = self.socket.generation().map_err(read_error)?;
        self.distrust_tables(before);
        self.comparison.forget_sets();
        let family = self.family;
        let at_once = self.socket.snapshot(|socket| dump::take(socket, family, tables, unread));
        let chains = match at_once {
            // Reads again without a snapshot: only each chain is consistent.
            Err(error) if error.source.kind() == io::ErrorKind::ResourceBusy => {
                dump::take(&mut self.socket, family, tables, unread)
            }
            result => result,
        }
        .map_err(read_error)?;
        let after = self.socket.generation().map_err(read_error)?;
        let mut saved = SavedTables::default();
        tables.iter().for_each(|table| drop(saved.tables.insert(*table, SavedTable::default())));
        let mut names = HashMap::new();
        for DumpedChain { table, chain, rules } in chains {
            let texts = rules.iter().map(|bytes| self.text(bytes, &mut names)).collect();
            saved.tables.entry(table).or_default().chains.insert(chain, texts);
        }
        self.known = (before == after).then_some(after);
        Ok(saved)
    }

    fn rules(&mut self, table: Table, chain: &str, _: &[String]) -> Result<Vec<String>, IptablesError> {
        let (rules, mut names) = (self.dump(table, chain)?, HashMap::new());
        Ok(rules.iter().map(|(_, bytes)| self.text(bytes, &mut names)).collect())
    }

    fn chain_equals(
        &mut self,
        table: Table,
        chain: &str,
        _: &[String],
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError> {
        self.comparison.chain_equals(&mut self.socket, &mut self.known, table, chain, rules)
    }

    fn comparer(&mut self) -> Option<Box<dyn ChainComparer>> {
        let Some(comparer) = &self.comparer else { return None };
        let mut next = comparer.lock().unwrap_or_else(PoisonError::into_inner);
        next.known = self.known;
        next.comparison.forget_sets();
        Some(Box::new(Arc::clone(comparer)))
    }

    fn supports_early_chains(&mut self) -> bool {
        true
    }

    fn commit(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        if change.is_empty() {
            return Ok(());
        }
        for _ in 0..TRIES {
            if self.try_commit(change, true)? {
                return Ok(());
            }
        }
        self.try_commit(change, false).map(drop)
    }

    fn reference_counts(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        let table = self.table(table);
        let mut uses = Vec::with_capacity(chains.len());
        for chain in chains {
            let found = self.socket.chain(table, chain).map_err(read_error)?;
            uses.push(found.map(|chain| usize::try_from(chain.uses).unwrap_or(usize::MAX)));
        }
        Ok(uses)
    }

    /// Returns the generation, which both families share.
    fn generation(&mut self) -> Result<Option<u32>, IptablesError> {
        self.socket.generation().map(Some).map_err(read_error)
    }

    fn is_untouched(&mut self, now: Option<u32>) -> bool {
        self.known.is_some() && self.known == now
    }

    fn set_known_generation(&mut self, generation: Option<u32>) {
        self.known = generation;
    }

    fn random_fully(&mut self) -> bool {
        true
    }
}

fn open() -> Result<NfSocket, IptablesError> {
    let operation = "open a netlink socket for nf_tables";
    NfSocket::open().map_err(|source| IptablesError::NfTables { operation: operation.into(), source })
}

fn read_error(error: QueryError) -> IptablesError {
    if error.source.raw_os_error() == Some(nix::libc::EPERM) {
        return IptablesError::NotPermitted { command: "netlink".into() };
    }
    IptablesError::NfTables { operation: format!("read {} of nf_tables", error.what), source: error.source }
}
