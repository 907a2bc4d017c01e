//! Looks at nodes' chains, rules and counters.

use std::collections::btree_map::Entry;

use super::lab::{Lab, StartError};
use crate::expect::Mismatch;
use crate::expect::counters::Ruleset;
use crate::scenario::file::{ExpectFile, Mode, RuleFamily, RuleFile};
use crate::scenario::look::{self, Nodes, Saved};
use crate::traffic::probe::{Outcome, Place};

/// Reads the rules of every node that `rules` are about.
pub(super) async fn save(lab: &Lab, rules: &[RuleFile]) -> Result<Saved, StartError> {
    let mut saved = Saved::new();
    let mode_of = |node: &str| lab.proxies.mode_of(node);
    let nodes = nodes(lab, &mode_of);
    for rule in rules {
        for node in nodes.of(rule).map_err(StartError::Step)? {
            let Entry::Vacant(entry) = saved.entry((node.clone(), rule.family)) else { continue };
            let program = match rule.family {
                RuleFamily::Ipv4 => "iptables-save",
                RuleFamily::Ipv6 => "ip6tables-save",
            };
            let argv = [program.to_owned(), "-c".to_owned()];
            let text = lab.must(&Place::Node(node), &argv).await?;
            entry.insert(Ruleset::parse(&text));
        }
    }
    Ok(saved)
}

/// Compares `rules` with what was saved, as [`look::compare`].
pub(super) fn compare(
    lab: &Lab,
    rules: &[RuleFile],
    before: Option<&Saved>,
    now: &Saved,
    answers: &dyn Fn(&str) -> u64,
) -> Result<Vec<Mismatch>, StartError> {
    look::compare(&nodes(lab, &|node| lab.proxies.mode_of(node)), rules, before, now, answers).map_err(StartError::Step)
}

/// Why none of `rules` could be looked at, as [`look::left_out`].
pub(super) fn left_out(lab: &Lab, rules: &[RuleFile]) -> Result<Option<String>, StartError> {
    look::left_out(&nodes(lab, &|node| lab.proxies.mode_of(node)), rules).map_err(StartError::Step)
}

fn nodes<'a>(lab: &Lab, mode_of: &'a dyn Fn(&str) -> Mode) -> Nodes<'a> {
    Nodes { names: lab.nodes(), mode_of }
}

/// Bounds of time that requests do not keep.
pub(super) fn times(expect: &ExpectFile, outcomes: &[Outcome]) -> Vec<Mismatch> {
    let times = outcomes.iter().map(|outcome| outcome.took);
    let (Some(least), Some(most)) = (times.clone().min(), times.clone().max()) else { return Vec::new() };
    let bounds = expect.took.iter().flat_map(|bounds| &bounds.0).map(|bound| bound.value);
    let broken = bounds.filter(|bound| !times.clone().all(|time| bound.accepts(time)));
    let mismatch = |bound| Mismatch::new(format!("every request takes {bound}"), format!("from {least:?} to {most:?}"));
    broken.map(mismatch).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_saphyr::{Location, Spanned};

    use super::*;
    use crate::scenario::words::{Bound, OneOrMany};
    use crate::traffic::probe::Answer;

    #[test]
    fn every_request_keeps_within_the_time() {
        let took = |millis| Outcome { answer: Answer::Refused, client: None, took: Duration::from_millis(millis) };
        let bounds = [Bound::AtLeast(Duration::from_millis(50)), Bound::AtMost(Duration::from_millis(60))];
        let bounds = bounds.map(|bound| Spanned::new(bound, Location::UNKNOWN, Location::UNKNOWN));
        let expect = ExpectFile { took: Some(OneOrMany(bounds.into())), ..ExpectFile::default() };
        assert_eq!(times(&expect, &[took(50), took(60)]), []);
        let slow = Mismatch::new("every request takes at most 60ms", "from 50ms to 61ms");
        assert_eq!(times(&expect, &[took(50), took(61)]), [slow]);
        assert_eq!(times(&expect, &[took(49), took(61)]).len(), 2);
        assert_eq!(times(&ExpectFile::default(), &[took(5)]), []);
    }
}
