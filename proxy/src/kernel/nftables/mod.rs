//! This program's table in nftables, by netlink.

mod batches;
mod encode;
pub mod fake;
mod flowtable;
mod netlink;
mod pipeline;

use std::collections::{BTreeMap, BTreeSet};

pub use fake::FakeNftTable;
pub use flowtable::{Flowtable, FlowtableSpec, NetlinkFlowtable};
pub use netlink::{NetlinkTable, TimedBatchObserver, counters, packets};

use crate::model::Family;
use crate::nftables::{BaseHook, Element, NftChange, Rule, Set};

#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} of nftables: {reason}")]
pub struct NftTableError {
    pub operation: String,
    pub reason: String,
}

fn error(operation: impl Into<String>, reason: impl ToString) -> NftTableError {
    NftTableError { operation: operation.into(), reason: reason.to_string() }
}

pub fn batches(
    change: &NftChange,
    more: &mut dyn Iterator<Item = Element>,
    family: Family,
    table: &'static str,
    mut each: impl FnMut(&nf_tables::Batch),
) -> Result<(), NftTableError> {
    let target = batches::TableTarget { family, name: table, comment: "", room: usize::MAX };
    batches::each(change, more, target, &mut nf_tables::Batch::new(), |batch| {
        each(batch);
        Ok(())
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFingerprint(Vec<u8>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetShape {
    key_type: u32,
    key_length: u32,
    flags: u32,
    value_length: Option<u32>,
    user_data: Vec<u8>,
}

impl SetShape {
    fn holds_counters(&self) -> bool {
        self.flags & nf_tables::SetFlags::OBJECT.0 != 0
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedChain {
    pub base: Option<BaseHook>,
    pub rules: Vec<RuleFingerprint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSet {
    pub shape: SetShape,
    /// The most elements.
    pub size: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedTable {
    /// Chains with rules, and the queried base chains.
    pub chains: BTreeMap<String, ListedChain>,
    pub sets: BTreeMap<String, ListedSet>,
    pub elements: Vec<Element>,
    pub counters: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableState {
    Nothing,
    /// A table of another program or version.
    Other,
    Ours(ListedTable),
}

#[derive(Debug, Clone, Copy)]
pub struct TableQuery<'a> {
    pub base_chains: &'a [&'a str],
    pub elements: &'a [(&'static str, Set)],
}

pub trait NftTable {
    fn list(&mut self, look: TableQuery<'_>) -> Result<TableState, NftTableError>;

    fn commit(&mut self, change: &NftChange) -> Result<(), NftTableError> {
        if change.is_empty() { Ok(()) } else { self.fill(change, &mut std::iter::empty()) }
    }

    /// Adds `more` elements, which it encodes one by one: a large cluster's elements are never all in memory. Uses one
    /// transaction; a large change that replaces no other program's table may use several, of which the last adds the
    /// base chains. After an error, parts may be applied.
    fn fill(&mut self, change: &NftChange, more: &mut dyn Iterator<Item = Element>) -> Result<(), NftTableError>;

    /// Counts each chain's rules and references; `None` without the chain.
    fn reference_counts(&mut self, chains: &[&str]) -> Result<Vec<Option<usize>>, NftTableError>;

    /// Whether no other program has changed any table since the last call or list.
    fn is_untouched(&mut self) -> Result<bool, NftTableError>;

    fn delete(&mut self) -> Result<bool, NftTableError>;

    /// Returns fingerprints to compare with [`ListedChain::rules`].
    fn fingerprints(&self, rules: &[Rule]) -> Vec<RuleFingerprint>;

    /// Returns a shape to compare with [`ListedSet::shape`].
    fn shape(&self, set: &Set) -> SetShape;
}
