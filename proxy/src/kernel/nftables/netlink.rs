//! Reads and writes the table by netlink.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nf_tables::{Batch, NfSocket, QueryError, RuleInfo, Table};

use super::batches::{self, TableTarget};
use super::pipeline;
use super::{
    ListedChain, ListedSet, ListedTable, NftTable, NftTableError, RuleFingerprint, SetShape, TableQuery, TableState,
    encode, error,
};
use crate::model::Family;
use crate::nftables::text::of_kernel;
use crate::nftables::{Element, ElementKey, ElementKind, ElementValue, NftChange, NftVerdict, Rule, Set};

/// Bytes of a batch's allocation to keep.
const KEPT: usize = 1 << 20;

pub struct NetlinkTable {
    family: Family,
    name: &'static str,
    comment: &'static str,
    socket: NfSocket,
    batch: Batch,
    observer: Option<TimedBatchObserver>,
    /// The expected generation; `None` if another program has changed a table since the last list.
    expected: Option<u32>,
}

pub type TimedBatchObserver = Box<dyn FnMut(&Batch, Duration) + Send>;

impl NetlinkTable {
    /// `comment` identifies this version's tables.
    pub fn open(family: Family, name: &'static str, comment: &'static str) -> Result<NetlinkTable, NftTableError> {
        let socket = NfSocket::open().map_err(|source| error("open a socket", source))?;
        Ok(NetlinkTable { family, name, comment, socket, batch: Batch::new(), observer: None, expected: None })
    }

    pub fn observe(&mut self, observer: TimedBatchObserver) {
        self.observer = Some(observer);
    }

    pub fn probe(family: Family, name: &'static str, change: &NftChange) -> Result<(), NftTableError> {
        let mut own = NetlinkTable::open(family, name, "")?;
        own.commit(change)?;
        own.delete().map(drop)
    }

    pub fn exists(&mut self) -> Result<bool, NftTableError> {
        let table = self.table();
        let there = self.socket.table(table).map(|table| table.is_some());
        there.map_err(|source| self.read_error(&source))
    }

    fn table(&self) -> Table<'static> {
        Table::new(of_kernel(self.family), self.name)
    }

    fn read_error(&self, source: &QueryError) -> NftTableError {
        error(format!("read the table {} ({})", self.name, self.family), source)
    }

    fn saved(&mut self, query: TableQuery<'_>) -> Result<ListedTable, QueryError> {
        let (table, family) = (self.table(), self.family);
        let mut saved = ListedTable::default();
        let of_rule = |rule: &RuleInfo<'_>| encode::fingerprint(family, rule.expressions, rule.user_data);
        for rule in self.socket.table_rules(table)? {
            let chain = saved.chains.entry(rule.chain.to_owned());
            chain.or_insert(ListedChain { base: None, rules: Vec::new() }).rules.push(of_rule(&rule));
        }
        for name in query.base_chains {
            if let Some(chain) = self.socket.chain(table, name)? {
                let base = chain.base.as_ref().and_then(encode::saved_base);
                saved.chains.entry((*name).to_owned()).or_insert(ListedChain { base: None, rules: Vec::new() }).base =
                    base;
            }
        }
        for set in self.socket.sets(table)? {
            let one = ListedSet { shape: encode::saved_shape(&set), size: set.size };
            saved.sets.insert(set.name.to_owned(), one);
        }
        // Without a map of counters this program's tables have no counters.
        if saved.sets.values().any(|set| set.shape.holds_counters()) {
            saved.counters.extend(self.socket.counters(table)?.map(|counter| counter.name.to_owned()));
        }
        for (name, set) in query.elements {
            let elements = self.socket.elements(table, name)?;
            if set.ranges && set.key.len() == 1 {
                saved.elements.extend(plain_ranges(
                    name,
                    elements.map(|one| (ElementKey::from_bytes(one.key), !one.interval_end)),
                ));
            } else {
                saved.elements.extend(elements.filter_map(|element| read(name, set, &element)));
            }
        }
        Ok(saved)
    }
}

