use std::collections::BTreeMap;

use nf_tables::{Batch, CommitError, EncodeError, Operation, RulePosition, canonical, canonical_into};

use super::edit::{ChainEdit, edits};
use super::encode::encode;
use super::{NfTables, read_error};
use crate::kernel::iptables::{IptablesError, RuleRefusal};
use crate::ruleset::{Rule, Table, TableChange, Transaction};

/// Bytes of a batch's allocation to keep.
const KEPT: usize = 1 << 20;
/// The bytes to commit at once: a large cluster's new chains take a hundred megabytes.
const AT_ONCE: usize = 4 << 20;

enum CommitStop {
    Restart,
    Failed(IptablesError),
}

impl From<IptablesError> for CommitStop {
    fn from(error: IptablesError) -> CommitStop {
        CommitStop::Failed(error)
    }
}

struct EncodedRule {
    rule: nf_tables::Rule,
    canonical: Vec<u8>,
}

/// Canonical rules in one allocation, since shared chains are long.
#[derive(Default)]
struct CanonicalRules<T> {
    bytes: Vec<u8>,
    /// Each rule's end and tag.
    ends: Vec<(T, usize)>,
}

impl<T: Copy> CanonicalRules<T> {
    fn push(&mut self, of: T, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push((of, self.bytes.len()));
    }

    fn iter(&self) -> impl Iterator<Item = (T, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        self.ends.iter().zip(starts).map(|((of, end), start)| (*of, self.bytes.get(start..*end).unwrap_or_default()))
    }
}

/// The chain and rule of the operations from number `from` on.
struct OperationOrigin<'a> {
    from: u32,
    table: Table,
    chain: &'a str,
    rule: Option<&'a Rule>,
}

struct PendingCommit<'a> {
    tables: &'a mut NfTables,
    batch: Batch,
    marks: Vec<OperationOrigin<'a>>,
    sets: BTreeMap<String, u16>,
    /// Whether the commit fails after another program's change.
    guarded: bool,
    generation: u32,
    /// Whether only this program has changed the tables.
    sure: bool,
}

impl NfTables {
    /// Commits a change. Returns `false` if it is `guarded` and another program changed the tables first. Splits a
    /// change that exceeds the socket's buffer.
    pub(super) fn try_commit(&mut self, change: &Transaction, guarded: bool) -> Result<bool, IptablesError> {
        let generation = self.socket.generation().map_err(read_error)?;
        let sure = guarded && self.known == Some(generation);
        self.distrust_tables(generation);
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        batch.set_generation(guarded.then_some(generation));
        let mut sending =
            PendingCommit { tables: self, batch, marks: Vec::new(), sets: BTreeMap::new(), guarded, generation, sure };
        let result = sending.all(change).and_then(|()| sending.flush());
        let batch = std::mem::take(&mut sending.batch);
        if batch.capacity() <= KEPT {
            self.batch = batch;
        }
        if result.is_err() {
            // The failed batch may have added the built-in chains.
            self.ready.clear();
        }
        match result {
            Ok(()) => Ok(true),
            Err(CommitStop::Restart) => Ok(false),
            Err(CommitStop::Failed(error)) => Err(error),
        }
    }
}

impl<'a> PendingCommit<'a> {
    fn all(&mut self, change: &'a Transaction) -> Result<(), CommitStop> {
        for (table, change) in change.tables.iter().filter(|(_, change)| !change.is_empty()) {
            self.built_in(*table)?;
            // Adds the chains before the rules that jump to them.
            for chain in change.write.keys() {
                let on = self.tables.table(*table);
                self.add(*table, chain, None, |batch| batch.add_chain(on, chain))?;
            }
        }
        let (new, old): (Vec<_>, Vec<_>) =
            change.writes().into_iter().partition(|(table, chain, _)| self.sure && change.is_absent(*table, chain));
        for (table, chain, rules) in new {
            self.write_new(table, chain, rules)?;
            // No packet reaches the new chains yet.
            if self.batch.len() > AT_ONCE {
                self.flush()?;
            }
        }
        for (table, chain, rules) in old {
            self.write(table, chain, rules)?;
        }
        for (table, change) in &change.tables {
            self.single_rules(*table, change)?;
        }
        for (table, change) in &change.tables {
            self.remove(*table, &change.remove)?;
        }
        Ok(())
    }

