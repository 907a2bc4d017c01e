use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::nft::{Element, Ruleset, Set, Table};

/// An element of a named set or map of nftables, by its position in a listing.
#[derive(Clone)]
pub struct ElementRef {
    ruleset: Arc<Ruleset>,
    position: (usize, usize, usize),
}

impl ElementRef {
    pub(crate) fn new(ruleset: &Arc<Ruleset>, table: usize, set: usize, element: usize) -> ElementRef {
        ElementRef { ruleset: Arc::clone(ruleset), position: (table, set, element) }
    }

    /// Returns every element of a listing.
    pub fn all(ruleset: &Arc<Ruleset>) -> impl Iterator<Item = ElementRef> + '_ {
        ruleset.tables.iter().enumerate().flat_map(move |(table, one)| {
            one.sets.iter().enumerate().flat_map(move |(set, one)| {
                (0..one.elements.len()).map(move |element| ElementRef::new(ruleset, table, set, element))
            })
        })
    }

    /// The table of the set or map.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.ruleset.tables[self.position.0]
    }

    /// The set or map.
    #[must_use]
    pub fn set(&self) -> &Set {
        &self.ruleset.tables[self.position.0].sets[self.position.1]
    }

    /// The element.
    #[must_use]
    pub fn element(&self) -> &Element {
        &self.set().elements[self.position.2]
    }
}

impl fmt::Display for ElementRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in @{}", self.element(), self.set().name)
    }
}

impl fmt::Debug for ElementRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl PartialEq for ElementRef {
    fn eq(&self, other: &ElementRef) -> bool {
        self.position == other.position
    }
}

impl Eq for ElementRef {}

impl Hash for ElementRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.position.hash(state);
    }
}
