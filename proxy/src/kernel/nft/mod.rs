//! The tables of iptables-nft, read and written by netlink: no command is run.
//!
//! What is left in the kernel is what `iptables-nft-restore` would have left, and `iptables-nft-save` prints it the same. A change is
//! one transaction over all tables of a family, made for the generation of the tables that it was computed from; chains are edited
//! by the handles of their rules, so that those which stay keep their counters.

mod commit;
mod decode;
mod dump;
mod edit;
mod encode;

use std::collections::{BTreeSet, HashMap};
use std::io;

use nf_tables::{ReadError, RuleInfo, Socket, canonical_into};

use crate::kernel::iptables::{Counted, IptablesError};
use crate::kernel::packet_filter::PacketFilter;
use crate::model::Family;
use crate::ruleset::{Rule, Saved, SavedTable, Table, Transaction};
use dump::Dumped;

/// How often a change is computed anew because another program wrote to the tables meanwhile. After that it is sent whatever others
/// do: what no longer fits is refused.
const TRIES: usize = 10;

/// One family's tables.
pub struct NfTables {
    family: Family,
    socket: Socket,
    batch: nf_tables::Batch,
    /// Numbers of IP sets, as of the last look; `None` for one that is not there.
    sets: HashMap<String, Option<u16>>,
    buffers: Buffers,
    /// Tables of which the kernel's own chains are known to be there.
    ready: BTreeSet<Table>,
    /// The generation at which the tables were as they had been read, but for changes of ours; `None`: another program has
    /// written since.
    known: Option<u32>,
    observer: Option<Observer>,
}

/// Sees each batch before it is sent.
pub type Observer = Box<dyn FnMut(&nf_tables::Batch) + Send>;

/// For comparing rules.
#[derive(Default)]
struct Buffers {
    rule: nf_tables::Rule,
    wanted: Vec<u8>,
    present: Vec<u8>,
}

impl Buffers {
    fn is_same(
        &mut self,
        family: Family,
        rule: &Rule,
        sets: &HashMap<String, Option<u16>>,
        present: &RuleInfo<'_>,
    ) -> bool {
        let index = |name: &str| sets.get(name).copied().flatten().ok_or(());
        if encode::encode(rule, family, &mut self.rule, index).is_err() || self.rule.error().is_some() {
            return false;
        }
        self.wanted.clear();
        self.present.clear();
        canonical_into(self.rule.expressions(), &mut self.wanted);
        canonical_into(present.expressions, &mut self.present);
        self.wanted == self.present
    }
}

impl NfTables {
    /// Opens a socket, and asks for something that needs the rights and the kernel support which the work needs.
    ///
    /// # Errors
    /// When the kernel has no nf_tables, or no right is given to change them.
    pub fn open(family: Family) -> Result<NfTables, IptablesError> {
        let failed =
            |source| IptablesError::NfTables { operation: "open a netlink socket for nf_tables".into(), source };
        let mut socket = Socket::open().map_err(failed)?;
        socket.generation().map_err(read_error)?;
        let batch = nf_tables::Batch::new();
        Ok(NfTables {
            family,
            socket,
            batch,
            sets: HashMap::new(),
            buffers: Buffers::default(),
            ready: BTreeSet::new(),
            known: None,
            observer: None,
        })
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Shows every batch from now on to `observer`, which benchmarks count and repeat.
    pub fn observe(&mut self, observer: Observer) {
        self.observer = Some(observer);
    }

    fn table(&self, table: Table) -> nf_tables::Table<'static> {
        nf_tables::Table::new(encode::family(self.family), table.as_str())
    }

    /// The rules of a chain as the kernel has them: handles and expressions.
    fn dump(&mut self, table: Table, chain: &str) -> Result<Vec<(u64, Vec<u8>)>, IptablesError> {
        let table = self.table(table);
        let rules = self.socket.rules(table, chain).map_err(read_error)?;
        Ok(rules.map(|rule| (rule.handle, rule.expressions.to_vec())).collect())
    }

