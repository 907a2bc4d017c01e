//! The table, by netlink.

use std::sync::Arc;

use nf_tables::{Batch, CommitError, EncodeError, ReadError, RuleInfo, Socket, Table};

use super::{Fingerprint, Look, NftTable, NftTableError, Saved, SavedChain, SavedSet, Shape, Standing, encode};
use crate::model::Family;
use crate::nftables::change::TableChange;
use crate::nftables::text::of_kernel;
use crate::nftables::{Chain, Change, Element, Holds, Key, Name, Rule, Set, Value, Verdict};

/// Bytes of a batch after which it is sent, where a change may be made in several: the kernel holds up all other writers while it applies one.
const AT_ONCE: usize = 4 << 20;
/// Elements that are added, or replaced, in one piece.
const PIECE: usize = 500;
/// Bytes of a batch whose memory is kept for the next one.
const KEPT: usize = 1 << 20;

/// The table of one family in this network namespace.
pub struct Netlink {
    family: Family,
    name: &'static str,
    comment: &'static str,
    socket: Socket,
    batch: Batch,
}

fn error(operation: impl Into<String>, reason: impl ToString) -> NftTableError {
    NftTableError { operation: operation.into(), reason: reason.to_string() }
}

impl Netlink {
    /// Opens a socket for the table of this name; `comment`: what its own version of it says of itself.
    ///
    /// # Errors
    /// When the kernel has no nf_tables.
    pub fn open(family: Family, name: &'static str, comment: &'static str) -> Result<Netlink, NftTableError> {
        let socket = Socket::open().map_err(|source| error("open a socket", source))?;
        Ok(Netlink { family, name, comment, socket, batch: Batch::new() })
    }

    /// Makes the table `name` with everything in it that tables of this program's have, in a batch of its own, and deletes it again: what the
    /// kernel, or the rights, lack is known before anything depends on it.
    ///
    /// # Errors
    /// What is lacking.
    pub fn probe(family: Family, name: &'static str, change: &Change) -> Result<(), NftTableError> {
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
                saved
                    .elements
                    .extend(plain_ranges(name, elements.map(|one| (Key::from_bytes(one.key), !one.interval_end))));
            } else {
                saved.elements.extend(elements.filter_map(|element| read(name, set, &element)));
            }
        }
        Ok(saved)
    }
}

/// Ranges of which the kernel tells where each begins (`true`), and the first key behind it, in any order.
fn plain_ranges(set: &'static str, told: impl Iterator<Item = (Key, bool)>) -> Vec<Element> {
    let mut told: Vec<(Key, bool)> = told.collect();
    // Where one range ends and the next begins, the end is first.
    told.sort_unstable();
    let (mut ranges, mut open) = (Vec::new(), None);
    for (key, begins) in told {
        if let (Some(first), Some(last)) = (open.take(), key.preceding()) {
            ranges.push(Element { set, key: first, value: Value::To(last) });
        }
        open = begins.then_some(key);
    }
    let last = |first: &Key| Key::from_bytes(&vec![u8::MAX; first.bytes().len()]);
    ranges.extend(open.map(|first| Element { set, key: first, value: Value::To(last(&first)) }));
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
        (Holds::Keys, None, None) => Value::None,
        (Holds::Keys, None, Some(last)) => Value::To(Key::from_bytes(last)),
        (Holds::Endpoints, Some(nf_tables::Value::Data(data)), _) => Value::Endpoint(Key::from_bytes(data)),
        (Holds::Verdicts, Some(nf_tables::Value::Verdict(verdict)), _) => Value::Verdict(match verdict {
            nf_tables::Verdict::Drop => Verdict::Drop,
            nf_tables::Verdict::Return => Verdict::Return,
            nf_tables::Verdict::Jump(chain) => Verdict::Jump(Arc::from(chain)),
            nf_tables::Verdict::Goto(chain) => Verdict::Goto(Arc::from(chain)),
            nf_tables::Verdict::Accept | nf_tables::Verdict::Continue => return None,
        }),
        _ => return None,
    };
    Some(Element { set: name, key: Key::from_bytes(element.key), value })
}

impl NftTable for Netlink {
    fn look(&mut self, look: Look<'_>) -> Result<Standing, NftTableError> {
        let comment = nf_tables::field::comment_user_data(self.comment);
        let table = self.table();
        let there =
            self.socket.table(table).map(|table| table.map(|table| table.user_data == comment && table.flags == 0));
        match there.map_err(|source| self.read_error(&source))? {
            None => return Ok(Standing::Nothing),
            Some(false) => return Ok(Standing::Other),
            Some(true) => {}
        }
        self.saved(look).map(Standing::Ours).map_err(|source| self.read_error(&source))
    }