    /// Adds missing built-in chains, like iptables-nft.
    fn built_in(&mut self, table: Table) -> Result<(), CommitStop> {
        if self.tables.ready.contains(&table) {
            return Ok(());
        }
        let on = self.tables.table(table);
        for (_, name, base) in nf_tables::iptables::BUILT_IN.iter().filter(|(of, ..)| *of == table.as_str()) {
            if self.tables.socket.chain(on, name).map_err(read_error)?.is_none() {
                self.add(table, name, None, |batch| batch.add_table(on))?;
                self.add(table, name, None, |batch| batch.add_base_chain(on, name, base))?;
            }
        }
        self.tables.ready.insert(table);
        Ok(())
    }

    fn write_new(&mut self, table: Table, chain: &'a str, rules: &'a [Rule]) -> Result<(), CommitStop> {
        let (on, mut encoded) = (self.tables.table(table), nf_tables::Rule::new());
        for rule in rules {
            self.encode(table, chain, rule, &mut encoded)?;
            self.add(table, chain, Some(rule), |batch| batch.add_rule(on, chain, &encoded))?;
        }
        Ok(())
    }

    fn write(&mut self, table: Table, chain: &'a str, rules: &'a [Rule]) -> Result<(), CommitStop> {
        let on = self.tables.table(table);
        let (mut present, mut wanted) = (CanonicalRules::default(), CanonicalRules::default());
        let family = on.family;
        for rule in self.tables.socket.rules(on, chain).map_err(read_error)? {
            present.push(rule.handle, |bytes| canonical_into(family, rule.expressions, bytes));
        }
        let mut encoded = nf_tables::Rule::new();
        for rule in rules {
            self.encode(table, chain, rule, &mut encoded)?;
            wanted.push((), |bytes| canonical_into(family, encoded.expressions(), bytes));
        }
        let wanted: Vec<&[u8]> = wanted.iter().map(|((), bytes)| bytes).collect();
        for edit in edits(&present.iter().collect::<Vec<_>>(), &wanted) {
            match edit {
                ChainEdit::Delete(handle) => {
                    self.add(table, chain, None, |batch| batch.delete_rule(on, chain, handle))?
                }
                ChainEdit::Insert(index, before) => {
                    let position = before.map_or(RulePosition::Last, RulePosition::Before);
                    let Some(rule) = rules.get(index) else { continue };
                    self.encode(table, chain, rule, &mut encoded)?;
                    self.add(table, chain, Some(rule), |batch| batch.insert_rule(on, chain, position, &encoded))?;
                }
            }
        }
        Ok(())
    }

    fn single_rules(&mut self, table: Table, change: &'a TableChange) -> Result<(), CommitStop> {
        let on = self.tables.table(table);
        for (chain, rule) in &change.append {
            let encoded = self.encoded(table, chain, rule)?.rule;
            self.add(table, chain, Some(rule), |batch| batch.add_rule(on, chain, &encoded))?;
        }
        // Each deletion deletes another of identical copies.
        let mut gone = Vec::new();
        for (chain, rule) in &change.delete {
            let wanted = self.encoded(table, chain, rule)?.canonical;
            let present = self.present(table, chain)?;
            let copy = present.iter().find(|(handle, bytes)| *bytes == wanted && !gone.contains(handle));
            if let Some((handle, _)) = copy {
                gone.push(*handle);
                self.add(table, chain, Some(rule), |batch| batch.delete_rule(on, chain, *handle))?;
            }
        }
        for (chain, rule) in &change.insert {
            let wanted = self.encoded(table, chain, rule)?;
            // An earlier, partly applied attempt may have added the rule.
            if !self.present(table, chain)?.iter().any(|(_, bytes)| *bytes == wanted.canonical) {
                self.add(table, chain, Some(rule), |batch| {
                    batch.insert_rule(on, chain, RulePosition::First, &wanted.rule)
                })?;
            }
        }
        Ok(())
    }

    /// Empties the chains before it deletes them: they may jump to each other.
    fn remove(&mut self, table: Table, chains: &'a [String]) -> Result<(), CommitStop> {
        let on = self.tables.table(table);
        let mut there = Vec::new();
        for chain in chains {
            if self.tables.socket.chain(on, chain).map_err(read_error)?.is_some() {
                self.add(table, chain, None, |batch| batch.flush_chain(on, chain))?;
                there.push(chain);
            }
        }
        there.into_iter().try_for_each(|chain| self.add(table, chain, None, |batch| batch.delete_chain(on, chain)))
    }

    fn present(&mut self, table: Table, chain: &str) -> Result<Vec<(u64, Vec<u8>)>, CommitStop> {
        let rules = self.tables.dump(table, chain)?;
        let family = self.tables.table(table).family;
        Ok(rules.into_iter().map(|(handle, bytes)| (handle, canonical(family, &bytes))).collect())
    }

