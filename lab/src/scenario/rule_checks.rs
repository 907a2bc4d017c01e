//! Checks chains, rules, counters and health checks.

use std::collections::BTreeMap;

use super::error::Problem;
use super::file::{ExpectFile, Listing, RuleFile};
use super::values::PodRef;
use crate::expect::counters::Ruleset;
use crate::expect::{Mismatch, OutcomeTally};
use crate::mode::Mode;

pub(super) type NodeRulesets = BTreeMap<(String, Listing), Ruleset>;

pub(super) type ModeByNode = BTreeMap<String, Mode>;

/// Returns the nodes whose proxy is in a mode of the rule.
pub(super) fn nodes_of(rule: &RuleFile, modes: &ModeByNode) -> Result<Vec<String>, Problem> {
    let mut chosen = Vec::new();
    for choice in &rule.at.0 {
        let among = choice.value.among(modes.keys().map(String::as_str));
        chosen.extend(among.map_err(|message| Problem::new(choice.referenced, message))?);
    }
    chosen.retain(|node| rule.modes().any(|mode| modes.get(node) == Some(&mode)));
    Ok(chosen)
}

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

pub(super) fn counters(expect: &ExpectFile) -> Vec<RuleFile> {
    expect.counters.iter().map(|rule| rule.value.clone()).collect()
}

pub(super) fn answers_of(tally: &OutcomeTally, pod: &str) -> u64 {
    let key: Result<PodRef, _> = pod.parse();
    key.ok().and_then(|key| tally.servers.get(&key.0.to_string())).map_or(0, |count| *count as u64)
}

/// Compares rules with promises. Counts packets since `before`, if given. `answers` returns a pod's number of answers.
pub(super) fn compare(
    modes: &ModeByNode,
    rules: &[RuleFile],
    before: Option<&NodeRulesets>,
    now: &NodeRulesets,
    answers: &dyn Fn(&str) -> u64,
) -> Result<Vec<Mismatch>, Problem> {
    let mut found = Vec::new();
    for rule in rules {
        let nodes = nodes_of(rule, modes)?;
        let mut packets = Some(0_i64);
        for node in &nodes {
            let key = (node.clone(), rule.listing());
            let Some(ruleset) = now.get(&key) else { continue };
            found.extend(presence(rule, node, ruleset));
            let counted = |ruleset: Option<&Ruleset>| ruleset.map_or(Some(0), |ruleset| count(rule, ruleset));
            let since = counted(Some(ruleset)).zip(counted(before.and_then(|before| before.get(&key))));
            packets = packets.zip(since).map(|(sum, (now, before))| sum + now - before);
        }
        let Some(wanted) = rule.packets.as_ref().filter(|_| !nodes.is_empty()) else { continue };
        let counted = packets.map(|packets| u64::try_from(packets).map_err(|_| packets));
        if !counted.is_some_and(|packets| packets.is_ok_and(|packets| wanted.accepts(packets, answers))) {
            let place = format!("{} on {}", words(rule), nodes.join(", "));
            let seen = packets.map_or_else(|| "it counts none".to_owned(), |packets| packets.to_string());
            found.push(Mismatch::new(format!("{wanted} packets through {place}"), seen));
        }
    }
    Ok(found)
}

/// Returns why no rule applied: no proxy is in a mode of the rules.
pub(super) fn left_out(modes: &ModeByNode, rules: &[RuleFile]) -> Result<Option<String>, Problem> {
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
    let (parts, table) = (rule.parts(), rule.table());
    let wanted = rule.exists.unwrap_or(true);
    let is_there = |object: &str| match &parts {
        Some(parts) => ruleset.matching(&table, object, parts).next().is_some(),
        None => ruleset.has_chain(&table, object),
    };
    let wrong: Vec<String> = rule.objects().into_iter().filter(|object| is_there(object) != wanted).collect();
    let (expected, seen) = if wanted { ("is there", "missing") } else { ("is gone", "still there") };
    (!wrong.is_empty()).then(|| {
        Mismatch::new(format!("{} {expected} on {node}", words(rule)), format!("{}: {seen}", wrong.join(", ")))
    })
}