    fn commit(&mut self, change: &Change) -> Result<(), NftTableError> {
        if change.is_empty() {
            return Ok(());
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        let room = self.socket.largest_batch();
        let at_most = if change.table == TableChange::Replace { room } else { room.min(AT_ONCE) };
        let mut sending = Sending { own: self, batch, at_most };
        let result = sending.all(change).and_then(|()| sending.flush());
        let batch = std::mem::take(&mut sending.batch);
        if batch.capacity() <= KEPT {
            self.batch = batch;
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

/// A change under way.
struct Sending<'a> {
    own: &'a mut Netlink,
    batch: Batch,
    /// Bytes.
    at_most: usize,
}

impl Sending<'_> {
    /// What is led to comes before what leads there, so that each part is whole by itself.
    fn all(&mut self, change: &Change) -> Result<(), NftTableError> {
        let (table, family) = (self.own.table(), self.own.family);
        let comment = nf_tables::field::comment_user_data(self.own.comment);
        match change.table {
            TableChange::Keep => {}
            TableChange::Make => self.add("the table", |batch| batch.add_table_with(table, &comment).map(drop))?,
            TableChange::Replace => self.add("the table", |batch| {
                batch.delete_table(table)?;
                batch.add_table_with(table, &comment).map(drop)
            })?,
        }
        for (name, set) in &change.add_sets {
            let (fields, user_data) = (encode::fields(set, family), encode::user_data(set, family));
            let spec = encode::set(name, set, family, &fields, &user_data);
            self.add(name, |batch| batch.add_set(table, &spec).map(drop))?;
        }
        let (base, others): (Vec<_>, Vec<_>) = change.add_chains.iter().partition(|(_, chain)| chain.base.is_some());
        for (name, chain) in &others {
            self.chain(name, chain)?;
        }
        for (name, chain) in &others {
            self.rules(name, &chain.rules)?;
        }
        for (name, rules) in &change.write_rules {
            self.add(name, |batch| batch.flush_chain(table, name).map(drop))?;
            self.rules(name, rules)?;
        }
        self.elements(change)?;
        for (name, chain) in &base {
            self.chain(name, chain)?;
            self.rules(name, &chain.rules)?;
        }
        for name in &change.delete_chains {
            self.add(name, |batch| batch.delete_chain(table, name).map(drop))?;
        }
        for name in &change.delete_sets {
            self.add(name, |batch| batch.delete_set(table, name).map(drop))?;
        }
        Ok(())
    }

    fn chain(&mut self, name: &Name, chain: &Chain) -> Result<(), NftTableError> {
        let table = self.own.table();
        let comment = nf_tables::field::comment_user_data(chain.comment);
        self.add(name, |batch| match &chain.base {
            Some(base) => batch.add_base_chain(table, name, &encode::base(base)).map(drop),
            None if chain.comment.is_empty() => batch.add_chain(table, name).map(drop),
            None => batch.add_chain_with(table, name, &comment).map(drop),
        })
    }

    fn rules(&mut self, chain: &Name, rules: &[Rule]) -> Result<(), NftTableError> {
        let (table, family) = (self.own.table(), self.own.family);
        let mut encoded = nf_tables::Rule::new();
        for rule in rules {
            encode::rule(rule, family, &mut encoded);
            self.add(chain, |batch| batch.add_rule(table, chain, &encoded).map(drop))?;
        }
        Ok(())
    }

    /// An element that is replaced goes and comes in the same piece. Verdicts come last: what they lead to must be whole.
    fn elements(&mut self, change: &Change) -> Result<(), NftTableError> {
        let family = self.own.family;
        let order = |element: &&Element| (matches!(element.value, Value::Verdict(_)), element.set, element.key);
        // Plain ranges that go may overlap any that come: those of one set stay in one piece.
        let place = |element: &&Element| {
            let (is_last, set, key) = order(element);
            (is_last, set, if encode::is_plain_range(element, family) { Key::default() } else { key })
        };
        let mut gone: Vec<&Element> = change.delete_elements.iter().collect();
        let mut come: Vec<&Element> = change.add_elements.iter().collect();
        gone.sort_unstable_by_key(order);
        come.sort_unstable_by_key(order);
        let (mut gone, mut come) = (&gone[..], &come[..]);
        while let Some(end) = [gone.get(PIECE - 1).or(gone.last()), come.get(PIECE - 1).or(come.last())]
            .into_iter()
            .flatten()
            .map(place)
            .min()
        {
            let (out, rest) = gone.split_at(gone.partition_point(|element| place(element) <= end));
            let (into, more) = come.split_at(come.partition_point(|element| place(element) <= end));
            (gone, come) = (rest, more);
            self.piece(out, into)?;
        }
        Ok(())
    }

    fn piece(&mut self, gone: &[&Element], come: &[&Element]) -> Result<(), NftTableError> {
        let (table, family) = (self.own.table(), self.own.family);
        self.add("elements", |batch| {
            for of_set in gone.chunk_by(|one, other| one.set == other.set) {
                let Some(set) = of_set.first().map(|element| element.set) else { continue };
                let behind = encode::behind(of_set, family);
                let deleted = encode::with_ends(of_set, &behind, |element| encode::deleted(element, family));
                batch.delete_elements(table, set, deleted)?;
            }
            for of_set in come.chunk_by(|one, other| one.set == other.set) {
                let Some(set) = of_set.first().map(|element| element.set) else { continue };
                let behind = encode::behind(of_set, family);
                let added = encode::with_ends(of_set, &behind, |element| encode::element(element, family));
                batch.add_elements(table, set, added)?;
            }
            Ok(())
        })
    }

    /// Adds operations that belong together; what was added before is sent where the batch would become too large.
    fn add(&mut self, what: &str, add: impl Fn(&mut Batch) -> Result<(), EncodeError>) -> Result<(), NftTableError> {
        let failed = |source| error(format!("write {what}"), source);
        let before = self.batch.checkpoint();
        add(&mut self.batch).map_err(failed)?;
        if self.batch.len() > self.at_most && before.operations() > 0 {
            self.batch.rollback(before);
            self.flush()?;
            add(&mut self.batch).map_err(failed)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NftTableError> {
        let result = self.own.socket.commit(&self.batch);
        self.batch.clear();
        let operation = || format!("change the table {} ({})", self.own.name, self.own.family);
        result.map(drop).map_err(|source: CommitError| error(operation(), source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_put_together_from_their_ends() {
        let key = |text: &str| Key::default().address(text.parse().unwrap());
        let read = |told: &[(&str, bool)]| {
            let ranges = plain_ranges("x", told.iter().map(|(text, begins)| (key(text), *begins)));
            let text = |range: Element| match range.value {
                Value::To(last) => [range.key, last].map(|key| key.bytes().to_vec()),
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
