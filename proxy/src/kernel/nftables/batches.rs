//! Splits a change into valid batches.
//!
//! Objects precede references to them. A frontend's elements share a batch: no packet meets a half-changed service.

use nf_tables::{Batch, EncodeError, Table};

use super::{NftTableError, encode, error};
use crate::model::Family;
use crate::nftables::change::TableAction;
use crate::nftables::text::of_kernel;
use crate::nftables::{Chain, Element, ElementValue, Name, NftChange, Rule};

/// In bytes: 12,000 IPv4 elements. Longer commits block other writers.
const AT_ONCE: usize = 512 << 10;
const PIECE: usize = 2000;

#[derive(Debug, Clone, Copy)]
pub(super) struct TableTarget {
    pub(super) family: Family,
    pub(super) name: &'static str,
    pub(super) comment: &'static str,
    pub(super) room: usize,
}

impl TableTarget {
    pub(super) fn table(&self) -> Table<'static> {
        Table::new(of_kernel(self.family), self.name)
    }
}

/// Passes `change` and `more` in batches to `send`, which may replace `batch`.
pub(super) fn each(
    change: &NftChange,
    more: &mut dyn Iterator<Item = Element>,
    target: TableTarget,
    batch: &mut Batch,
    send: impl FnMut(&mut Batch) -> Result<(), NftTableError>,
) -> Result<(), NftTableError> {
    batch.clear();
    let at_most = if change.table == TableAction::Replace { target.room } else { target.room.min(AT_ONCE) };
    let mut sending = BatchWriter { target, batch, at_most, send };
    sending.all(change, more)?;
    sending.flush()
}

struct BatchWriter<'a, S> {
    target: TableTarget,
    batch: &'a mut Batch,
    at_most: usize,
    send: S,
}

impl<S: FnMut(&mut Batch) -> Result<(), NftTableError>> BatchWriter<'_, S> {
    fn all(&mut self, change: &NftChange, more: &mut dyn Iterator<Item = Element>) -> Result<(), NftTableError> {
        let (table, family) = (self.target.table(), self.target.family);
        let comment = nf_tables::field::comment_user_data(self.target.comment);
        match change.table {
            TableAction::Keep => {}
            TableAction::Make => self.add("the table", |batch| batch.add_table_with(table, &comment).map(drop))?,
            TableAction::Replace => self.add("the table", |batch| {
                batch.delete_table(table)?;
                batch.add_table_with(table, &comment).map(drop)
            })?,
        }
        for name in &change.add_counters {
            self.add(name, |batch| batch.add_counter(table, name).map(drop))?;
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
        self.elements(&change.delete_first, &[])?;
        self.elements(&change.delete_elements, &change.add_elements)?;
        self.elements(&[], &change.add_last)?;
        self.fill(more)?;
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
        for name in &change.delete_counters {
            self.add(name, |batch| batch.delete_counter(table, name).map(drop))?;
        }
        Ok(())
    }

    fn chain(&mut self, name: &Name, chain: &Chain) -> Result<(), NftTableError> {
        let table = self.target.table();
        let comment = nf_tables::field::comment_user_data(chain.comment);
        self.add(name, |batch| match &chain.base {
            Some(base) => batch.add_base_chain(table, name, &encode::base(base)).map(drop),
            None if chain.comment.is_empty() => batch.add_chain(table, name).map(drop),
            None => batch.add_chain_with(table, name, &comment).map(drop),
        })
    }

    fn rules(&mut self, chain: &Name, rules: &[Rule]) -> Result<(), NftTableError> {
        let (table, family) = (self.target.table(), self.target.family);
        let mut encoded = nf_tables::Rule::new();
        for rule in rules {
            encode::rule(rule, family, &mut encoded);
            self.add(chain, |batch| batch.add_rule(table, chain, &encoded).map(drop))?;
        }
        Ok(())
    }

    /// Adds elements in any order: the base chains are added last.
    fn fill(&mut self, elements: &mut dyn Iterator<Item = Element>) -> Result<(), NftTableError> {
        let mut piece = Vec::with_capacity(PIECE);
        loop {
            piece.extend(elements.take(PIECE));
            if piece.is_empty() {
                return Ok(());
            }
            self.piece(&[], piece.iter())?;
            piece.clear();
        }
    }

    fn elements(&mut self, delete: &[Element], add: &[Element]) -> Result<(), NftTableError> {
        let address = usize::from(self.target.family.address_bits()) / 8;
        let (gone, come) = (sorted(delete, address), sorted(add, address));
        pieces(&gone, &come, PIECE, address).try_for_each(|(gone, come)| self.piece(gone, come.iter().copied()))
    }

    fn piece<'a>(
        &mut self,
        gone: &[&Element],
        come: impl Iterator<Item = &'a Element> + Clone,
    ) -> Result<(), NftTableError> {
        let (table, family) = (self.target.table(), self.target.family);
        let (gone, come) = (by_set(gone.iter().copied()), by_set(come));
        self.add("elements", |batch| {
            for (set, elements) in &gone {
                let behind = encode::behind(elements, family);
                let deleted = encode::with_ends(elements, &behind, |element| encode::deleted(element, family));
                batch.delete_elements(table, set, deleted)?;
            }
            for (set, elements) in &come {
                let behind = encode::behind(elements, family);
                let added = encode::with_ends(elements, &behind, |element| encode::element(element, family));
                batch.add_elements(table, set, added)?;
            }
            Ok(())
        })
    }

    fn add(&mut self, what: &str, add: impl Fn(&mut Batch) -> Result<(), EncodeError>) -> Result<(), NftTableError> {
        let failed = |source| error(format!("write {what}"), source);
        let before = self.batch.checkpoint();
        add(self.batch).map_err(failed)?;
        if self.batch.len() > self.at_most && before.operations() > 0 {
            self.batch.rollback(before);
            self.flush()?;
            add(self.batch).map_err(failed)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NftTableError> {
        let result = if self.batch.is_empty() { Ok(()) } else { (self.send)(self.batch) };
        self.batch.clear();
        result
    }
}

/// Returns the key without the endpoint's number or the client's address. Ranges that a change deletes and adds may
/// overlap within a frontend.
fn frontend(element: &Element, address: usize) -> &[u8] {
    let key = element.key.bytes();
    let more = match element.value {
        ElementValue::Endpoint(_) => size_of::<u32>(),
        ElementValue::To(_) => address,
        ElementValue::None | ElementValue::Verdict(_) | ElementValue::Counter(_) => 0,
    };
    key.get(..key.len().saturating_sub(more)).unwrap_or(key)
}

/// Returns pieces of about `most` elements; a frontend's elements stay together.
fn pieces<'a>(
    mut gone: &'a [&'a Element],
    mut come: &'a [&'a Element],
    most: usize,
    address: usize,
) -> impl Iterator<Item = (&'a [&'a Element], &'a [&'a Element])> {
    std::iter::from_fn(move || {
        let ends = [gone, come].map(|elements| elements.get(most - 1).or(elements.last()));
        let end = ends.into_iter().flatten().map(|element| frontend(element, address)).min()?;
        let (out, rest) = gone.split_at(gone.partition_point(|element| frontend(element, address) <= end));
        let (into, more) = come.split_at(come.partition_point(|element| frontend(element, address) <= end));
        (gone, come) = (rest, more);
        Some((out, into))
    })
}

