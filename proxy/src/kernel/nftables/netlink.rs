//! The table, by netlink.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nf_tables::{Batch, ReadError, RuleInfo, Socket, Table};

use super::batches::{self, Target};
use super::pipeline;
use super::{Fingerprint, Look, NftTable, NftTableError, Saved, SavedChain, SavedSet, Shape, Standing, encode, error};
use crate::model::Family;
use crate::nftables::text::of_kernel;
use crate::nftables::{Element, ElementKey, ElementKind, ElementValue, NftChange, NftVerdict, Rule, Set};

/// Bytes of a batch whose memory is kept for the next one.
const KEPT: usize = 1 << 20;

/// The table of one family in this network namespace.
pub struct Netlink {
    family: Family,
    name: &'static str,
    comment: &'static str,
    socket: Socket,
    batch: Batch,
    observer: Option<Observer>,
    /// The generation that the tables of this network namespace have if nobody else has changed one since the last look.
    expected: Option<u32>,
}

/// Sees each batch that was sent, and how long the kernel took.
pub type Observer = Box<dyn FnMut(&Batch, Duration) + Send>;

impl Netlink {
    /// Opens a socket for the table of this name; `comment`: what its own version of it says of itself.
    ///
    /// # Errors
    /// When the kernel has no nf_tables.
    pub fn open(family: Family, name: &'static str, comment: &'static str) -> Result<Netlink, NftTableError> {
        let socket = Socket::open().map_err(|source| error("open a socket", source))?;
        Ok(Netlink { family, name, comment, socket, batch: Batch::new(), observer: None, expected: None })
    }

    /// Shows every batch from now on to `observer`, which benchmarks count and repeat.
    pub fn observe(&mut self, observer: Observer) {
        self.observer = Some(observer);
    }

    /// Makes the table `name` with everything in it that tables of this program's have, in a batch of its own, and deletes it again: what the
    /// kernel, or the rights, lack is known before anything depends on it.
    ///
    /// # Errors
    /// What is lacking.
    pub fn probe(family: Family, name: &'static str, change: &NftChange) -> Result<(), NftTableError> {
        let mut own = Netlink::open(family, name, "")?;
        own.commit(change)?;
        own.delete().map(drop)
    }

