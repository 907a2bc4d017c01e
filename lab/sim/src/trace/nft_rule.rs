//! A reference to a rule or a chain of nftables that outlives the walk.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::nft::{Chain, Rule, Ruleset, Table, TableFamily};

/// A rule, or without one a chain, by where it stands; its text is made on request.
#[derive(Clone)]
pub struct NftRule {
    pub(crate) ruleset: Arc<Ruleset>,
    pub(crate) table: usize,
    pub(crate) chain: usize,
    pub(crate) rule: Option<usize>,
}

impl NftRule {
    fn in_table(&self) -> &Table {
        &self.ruleset.tables[self.table]
    }

    fn in_chain(&self) -> &Chain {
        &self.in_table().chains[self.chain]
    }

    /// The family of its table.
    #[must_use]
    pub fn family(&self) -> TableFamily {
        self.in_table().family
    }

    /// The table's name.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.in_table().name
    }

    /// The chain's name.
    #[must_use]
    pub fn chain(&self) -> &str {
        &self.in_chain().name
    }

    /// The rule itself.
    #[must_use]
    pub fn rule(&self) -> Option<&Rule> {
        self.rule.and_then(|at| self.in_chain().rules.get(at))
    }

    /// Its place in the chain, from 1; 0 is the chain itself.
    #[must_use]
    pub fn number(&self) -> usize {
        self.rule.map_or(0, |at| at + 1)
    }

    /// Its line in the text that was read; 0 in JSON and of rules that were made.
    #[must_use]
    pub fn line(&self) -> usize {
        self.rule().map_or(0, |rule| rule.line)
    }

    /// `ip kube-proxy, chain services`, or `… rule 2 of chain services`.
    #[must_use]
    pub fn place(&self) -> String {
        let of = if self.rule.is_none() { String::new() } else { format!("rule {} of ", self.number()) };
        format!("{} {}, {of}chain {}", self.family(), self.table(), self.chain())
    }

    fn key(&self) -> (TableFamily, &str, &str, usize) {
        (self.family(), self.table(), self.chain(), self.number())
    }
}

impl fmt::Display for NftRule {
    /// As `nft` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule() {
            Some(rule) => write!(f, "{rule}"),
            None => f.write_str(self.chain()),
        }
    }
}

impl fmt::Debug for NftRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.place())
    }
}

impl PartialEq for NftRule {
    fn eq(&self, other: &NftRule) -> bool {
        self.key() == other.key()
    }
}

impl Eq for NftRule {}

impl PartialOrd for NftRule {
    fn partial_cmp(&self, other: &NftRule) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NftRule {
    fn cmp(&self, other: &NftRule) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for NftRule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