    fn encoded(&mut self, table: Table, chain: &str, rule: &Rule) -> Result<EncodedRule, CommitStop> {
        let mut encoded = nf_tables::Rule::new();
        self.encode(table, chain, rule, &mut encoded)?;
        let canonical = canonical(self.tables.table(table).family, encoded.expressions());
        Ok(EncodedRule { rule: encoded, canonical })
    }

    fn encode(&mut self, table: Table, chain: &str, rule: &Rule, out: &mut nf_tables::Rule) -> Result<(), CommitStop> {
        let (sets, socket) = (&mut self.sets, &mut self.tables.socket);
        let family = self.tables.family;
        encode(rule, family, out, |name| {
            if let Some(index) = sets.get(name) {
                return Ok(*index);
            }
            let missing = || IptablesError::NoSuchSet { name: name.to_owned(), rule: rule.to_string() };
            let index = socket.ip_set(name).map_err(read_error)?.ok_or_else(missing)?;
            sets.insert(name.to_owned(), index);
            Ok(index)
        })
        .map_err(CommitStop::Failed)?;
        match out.error() {
            None => Ok(()),
            Some(problem) => Err(unencodable(table, chain, Some(rule), &problem.to_string()).into()),
        }
    }

    /// Adds an operation. Sends the earlier ones first if the batch becomes too large.
    fn add(
        &mut self,
        table: Table,
        chain: &'a str,
        rule: Option<&'a Rule>,
        operation: impl Fn(&mut Batch) -> Result<Operation, EncodeError>,
    ) -> Result<(), CommitStop> {
        let failed = |problem: EncodeError| CommitStop::Failed(unencodable(table, chain, rule, &problem.to_string()));
        let before = self.batch.checkpoint();
        let is_first = self.batch.is_empty();
        let mut at = operation(&mut self.batch).map_err(failed)?;
        if self.batch.len() > self.tables.socket.largest_batch() && !is_first {
            self.batch.rollback(before);
            self.flush()?;
            at = operation(&mut self.batch).map_err(failed)?;
        }
        self.marks.push(OperationOrigin { from: at.0, table, chain, rule });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CommitStop> {
        if self.batch.is_empty() {
            return Ok(());
        }
        if let Some(observe) = &mut self.tables.observer {
            observe(&self.batch);
        }
        let committed = self.tables.socket.commit(&self.batch);
        let marks = std::mem::take(&mut self.marks);
        let made = committed.map_err(|error| of_commit(error, &marks))?.generation;
        // Another program may have written before this commit.
        let followed = self.guarded && self.tables.known == Some(self.generation);
        self.tables.known = made.filter(|_| followed);
        self.generation = made.map_or_else(|| self.tables.socket.generation().map_err(read_error), Ok)?;
        self.batch.clear();
        self.batch.set_generation(self.guarded.then_some(self.generation));
        Ok(())
    }
}

fn unencodable(table: Table, chain: &str, rule: Option<&Rule>, problem: &str) -> IptablesError {
    let rule = rule.map(ToString::to_string);
    IptablesError::Refused(vec![RuleRefusal { table, chain: chain.to_owned(), rule, problem: problem.to_owned() }])
}

fn of_commit(error: CommitError, marks: &[OperationOrigin<'_>]) -> CommitStop {
    CommitStop::Failed(match error {
        CommitError::Restart => return CommitStop::Restart,
        CommitError::NotPermitted => IptablesError::NotPermitted { command: "netlink".into() },
        CommitError::TooLarge { .. } => IptablesError::TooLarge { command: "netlink".into() },
        CommitError::Refused(refusals) => {
            let of_mark = |operation: u32, problem: String| {
                let at = marks.partition_point(|mark| mark.from <= operation).checked_sub(1)?;
                let OperationOrigin { table, chain, rule, .. } = marks.get(at)?;
                Some(RuleRefusal {
                    table: *table,
                    chain: (*chain).to_owned(),
                    rule: rule.map(ToString::to_string),
                    problem,
                })
            };
            let each: Option<Vec<RuleRefusal>> =
                refusals.iter().map(|refusal| of_mark(refusal.operation.0, refusal.to_string())).collect();
            let problem = || refusals.first().map_or_else(String::new, ToString::to_string);
            each.map_or_else(|| commit_failed(std::io::Error::other(problem())), IptablesError::Refused)
        }
        CommitError::Whole(source) => IptablesError::NfTables { operation: "commit the change".into(), source },
        CommitError::Send(source) | CommitError::Unknown(source) => commit_failed(source),
        other => commit_failed(std::io::Error::other(other.to_string())),
    })
}

fn commit_failed(source: std::io::Error) -> IptablesError {
    IptablesError::NfTables { operation: "send a change to nf_tables".into(), source }
}