/// Returns the packets of all matching rules; `None` if none has a counter.
fn count(rule: &RuleFile, ruleset: &Ruleset) -> Option<i64> {
    let (parts, table, objects) = (rule.parts().unwrap_or_default(), rule.table(), rule.objects());
    let matching = objects.iter().flat_map(|object| ruleset.matching(&table, object, &parts));
    let counted: Vec<Option<u64>> = matching.map(|rule| rule.packets).collect();
    let none = !counted.is_empty() && counted.iter().all(Option::is_none);
    (!none).then(|| i64::try_from(counted.into_iter().flatten().sum::<u64>()).unwrap_or(i64::MAX))
}

fn words(rule: &RuleFile) -> String {
    let kind = if rule.element.is_some() { "elements" } else { "rules" };
    let parts = rule.parts().map(|parts| format!(" ({kind} with {:?})", parts.join(" … "))).unwrap_or_default();
    format!("{} {}{parts}", rule.table(), rule.objects().join(" + "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(rule: &str, before: Option<&str>, now: &str) -> Vec<String> {
        let rule: RuleFile = serde_saphyr::from_str(rule).unwrap();
        let saved = |text| NodeRulesets::from([(("node-a".to_owned(), rule.listing()), Ruleset::parse_nft(text))]);
        let modes = ModeByNode::from([("node-a".to_owned(), Mode::Nftables)]);
        let (before, now) = (before.map(saved), saved(now));
        let found = compare(&modes, &[rule], before.as_ref(), &now, &|_| 0).unwrap();
        found.into_iter().map(|wrong| format!("{}; {}", wrong.expected, wrong.seen)).collect()
    }

    #[test]
    fn nftables_chains_sets_elements_and_counters_are_compared() {
        let table = |packets: u64| {
            format!(
                "table ip x {{\n\tmap m {{\n\t\telements = {{ 10.0.0.1 . tcp . 80 : goto a }}\n\t}}\n\tchain c {{\n\
                 \t\tip daddr 10.0.0.1 counter packets {packets} bytes 60 drop\n\t\tip daddr 10.0.0.2 drop\n\t}}\n}}\n"
            )
        };
        let (before, now) = (table(3), table(5));
        let wrong = |rule: &str| wrong(&format!("{{at: all, nft: ip x, {rule}}}"), Some(&before), &now);
        for right in [
            "map: m",
            "map: m, element: [10.0.0.1 ., goto a]",
            "map: m, element: 10.0.0.2, exists: false",
            "set: m, exists: false",
            "chain: c, packets: 2",
            "chain: c, rule: 10.0.0.1, packets: 2",
            "chain: c, rule: 10.0.0.3, exists: false",
        ] {
            assert!(wrong(right).is_empty(), "{right}");
        }
        let element = r#"ip x map m (elements with "10.0.0.2") is there on node-a; map m: missing"#;
        assert_eq!(wrong("map: m, element: 10.0.0.2"), [element]);
        let chain = "ip x chain c is gone on node-a; chain c: still there";
        assert_eq!(wrong("chain: c, exists: false"), [chain]);
        assert_eq!(wrong("exists: false"), ["ip x table is gone on node-a; table: still there"]);
        let packets = r#"3 packets through ip x chain c (rules with "10.0.0.1") on node-a; 2"#;
        assert_eq!(wrong("chain: c, rule: 10.0.0.1, packets: 3"), [packets]);
        let none = r#"0 packets through ip x chain c (rules with "10.0.0.2") on node-a; it counts none"#;
        assert_eq!(wrong("chain: c, rule: 10.0.0.2, packets: 0"), [none]);
    }
}