/// Sorts the elements by frontend, set and key.
fn sorted(elements: &[Element], address: usize) -> Vec<&Element> {
    let mut elements: Vec<&Element> = elements.iter().collect();
    elements.sort_unstable_by(|one, other| {
        let order = |element: &Element| (element.set, element.key);
        frontend(one, address).cmp(frontend(other, address)).then_with(|| order(one).cmp(&order(other)))
    });
    elements
}

fn by_set<'a>(elements: impl Iterator<Item = &'a Element>) -> Vec<(&'static str, Vec<&'a Element>)> {
    let mut sets: Vec<(&'static str, Vec<&Element>)> = Vec::new();
    for element in elements {
        match sets.iter_mut().find(|(set, _)| *set == element.set) {
            Some((_, of_set)) => of_set.push(element),
            None => sets.push((element.set, vec![element])),
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Protocol;
    use crate::nftables::{ElementKey, NftVerdict};
    use proptest::prelude::*;

    const ADDRESS: usize = 4;

    fn elements(services: &[(u8, u8)]) -> Vec<Element> {
        let of = |(service, count): &(u8, u8)| {
            let key = ElementKey::default().address([10, 96, 0, *service].into()).protocol(Protocol::Tcp).port(80);
            let endpoint = |number: u8| ElementValue::endpoint(([10, 244, *service, number], 80).into());
            let endpoints: Vec<Element> = (0..*count)
                .map(|number| Element { set: "endpoints", key: key.number(number.into()), value: endpoint(number) })
                .collect();
            let verdict = Element { set: "services", key, value: ElementValue::Verdict(NftVerdict::Drop) };
            let range = Element::range("allowed", key, "192.0.2.0/24".parse().unwrap());
            endpoints.into_iter().chain([verdict, range])
        };
        services.iter().flat_map(of).collect()
    }

    proptest! {
        #[test]
        fn a_frontend_is_in_one_piece(
            before in prop::collection::btree_map(any::<u8>(), 0u8..20, 0..30),
            after in prop::collection::btree_map(any::<u8>(), 0u8..20, 0..30),
            most in 1usize..40,
        ) {
            let [before, after] = [before, after].map(|all| elements(&all.into_iter().collect::<Vec<_>>()));
            let (gone, come) = (sorted(&before, ADDRESS), sorted(&after, ADDRESS));
            let pieces: Vec<_> = pieces(&gone, &come, most, ADDRESS).collect();
            let (out, into): (Vec<_>, Vec<_>) = pieces.iter().copied().unzip();
            prop_assert_eq!((out.concat(), into.concat()), (gone.clone(), come.clone()));
            let mut seen: Vec<&[u8]> = Vec::new();
            for (gone, come) in &pieces {
                let mut here: Vec<&[u8]> = gone.iter().chain(come.iter()).map(|e| frontend(e, ADDRESS)).collect();
                here.sort_unstable();
                here.dedup();
                prop_assert!(!here.is_empty() && here.iter().all(|frontend| !seen.contains(frontend)));
                prop_assert!(gone.len() < most + 22 && come.len() < most + 22);
                seen.extend(here);
            }
        }
    }
}
