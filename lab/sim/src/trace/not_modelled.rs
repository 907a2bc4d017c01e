use std::fmt;
use std::sync::Arc;

use super::RuleRef;

/// A part of a rule, or a fact of a machine, whose result or effect the simulator does not know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct NotModelled {
    pub host: Arc<str>,
    /// `None` for a fact that no rule states, such as a route's.
    pub rule: Option<RuleRef>,
    /// The assumption's name, such as `owner`; empty without one.
    pub name: Arc<str>,
    /// The text of the match, target or statement.
    pub what: Arc<str>,
    /// The reason, as a predicate: `is not modelled`.
    pub why: Arc<str>,
}

impl std::error::Error for NotModelled {}

impl fmt::Display for NotModelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotModelled { host, rule, what, why, .. } = self;
        match rule {
            Some(rule) => write!(f, "{host}: {}{}, {rule}: {what} {why}", rule.place(), rule.line_suffix()),
            None => write!(f, "{host}: {what} {why}"),
        }
    }
}
