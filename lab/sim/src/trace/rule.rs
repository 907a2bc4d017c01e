//! A reference to a rule that outlives the walk.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::protocol::Family;
use crate::rules::{Chain, Rule, Rules, TableName};

/// A rule, by where it stands; its text is made on request.
#[derive(Clone)]
pub struct RuleRef {
    pub(crate) rules: Arc<Rules>,
    pub(crate) table: usize,
    pub(crate) chain: usize,
    pub(crate) rule: Option<usize>,
}

impl RuleRef {
    /// Of which family's rules it is.
    #[must_use]
    pub fn family(&self) -> Family {
        self.rules.family
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> TableName {
        self.rules.tables[self.table].name
    }

    fn in_chain(&self) -> &Chain {
        &self.rules.tables[self.table].chains[self.chain]
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

    /// Its place in the chain, from 1.
    #[must_use]
    pub fn number(&self) -> usize {
        self.rule.map_or(0, |at| at + 1)
    }

    /// Its line in the text that was read; 0 for a rule that was made.
    #[must_use]
    pub fn line(&self) -> usize {
        self.rule().map_or(0, |rule| rule.line)
    }

    fn key(&self) -> (Family, TableName, &str, usize) {
        (self.rules.family, self.table(), self.chain(), self.number())
    }
}

impl fmt::Display for RuleRef {
    /// `-A CHAIN …`, as `iptables-save` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-A {}", self.chain())?;
        self.rule().map_or(Ok(()), |rule| write!(f, "{rule}"))
    }
}

impl fmt::Debug for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.table())
    }
}

impl PartialEq for RuleRef {
    fn eq(&self, other: &RuleRef) -> bool {
        self.key() == other.key()
    }
}

impl Eq for RuleRef {}

impl PartialOrd for RuleRef {
    fn partial_cmp(&self, other: &RuleRef) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RuleRef {
    fn cmp(&self, other: &RuleRef) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for RuleRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
