//! Chains, rules, counters and health checks of nodes, against what a step promises of them; whoever has looked.

use std::collections::BTreeMap;

use super::error::Problem;
use super::file::{ExpectFile, Mode, RuleFamily, RuleFile};
use super::values::{OneOrMany, PodRef};
use crate::expect::counters::Ruleset;
use crate::expect::{Mismatch, Tally};

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

/// The mode of each node's proxy.
pub(super) type Modes = BTreeMap<String, Mode>;

/// The nodes that a rule is about, but for those whose proxy is in another mode.
pub(super) fn nodes_of(rule: &RuleFile, modes: &Modes) -> Result<Vec<String>, Problem> {
    let mut chosen = Vec::new();
    for choice in &rule.on.0 {
        let among = choice.value.among(modes.keys().map(String::as_str));
        chosen.extend(among.map_err(|message| Problem::new(choice.referenced, message))?);
    }
    chosen.retain(|node| rule.modes().any(|mode| modes.get(node) == Some(&mode)));
    Ok(chosen)
}

/// What is wrong with a health check's answer: its status, its count, and its body for people.
pub(super) fn health(expect: &ExpectFile, status: u16, local: Option<u64>, body: &str) -> Vec<Mismatch> {
    let mut broken = Vec::new();
    if let Some(wanted) = expect.status.filter(|wanted| i32::from(status) != *wanted) {
        broken.push(Mismatch::new(format!("status {wanted}"), status.to_string()));
    }
    if let Some(wanted) = expect.local_endpoints.filter(|wanted| local != Some(*wanted)) {
        broken.push(Mismatch::new(format!("localEndpoints {wanted}"), body));
    }
    broken
}

/// What a step promises of counters.
pub(super) fn counters(expect: &ExpectFile) -> Vec<RuleFile> {
    expect.counters.iter().map(|rule| rule.value.clone()).collect()
}

/// How often a pod has answered.
pub(super) fn answers_of(tally: &Tally, pod: &str) -> u64 {
    let key: Result<PodRef, _> = pod.parse();
    key.ok().and_then(|key| tally.servers.get(&key.0.to_string())).map_or(0, |count| *count as u64)
}

/// Compares `rules` with what was saved; packets count from `before` on if it is given. `answers` tells how often a pod
/// answered in this step.
pub(super) fn compare(
    modes: &Modes,
    rules: &[RuleFile],
    before: Option<&Saved>,
    now: &Saved,
    answers: &dyn Fn(&str) -> u64,
) -> Result<Vec<Mismatch>, Problem> {
    let mut found = Vec::new();
    for rule in rules {
        let mut packets = 0_i64;
        let nodes = nodes_of(rule, modes)?;
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

/// Why none of `rules` could be looked at: they are about modes in which no node's proxy is.
pub(super) fn left_out(modes: &Modes, rules: &[RuleFile]) -> Result<Option<String>, Problem> {
    for rule in rules {
        if !nodes_of(rule, modes)?.is_empty() {
            return Ok(None);
        }
    }
    let modes: std::collections::BTreeSet<String> =
        rules.iter().flat_map(RuleFile::modes).map(|mode| mode.to_string()).collect();
    let modes = modes.into_iter().collect::<Vec<_>>().join(" or ");
    Ok((!rules.is_empty()).then(|| format!("these rules are of {modes} mode, in which no node's proxy is")))
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
