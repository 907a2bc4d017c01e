//! One table of nftables, which is this program's alone, read and written by netlink. No other table is looked at.

mod batches;
mod encode;
pub mod fake;
mod flowtable;
mod netlink;
mod pipeline;

use std::collections::BTreeMap;

pub use fake::Fake;
pub use flowtable::{Flowtable, NetlinkFlowtable, Spec};
pub use netlink::{Netlink, Observer, packets};

use crate::model::Family;
use crate::nftables::{BaseHook, Element, NftChange, Rule, Set};

/// What went wrong with the table.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} of nftables: {reason}")]
pub struct NftTableError {
    /// What was attempted.
    pub operation: String,
    /// What the kernel said.
    pub reason: String,
}

fn error(operation: impl Into<String>, reason: impl ToString) -> NftTableError {
    NftTableError { operation: operation.into(), reason: reason.to_string() }
}

/// The batches of nf_tables that [`Netlink`] makes of a change, and of elements that come besides; nothing is sent.
///
/// # Errors
/// When something of it cannot be written down.
pub fn batches(
    change: &NftChange,
    more: &mut dyn Iterator<Item = Element>,
    family: Family,
    table: &'static str,
    mut each: impl FnMut(&nf_tables::Batch),
) -> Result<(), NftTableError> {
    let target = batches::Target { family, name: table, comment: "", room: usize::MAX };
    batches::each(change, more, target, &mut nf_tables::Batch::new(), |batch| {
        each(batch);
        Ok(())
    })
}

/// Rules in a form that compares: what is wanted with what the kernel reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(Vec<u8>);

/// What of a set or map cannot change once it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    key_type: u32,
    key_length: u32,
    flags: u32,
    value_length: Option<u32>,
    user_data: Vec<u8>,
}

/// A chain that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedChain {
    /// Packets come in by a hook.
    pub base: Option<BaseHook>,
    /// Its rules.
    pub rules: Vec<Fingerprint>,
}

/// A set or map that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSet {
    /// What cannot change.
    pub shape: Shape,
    /// At most so many elements.
    pub size: Option<u32>,
}

/// What stands in a table of this program's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saved {
    /// Chains that have rules, and those that were asked for.
    pub chains: BTreeMap<String, SavedChain>,
    /// Sets and maps.
    pub sets: BTreeMap<String, SavedSet>,
    /// Elements of the sets and maps that were asked for.
    pub elements: Vec<Element>,
}

/// What of a table stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// There is no table of this name.
    Nothing,
    /// There is one with another comment: another program's, or that of another version of this one.
    Other,
    /// Ours.
    Ours(Saved),
}

/// Which of a table's parts a look is to report.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Base chains.
    pub base_chains: &'a [&'a str],
    /// Sets and maps, with their elements.
    pub elements: &'a [(&'static str, Set)],
}

/// The table of one family.
pub trait NftTable {
    /// What stands.
    ///
    /// # Errors
    /// When the kernel does not say.
    fn look(&mut self, look: Look<'_>) -> Result<Standing, NftTableError>;

    /// Makes a change, as [`NftTable::fill`] without further elements; nothing is sent where nothing changes.
    ///
    /// # Errors
    /// When the kernel refuses; parts before may have been taken.
    fn commit(&mut self, change: &NftChange) -> Result<(), NftTableError> {
        if change.is_empty() { Ok(()) } else { self.fill(change, &mut std::iter::empty()) }
    }

    /// Makes a change, and adds elements, which are written as they come, so that those of a large cluster are never all in memory: in one transaction, or, where it is large and nothing of another program's is replaced by it, in several that leave base
    /// chains of a new table for last.
    ///
    /// # Errors
    /// When the kernel refuses; parts before may have been taken.
    fn fill(&mut self, change: &NftChange, more: &mut dyn Iterator<Item = Element>) -> Result<(), NftTableError>;

    /// How often each of these chains is used: by its rules, and by what leads to it. `None`: it is not there.
    ///
    /// # Errors
    /// When the kernel does not say.
    fn uses(&mut self, chains: &[&str]) -> Result<Vec<Option<usize>>, NftTableError>;

    /// Whether certainly no other program has changed any table since this was last asked, or since the last look.
    ///
    /// # Errors
    /// When the kernel does not say.
    fn is_untouched(&mut self) -> Result<bool, NftTableError>;

    /// Deletes the table, whoever's it is; whether there was one.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn delete(&mut self) -> Result<bool, NftTableError>;

    /// The rules in a form that compares with [`SavedChain::rules`].
    fn fingerprints(&self, rules: &[Rule]) -> Vec<Fingerprint>;

    /// The set or map in a form that compares with [`SavedSet::shape`].
    fn shape(&self, set: &Set) -> Shape;
}
