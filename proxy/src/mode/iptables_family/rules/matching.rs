//! What plans add to rules.

use crate::plan::PodSource;
use crate::ruleset::{Interface, Not, Rule};

/// The packet comes from a pod, or (`negated`) from anywhere else.
pub fn from_pods(mut rule: Rule, pods: &PodSource, negated: bool) -> Rule {
    match pods {
        PodSource::Range(range) => rule.source = Some(Not { negated, value: *range }),
        PodSource::Interface(name) => rule = rule.input(Interface::Name(name.as_str().into()), negated),
        PodSource::InterfacePrefix(prefix) => rule = rule.input(Interface::Prefix(prefix.as_str().into()), negated),
    }
    rule
}
