//! What a packet was asked, or what was to be done with it, that cannot be said.

use std::fmt;
use std::sync::Arc;

use super::RuleRef;

/// A part of a rule that a packet got to and that the simulator cannot answer or carry out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotModelled {
    /// The machine.
    pub host: Arc<str>,
    /// The rule.
    pub rule: RuleRef,
    /// What an assumption about it is called (`owner`, `NFQUEUE`); empty if none can decide it.
    pub name: Arc<str>,
    /// The match, target or statement, as it stands in the rule.
    pub what: Arc<str>,
    /// What it does that cannot be known, as a predicate: `is not modelled`.
    pub why: Arc<str>,
}

impl std::error::Error for NotModelled {}

impl fmt::Display for NotModelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotModelled { host, rule, what, why, .. } = self;
        write!(f, "{host}: {}{}, {rule}: {what} {why}", rule.place(), rule.line_suffix())
    }
}
