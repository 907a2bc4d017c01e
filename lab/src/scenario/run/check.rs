//! Looks at nodes' chains, rules and counters.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::lab::{Lab, StartError};
use crate::expect::Mismatch;
use crate::expect::counters::Ruleset;
use crate::scenario::file::{ExpectFile, RuleFamily, RuleFile};
use crate::scenario::words::OneOrMany;
use crate::traffic::probe::{Outcome, Place};

/// Rules of several nodes and families.
pub(super) type Saved = BTreeMap<(String, RuleFamily), Ruleset>;

impl PartialOrd for RuleFamily {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RuleFamily {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

/// Reads the rules of every node that `rules` are about.
pub(super) async fn save(lab: &Lab, rules: &[RuleFile]) -> Result<Saved, StartError> {
    let mut saved = Saved::new();
    for rule in rules {
        for node in on(lab, rule)? {
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

/// The nodes of a rule, but for those whose proxy is in another mode.
fn on(lab: &Lab, rule: &RuleFile) -> Result<Vec<String>, StartError> {
    let nodes = lab.nodes();
    let mut chosen = Vec::new();
    for choice in &rule.on.0 {
        chosen.extend(choice.value.among(nodes.iter().map(String::as_str)).map_err(StartError::Step)?);
    }
    chosen.retain(|node| lab.proxies.mode_of(node) == rule.mode);
    Ok(chosen)
}

/// Compares `rules` with what was saved; packets count from `before` on if it is given. `answers` tells how often a pod
/// answered in this step.
pub(super) fn compare(
    lab: &Lab,
    rules: &[RuleFile],
    before: Option<&Saved>,
    now: &Saved,
    answers: &dyn Fn(&str) -> u64,
) -> Result<Vec<Mismatch>, StartError> {
    let mut found = Vec::new();
    for rule in rules {
        let mut packets = 0_i64;
        let nodes = on(lab, rule)?;
        if nodes.is_empty() {
            continue;
        }
        for node in &nodes {
            let key = (node.clone(), rule.family);
            let Some(ruleset) = now.get(&key) else { continue };
            found.extend(presence(rule, node, ruleset));
            packets += count(rule, ruleset);
            packets -= before.and_then(|before| before.get(&key)).map_or(0, |before| count(rule, before));
        }
        if let Some(wanted) = &rule.packets {
            let right = u64::try_from(packets).is_ok_and(|packets| wanted.accepts(packets, answers));
            if !right {
                let place = format!("{} on {}", words(rule), nodes.join(", "));
                found.push(Mismatch::new(format!("{wanted} packets through {place}"), packets.to_string()));
            }
        }
    }
    Ok(found)
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

fn presence(rule: &RuleFile, node: &str, ruleset: &Ruleset) -> Option<Mismatch> {
    let parts = parts(rule);
    let table = rule.table.name();
    let wanted = rule.exists.unwrap_or(true);
    let is_there = |chain: &str| match &parts {
        Some(parts) => ruleset.matching(table, chain, parts).next().is_some(),
        None => ruleset.has_chain(table, chain),
    };
    let wrong: Vec<&str> =
        rule.chain.0.iter().map(|chain| chain.value.0.as_str()).filter(|chain| is_there(chain) != wanted).collect();
    let (expected, seen) = if wanted { ("is there", "missing") } else { ("is gone", "still there") };
    (!wrong.is_empty()).then(|| {
        Mismatch::new(format!("{} {expected} on {node}", words(rule)), format!("{}: {seen}", wrong.join(", ")))
    })
}

fn parts(rule: &RuleFile) -> Option<Vec<String>> {
    rule.rule.as_ref().map(|OneOrMany(parts)| parts.iter().map(|part| part.value.0.clone()).collect())
}

/// Packets through every matching rule.
fn count(rule: &RuleFile, ruleset: &Ruleset) -> i64 {
    let parts = parts(rule).unwrap_or_default();
    let chains = rule.chain.0.iter().map(|chain| chain.value.0.as_str());
    let packets: u64 =
        chains.flat_map(|chain| ruleset.matching(rule.table.name(), chain, &parts)).map(|rule| rule.packets).sum();
    i64::try_from(packets).unwrap_or(i64::MAX)
}

fn words(rule: &RuleFile) -> String {
    let chains: Vec<&str> = rule.chain.0.iter().map(|chain| chain.value.0.as_str()).collect();
    let parts = parts(rule).map(|parts| format!(" (rules with {:?})", parts.join(" … "))).unwrap_or_default();
    format!("{} {}{parts}", rule.table.name(), chains.join(" + "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_saphyr::{Location, Spanned};

    use super::*;
    use crate::scenario::words::Bound;
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