    /// Whether there is a table of this name, whoever's.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn exists(&mut self) -> Result<bool, NftTableError> {
        let table = self.table();
        let there = self.socket.table(table).map(|table| table.is_some());
        there.map_err(|source| self.read_error(&source))
    }

    fn table(&self) -> Table<'static> {
        Table::new(of_kernel(self.family), self.name)
    }

    fn read_error(&self, source: &ReadError) -> NftTableError {
        error(format!("read the table {} ({})", self.name, self.family), source)
    }

    fn saved(&mut self, look: Look<'_>) -> Result<Saved, ReadError> {
        let (table, family) = (self.table(), self.family);
        let mut saved = Saved::default();
        let of_rule = |rule: &RuleInfo<'_>| encode::fingerprint(family, rule.expressions, rule.user_data);
        for rule in self.socket.table_rules(table)? {
            let chain = saved.chains.entry(rule.chain.to_owned());
            chain.or_insert(SavedChain { base: None, rules: Vec::new() }).rules.push(of_rule(&rule));
        }
        for name in look.base_chains {
            if let Some(chain) = self.socket.chain(table, name)? {
                let base = chain.base.as_ref().and_then(encode::saved_base);
                saved.chains.entry((*name).to_owned()).or_insert(SavedChain { base: None, rules: Vec::new() }).base =
                    base;
            }
        }
        for set in self.socket.sets(table)? {
            let one = SavedSet { shape: encode::saved_shape(&set), size: set.size };
            saved.sets.insert(set.name.to_owned(), one);
        }
        for (name, set) in look.elements {
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

/// Ranges of which the kernel tells where each begins (`true`), and the first key behind it, in any order.
fn plain_ranges(set: &'static str, told: impl Iterator<Item = (ElementKey, bool)>) -> Vec<Element> {
    let mut told: Vec<(ElementKey, bool)> = told.collect();
    // Where one range ends and the next begins, the end is first.
    told.sort_unstable();
    let (mut ranges, mut open) = (Vec::new(), None);
    for (key, begins) in told {
        if let (Some(first), Some(last)) = (open.take(), key.preceding()) {
            ranges.push(Element { set, key: first, value: ElementValue::To(last) });
        }
        open = begins.then_some(key);
    }
    let last = |first: &ElementKey| ElementKey::from_bytes(&vec![u8::MAX; first.bytes().len()]);
    ranges.extend(open.map(|first| Element { set, key: first, value: ElementValue::To(last(&first)) }));
    ranges
}

/// The packets that the rules of a chain have counted.
///
/// # Errors
/// When the kernel does not say.
pub fn packets(family: Family, table: &str, chain: &str) -> Result<u64, NftTableError> {
    let failed = |reason: &dyn std::fmt::Display| error(format!("read the rules of the chain {chain}"), reason);
    let mut socket = Socket::open().map_err(|source| failed(&source))?;
    let rules = socket.rules(Table::new(of_kernel(family), table), chain).map_err(|source| failed(&source))?;
    Ok(rules.filter_map(|rule| Some(nf_tables::counter(rule.expressions)?.packets)).sum())
}

/// An element as it would be sent; `None` where this program would send none like it, and so it differs from whatever is wanted.
fn read(name: &'static str, set: &Set, element: &nf_tables::ElementInfo<'_>) -> Option<Element> {
    let value = match (set.holds, element.value, element.key_end) {
        (ElementKind::Keys, None, None) => ElementValue::None,
        (ElementKind::Keys, None, Some(last)) => ElementValue::To(ElementKey::from_bytes(last)),
        (ElementKind::Endpoints, Some(nf_tables::Value::Data(data)), _) => {
            ElementValue::Endpoint(ElementKey::from_bytes(data))
        }
        (ElementKind::Verdicts, Some(nf_tables::Value::Verdict(verdict)), _) => ElementValue::Verdict(match verdict {
            nf_tables::Verdict::Drop => NftVerdict::Drop,
            nf_tables::Verdict::Return => NftVerdict::Return,
            nf_tables::Verdict::Jump(chain) => NftVerdict::Jump(Arc::from(chain)),
            nf_tables::Verdict::Goto(chain) => NftVerdict::Goto(Arc::from(chain)),
            nf_tables::Verdict::Accept | nf_tables::Verdict::Continue => return None,
        }),
        _ => return None,
    };
    Some(Element { set: name, key: ElementKey::from_bytes(element.key), value })
}

impl NftTable for Netlink {
    fn look(&mut self, look: Look<'_>) -> Result<Standing, NftTableError> {
        let comment = nf_tables::field::comment_user_data(self.comment);
        let table = self.table();
        // Whatever is changed while this reads is no less new to it than what comes later.
        self.is_untouched()?;
        let there =
            self.socket.table(table).map(|table| table.map(|table| table.user_data == comment && table.flags == 0));
        match there.map_err(|source| self.read_error(&source))? {
            None => return Ok(Standing::Nothing),
            Some(false) => return Ok(Standing::Other),
            Some(true) => {}
        }
        self.saved(look).map(Standing::Ours).map_err(|source| self.read_error(&source))
    }

    fn fill(&mut self, change: &NftChange, more: &mut dyn Iterator<Item = Element>) -> Result<(), NftTableError> {
        let Netlink { socket, batch, observer, expected, .. } = self;
        let target =
            Target { family: self.family, name: self.name, comment: self.comment, room: socket.largest_batch() };
        let mut send = |batch: &Batch| {
            let begun = Instant::now();
            let sent = socket.commit(batch).map(drop);
            if let Some(observer) = observer {
                observer(batch, begun.elapsed());
            }
            // A commit that changes something makes the next generation.
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

    fn uses(&mut self, chains: &[&str]) -> Result<Vec<Option<usize>>, NftTableError> {
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

    fn fingerprints(&self, rules: &[Rule]) -> Vec<Fingerprint> {
        encode::fingerprints(rules, self.family)
    }

    fn shape(&self, set: &Set) -> Shape {
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
        // `nft` marks where the first range does not begin yet.
        let two =
            [("10.97.0.0", false), ("10.96.0.0", true), ("10.98.0.0", false), ("10.97.0.0", true), ("0.0.0.0", false)];
        assert_eq!(read(&two), [range("10.96.0.0", "10.96.255.255"), range("10.97.0.0", "10.97.255.255")]);
        assert_eq!(read(&[("240.0.0.0", true)]), [range("240.0.0.0", "255.255.255.255")]);
        assert_eq!(read(&[("::", true), ("::1", false)]), [range("::", "::")]);
    }
}