/// Combines each range's first key (`true`) and the first key after it (`false`), in any order.
fn plain_ranges(set: &'static str, elements: impl Iterator<Item = (ElementKey, bool)>) -> Vec<Element> {
    let mut elements: Vec<(ElementKey, bool)> = elements.collect();
    // A range's end precedes the next range's begin.
    elements.sort_unstable();
    let (mut ranges, mut open) = (Vec::new(), None);
    for (key, begins) in elements {
        if let (Some(first), Some(last)) = (open.take(), key.preceding()) {
            ranges.push(Element { set, key: first, value: ElementValue::To(last) });
        }
        open = begins.then_some(key);
    }
    let last = |first: &ElementKey| ElementKey::from_bytes(&vec![u8::MAX; first.bytes().len()]);
    ranges.extend(open.map(|first| Element { set, key: first, value: ElementValue::To(last(&first)) }));
    ranges
}

pub fn packets(family: Family, table: &str, chain: &str) -> Result<u64, NftTableError> {
    let failed = |reason: &dyn std::fmt::Display| error(format!("read the rules of the chain {chain}"), reason);
    let mut socket = NfSocket::open().map_err(|source| failed(&source))?;
    let rules = socket.rules(Table::new(of_kernel(family), table), chain).map_err(|source| failed(&source))?;
    Ok(rules.filter_map(|rule| Some(nf_tables::counter(rule.expressions)?.packets)).sum())
}

/// Returns the table's counters with their values; none without the table.
pub fn counters(family: Family, table: &str) -> Result<Vec<(String, nf_tables::Counter)>, NftTableError> {
    let failed = |reason: &dyn std::fmt::Display| error(format!("read the counters of the table {table}"), reason);
    let mut socket = NfSocket::open().map_err(|source| failed(&source))?;
    let counters = socket.counters(Table::new(of_kernel(family), table)).map_err(|source| failed(&source))?;
    Ok(counters.map(|counter| (counter.name.to_owned(), counter.counter)).collect())
}

fn read(name: &'static str, set: &Set, element: &nf_tables::ElementInfo<'_>) -> Option<Element> {
    let value = match (set.holds, element.value, element.key_end) {
        (ElementKind::Keys, None, None) => ElementValue::None,
        (ElementKind::Keys, None, Some(last)) => ElementValue::To(ElementKey::from_bytes(last)),
        (ElementKind::Endpoints, Some(nf_tables::ElementValue::Data(data)), _) => {
            ElementValue::Endpoint(ElementKey::from_bytes(data))
        }
        (ElementKind::Counters, Some(nf_tables::ElementValue::Counter(name)), _) => {
            ElementValue::Counter(Arc::from(name))
        }
        (ElementKind::Verdicts, Some(nf_tables::ElementValue::Verdict(verdict)), _) => {
            ElementValue::Verdict(match verdict {
                nf_tables::NfVerdict::Drop => NftVerdict::Drop,
                nf_tables::NfVerdict::Return => NftVerdict::Return,
                nf_tables::NfVerdict::Jump(chain) => NftVerdict::Jump(Arc::from(chain)),
                nf_tables::NfVerdict::Goto(chain) => NftVerdict::Goto(Arc::from(chain)),
                nf_tables::NfVerdict::Accept | nf_tables::NfVerdict::Continue => return None,
            })
        }
        _ => return None,
    };
    Some(Element { set: name, key: ElementKey::from_bytes(element.key), value })
}

impl NftTable for NetlinkTable {
    fn list(&mut self, query: TableQuery<'_>) -> Result<TableState, NftTableError> {
        let comment = nf_tables::field::comment_user_data(self.comment);
        let table = self.table();
        // Reads the generation first, so that changes during the list count as later ones.
        self.is_untouched()?;
        let there =
            self.socket.table(table).map(|table| table.map(|table| table.user_data == comment && table.flags == 0));
        match there.map_err(|source| self.read_error(&source))? {
            None => return Ok(TableState::Nothing),
            Some(false) => return Ok(TableState::Other),
            Some(true) => {}
        }
        self.saved(query).map(TableState::Ours).map_err(|source| self.read_error(&source))
    }

