use crate::plan::PodSource;
use crate::ruleset::{InputInterface, Not, Rule};

pub fn from_pods(mut rule: Rule, pods: &PodSource, negated: bool) -> Rule {
    match pods {
        PodSource::Range(range) => rule.source = Some(Not { negated, value: *range }),
        PodSource::Interface(name) => rule = rule.input(InputInterface::Name(name.as_str().into()), negated),
        PodSource::InterfacePrefix(prefix) => {
            rule = rule.input(InputInterface::Prefix(prefix.as_str().into()), negated)
        }
    }
    rule
}