    /// What the rules of these chains have counted; of all chains of the table without a name.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn counted(&mut self, table: Table, chain: Option<&str>) -> Result<Vec<Counted>, IptablesError> {
        let chains = match chain {
            Some(chain) => vec![chain.to_owned()],
            None => self.chains(&[table])?.into_iter().map(|(_, chain)| chain).collect(),
        };
        let (mut names, mut all) = (HashMap::new(), Vec::new());
        for chain in chains {
            for (_, bytes) in self.dump(table, &chain)? {
                let packets = nf_tables::counter(&bytes).map_or(0, |counter| counter.packets);
                let rule = self.text(&bytes, &mut names);
                all.push(Counted { chain: chain.clone(), rule, packets });
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

    /// If another program has written, a table may be gone with all its chains (`nft flush ruleset`, `iptables-nft -X`).
    fn distrust_tables(&mut self, generation: u32) {
        if self.known != Some(generation) {
            self.ready.clear();
        }
    }

    fn chains(&mut self, tables: &[Table]) -> Result<Vec<(Table, String)>, IptablesError> {
        let named = |name: &str| tables.iter().copied().find(|table| table.as_str() == name);
        let chains = self.socket.chains(encode::family(self.family)).map_err(read_error)?;
        Ok(chains.filter_map(|chain| Some((named(chain.table)?, chain.name.to_owned()))).collect())
    }
}

impl PacketFilter for NfTables {
    /// Chains, then the rules of each: the kernel's dump of a whole table takes a time that grows with the square of the rules.
    fn look(&mut self, tables: &[Table], unread: &dyn Fn(Table, &str) -> bool) -> Result<Saved, IptablesError> {
        let before = self.socket.generation().map_err(read_error)?;
        self.distrust_tables(before);
        self.sets.clear();
        let family = self.family;
        let at_once = self.socket.snapshot(|socket| dump::take(socket, family, tables, unread));
        let chains = match at_once {
            // Other programs write all the time: each chain is of one moment by itself.
            Err(error) if error.source.kind() == io::ErrorKind::ResourceBusy => {
                dump::take(&mut self.socket, family, tables, unread)
            }
            result => result,
        }
        .map_err(read_error)?;
        let after = self.socket.generation().map_err(read_error)?;
        let mut saved = Saved::default();
        tables.iter().for_each(|table| drop(saved.tables.insert(*table, SavedTable::default())));
        let mut names = HashMap::new();
        for Dumped { table, chain, rules } in chains {
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

    fn holds(
        &mut self,
        table: Table,
        chain: &str,
        _: &[String],
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError> {
        let rules: Vec<&Rule> = rules.collect();
        for name in rules.iter().flat_map(|rule| rule.sets()) {
            if !self.sets.contains_key(name) {
                let index = self.socket.ip_set(name).map_err(read_error)?;
                self.sets.insert(name.to_owned(), index);
            }
        }
        let (of, family) = (self.table(table), self.family);
        let (socket, buffers, sets) = (&mut self.socket, &mut self.buffers, &self.sets);
        let mut compare = |socket: &mut Socket| {
            let mut present = socket.rules(of, chain)?;
            let mut is_next =
                |rule: &&Rule| present.next().is_some_and(|present| buffers.is_same(family, rule, sets, &present));
            let all = rules.iter().all(&mut is_next);
            Ok(all && present.next().is_none())
        };
        let at_once = self.known.map(|known| socket.at_generation(known, &mut compare));
        match at_once.unwrap_or_else(|| compare(socket)) {
            // Another program has written since the look: each chain is of one moment by itself.
            Err(error) if error.source.kind() == io::ErrorKind::ResourceBusy => {
                self.known = None;
                compare(socket)
            }
            result => result,
        }
        .map_err(read_error)
    }

    fn takes_chains_ahead(&self) -> bool {
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

    fn uses(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        let table = self.table(table);
        let mut uses = Vec::with_capacity(chains.len());
        for chain in chains {
            let found = self.socket.chain(table, chain).map_err(read_error)?;
            uses.push(found.map(|chain| usize::try_from(chain.uses).unwrap_or(usize::MAX)));
        }
        Ok(uses)
    }

    /// Both families share it: a change of the other one looks like one of another program.
    fn generation(&mut self) -> Result<Option<u32>, IptablesError> {
        self.socket.generation().map(Some).map_err(read_error)
    }

    fn is_untouched(&mut self, now: Option<u32>) -> bool {
        self.known.is_some() && self.known == now
    }

    fn trust(&mut self, generation: Option<u32>) {
        self.known = generation;
    }

    fn random_fully(&self) -> bool {
        true
    }
}

fn read_error(error: ReadError) -> IptablesError {
    if error.source.raw_os_error() == Some(nix::libc::EPERM) {
        return IptablesError::NotPermitted { command: "netlink".into() };
    }
    IptablesError::NfTables { operation: format!("read {} of nf_tables", error.what), source: error.source }
}