    fn fill(&mut self, change: &NftChange, more: &mut dyn Iterator<Item = Element>) -> Result<(), NftTableError> {
        let NetlinkTable { socket, batch, observer, expected, .. } = self;
        let target =
            TableTarget { family: self.family, name: self.name, comment: self.comment, room: socket.largest_batch() };
        let mut send = |batch: &Batch| {
            let begun = Instant::now();
            let sent = socket.commit(batch).map(drop);
            if let Some(observer) = observer {
                observer(batch, begun.elapsed());
            }
            // A commit that changes something increases the generation by one.
            *expected = expected.filter(|_| sent.is_ok()).map(|generation| generation.wrapping_add(1));
            sent.map_err(|source| error(format!("change the table {} ({})", target.name, target.family), source))
        };
        let mut more = more.peekable();
        let result = if more.peek().is_none() {
            batches::each(change, &mut more, target, batch, |batch| send(batch))
        } else {
            pipeline::with(send, |send| batches::each(change, &mut more, target, batch, send))
        };
        if self.batch.capacity() > KEPT {
            self.batch = Batch::new();
        }
        result
    }

    fn reference_counts(&mut self, chains: &[&str]) -> Result<Vec<Option<usize>>, NftTableError> {
        let table = self.table();
        let one = |chain: &&str| {
            let found = self.socket.chain(table, chain).map(|found| found.map(|chain| chain.uses));
            let found = found.map_err(|source| error(format!("read the chain {chain}"), source))?;
            Ok(found.and_then(|uses| usize::try_from(uses).ok()))
        };
        chains.iter().map(one).collect()
    }

    fn is_untouched(&mut self) -> Result<bool, NftTableError> {
        let now = self.socket.generation().map_err(|source| self.read_error(&source))?;
        Ok(self.expected.replace(now) == Some(now))
    }

    fn delete(&mut self) -> Result<bool, NftTableError> {
        if !self.exists()? {
            return Ok(false);
        }
        let table = self.table();
        let operation = format!("delete the table {} ({})", self.name, self.family);
        let mut batch = Batch::new();
        batch.delete_table(table).map_err(|source| error(&operation, source))?;
        self.socket.commit(&batch).map_err(|source| error(&operation, source))?;
        Ok(true)
    }

    fn fingerprints(&self, rules: &[Rule]) -> Vec<RuleFingerprint> {
        encode::fingerprints(rules, self.family)
    }

    fn shape(&self, set: &Set) -> SetShape {
        encode::shape(set, self.family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_put_together_from_their_ends() {
        let key = |text: &str| ElementKey::default().address(text.parse().unwrap());
        let read = |told: &[(&str, bool)]| {
            let ranges = plain_ranges("x", told.iter().map(|(text, begins)| (key(text), *begins)));
            let text = |range: Element| match range.value {
                ElementValue::To(last) => [range.key, last].map(|key| key.bytes().to_vec()),
                other => panic!("{other:?}"),
            };
            ranges.into_iter().map(text).collect::<Vec<_>>()
        };
        let range = |first: &str, last: &str| [first, last].map(|text| key(text).bytes().to_vec());
        // `nft` also adds an end element at the lowest address, before the first range.
        let two =
            [("10.97.0.0", false), ("10.96.0.0", true), ("10.98.0.0", false), ("10.97.0.0", true), ("0.0.0.0", false)];
        assert_eq!(read(&two), [range("10.96.0.0", "10.96.255.255"), range("10.97.0.0", "10.97.255.255")]);
        assert_eq!(read(&[("240.0.0.0", true)]), [range("240.0.0.0", "255.255.255.255")]);
        assert_eq!(read(&[("::", true), ("::1", false)]), [range("::", "::")]);
    }
}
