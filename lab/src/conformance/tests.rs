#![allow(clippy::unwrap_used, reason = "tests")]
use serde_json::{Value, json};

use super::*;

fn step(name: &str, verdict: &str) -> Value {
    json!({ "name": name, "verdict": verdict, "why": null, "mismatches": [], "audited": null, "explanation": null })
}

fn failed(name: &str, expected: &str, seen: &str) -> Value {
    let mut step = step(name, "failed");
    step["mismatches"] = json!([{ "expected": expected, "seen": seen }]);
    step["explanation"] = json!(["10.244.1.9 sends to 10.96.0.1:80", "dropped by FORWARD 1"]);
    step
}

fn audit(rules: &Value, broken: &Value) -> Value {
    let mut step = step(
        "audit before the first step",
        if broken.as_array().unwrap().iter().all(|one| !one["known"].is_null()) { "passed" } else { "failed" },
    );
    step["audited"] = json!({ "rules": rules, "broken": broken });
    step
}

fn report(name: &str, promise: Option<&str>, steps: &[Value]) -> Value {
    json!({
        "name": name, "promise": promise, "mode": "iptables", "kernel": "6.12", "text": format!("name: {name}\n"), "steps": steps,
        "unable": false, "interrupted": false, "notStarted": null, "repeat": format!("svclab run scenarios/{name}.yaml --mode iptables"),
        "figures": { "appliedSeconds": { "all": [0.2, 0.1] }, "peakMemoryBytes": 12_000_000, "processorSeconds": 1.5 },
    })
}

fn broken(rule: &str, known: Option<&str>) -> Value {
    json!({
        "rule": rule, "node": "node-a", "call": "a pod → 10.96.0.1:80/TCP", "promised": "deliver", "found": "it is dropped",
        "cause": "a rule `|` of <b>", "known": known, "way": "prerouting\nforward",
    })
}

fn card() -> Card {
    let mut gatherer = Gatherer::new("kube-proxy 1.36.2".to_owned(), 7, ["iptables".to_owned()]);
    gatherer.generated("generated-iptables-7".to_owned(), "name: generated\n```\n".to_owned());
    let rules = json!({ "cluster-ip": { "held": 9, "broken": 0, "known": 0 }, "source-ranges": { "held": 1, "broken": 2, "known": 0 } });
    gatherer.scenario(&report(
        "generated-iptables-7",
        None,
        &[audit(&rules, &json!([broken("source-ranges", None)])), failed("a probe", "x", "y")],
    ));
    let known = json!({ "no-endpoints": { "held": 3, "broken": 0, "known": 1 } });
    let known = audit(&known, &json!([broken("no-endpoints", Some("it refuses everywhere"))]));
    gatherer.scenario(&report("hairpin", Some("hairpin"), &[known, step("it answers", "passed")]));
    (0..4).for_each(|_| gatherer.measured(&report("clusterip", None, &[])));
    gatherer.scenario(&report(
        "restart",
        Some("restart"),
        &[failed("it lives", "an answer", "silence"), failed("and again", "an answer", "silence")],
    ));
    let mut idle = step("nothing happens", "not judged");
    idle["why"] = "the machine is busy".into();
    gatherer.scenario(&report("idle", Some("idle"), &[idle]));
    let udp = Promise::of_id("udp-flows");
    gatherer.excused("udp-stale", udp, "iptables", "it leaves the flows of a deleted service");
    gatherer.not_run("sctp", Promise::of_id("cluster-ip"), "iptables", "no microVM here");
    gatherer.not_run("generated-iptables-8", None, "iptables", "the run ended without a report of it");
    gatherer.card()
}

fn verdict(card: &Card, id: &str) -> PromiseVerdict {
    card.promises.iter().find(|row| row.id == id).unwrap().cells["iptables"].verdict
}

#[test]
fn each_promise_has_the_verdict_that_its_runs_give() {
    let card = card();
    let of = |id| verdict(&card, id);
    assert_eq!(of("cluster-ip"), PromiseVerdict::Kept, "though a scenario about it was not run");
    assert_eq!(of("source-ranges"), PromiseVerdict::Broken);
    assert_eq!(of("no-endpoints"), PromiseVerdict::Known);
    assert_eq!(of("hairpin"), PromiseVerdict::Kept);
    assert_eq!(of("restart"), PromiseVerdict::Broken);
    assert_eq!(of("udp-flows"), PromiseVerdict::Excused);
    assert_eq!([of("idle"), of("endpoint-changes")], [PromiseVerdict::NotJudged; 2]);
    let drain = card.promises.iter().find(|row| row.id == "drain").unwrap();
    assert!(drain.cells.is_empty(), "it is for IPVS mode");
    assert!(card.judged() && !card.is_clean());
    let mode = &card.modes[0];
    assert_eq!((mode.scenarios, mode.generated, mode.not_run.len()), (3, 1, 3));
    let figures = mode.figures.as_ref().unwrap();
    assert_eq!((figures.changes, figures.applied_median, figures.peak_memory), (8, Some(0.1), 12_000_000));
}

#[test]
fn of_a_scenario_the_first_failed_step_counts_and_a_generated_one_brings_its_text() {
    let card = card();
    let breaches = |id: &str| &card.promises.iter().find(|row| row.id == id).unwrap().cells["iptables"].breaches;
    assert_eq!(breaches("restart").iter().map(|one| one.step.as_str()).collect::<Vec<_>>(), ["it lives"]);
    let generated = &breaches("source-ranges")[0];
    assert!(generated.text.is_some());
    assert_eq!(generated.repeat, "svclab run generated-iptables-7.yaml --mode iptables --audit");
}

#[test]
fn the_smallest_scenario_is_shown_first_and_those_written_by_hand_before() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    gatherer.generated("g".to_owned(), String::new());
    for name in ["long-name", "a-very-long-name", "short", "g", "longest-name-of-all"] {
        gatherer.scenario(&report(name, Some("hairpin"), &[failed("x", "y", "z")]));
    }
    let card = gatherer.card();
    let row = card.promises.iter().find(|row| row.id == "hairpin").unwrap();
    let names: Vec<&str> = row.cells["iptables"].breaches.iter().map(|one| one.scenario.as_str()).collect();
    assert_eq!(names, ["short", "long-name", "a-very-long-name"]);
}

#[test]
fn what_the_lab_cannot_do_is_held_against_no_proxy() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    let mut error = failed("a probe", "the lab can do this step", "binding UDP: Address already in use");
    error["verdict"] = "error".into();
    gatherer.scenario(&report("hairpin", Some("hairpin"), &[error, failed("the next", "an answer", "silence")]));
    let card = gatherer.card();
    let row = card.promises.iter().find(|row| row.id == "hairpin").unwrap();
    let cell = &row.cells["iptables"];
    assert_eq!((cell.verdict, cell.breaches.len()), (PromiseVerdict::NotJudged, 0));
    assert_eq!(cell.not_judged[0].why, "the lab failed: binding UDP: Address already in use");
}

#[test]
fn findings_that_a_scenario_expects_are_no_breaches() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    let rules = json!({ "cluster-ip": { "held": 2, "broken": 1, "known": 0 } });
    let mut expected = audit(&rules, &json!([broken("cluster-ip", None)]));
    expected["verdict"] = "passed".into();
    gatherer.scenario(&report("audit", None, &[expected]));
    assert_eq!(verdict(&gatherer.card(), "cluster-ip"), PromiseVerdict::Kept);
}

#[test]
fn of_a_generated_cluster_the_smaller_one_is_shown() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    let breach = |rule: &str, known| audit(&json!({}), &json!([broken(rule, known)]));
    gatherer.generated("g".to_owned(), "name: g\n".to_owned());
    gatherer.scenario(&report(
        "g",
        None,
        &[breach("kept", None), breach("no-endpoints", Some("it refuses everywhere"))],
    ));
    gatherer.scenario(&report("by-hand", None, &[breach("source-ranges", None)]));
    gatherer.scenario(&report("g", None, &[breach("source-ranges", None)]));
    let alone =
        OnlyGenerated { promise: "kept", mode: "iptables".to_owned(), scenario: "g".to_owned(), by_audit: true };
    assert_eq!(
        gatherer.broken_by_generated(),
        [alone],
        "the others are known, or have a scenario that was written by hand"
    );

    let one = |name: &str, steps: &[Value]| json!({ "scenarios": [report(name, None, steps)] });
    let other =
        gatherer.judge_apart("s", "", &one("s", &[breach("hairpin", None), breach("kept", Some("everywhere"))]));
    assert!(other.breaks("hairpin", "iptables") && !other.breaks("kept", "iptables"));
    let smaller = gatherer.judge_apart("s", "name: s\n", &one("s", &[breach("kept", None), breach("hairpin", None)]));
    assert!(smaller.breaks("kept", "iptables") && !smaller.breaks("kept", "ipvs"));
    gatherer.take_breaches(smaller);
    let card = gatherer.card();
    let cell = |id: &str| &card.promises.iter().find(|row| row.id == id).unwrap().cells["iptables"];
    let names: Vec<&str> = cell("kept").breaches.iter().map(|one| one.scenario.as_str()).collect();
    assert_eq!(names, ["s"]);
    assert_eq!(
        verdict(&card, "hairpin"),
        PromiseVerdict::NotJudged,
        "a smaller cluster that breaks something else says nothing"
    );
    assert_eq!(card.modes[0].generated, 2);
}

#[test]
fn a_proxy_that_does_not_come_up_breaks_the_promise_and_a_lab_that_does_not_judges_nothing() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    let mut dead = report("hairpin", Some("hairpin"), &[]);
    dead["notStarted"] = "the proxy on node-a has ended".into();
    let mut unable = report("restart", Some("restart"), &[]);
    unable["notStarted"] = "no namespaces here".into();
    unable["unable"] = true.into();
    gatherer.scenario(&dead);
    gatherer.scenario(&unable);
    let card = gatherer.card();
    assert_eq!(
        (verdict(&card, "hairpin"), verdict(&card, "restart")),
        (PromiseVerdict::Broken, PromiseVerdict::NotJudged)
    );
    assert_eq!(verdict(&card, "starts"), PromiseVerdict::Broken);
    assert_eq!(card.modes[0].not_run[0].why, "no namespaces here");
}

#[test]
fn a_generated_cluster_with_which_the_proxy_does_not_come_up_shows() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    for (name, why) in [("one", None), ("two", Some("the proxy on node-a has ended"))] {
        gatherer.generated(name.to_owned(), "nodes: []\n".to_owned());
        let mut report = report(name, None, &[]);
        report["notStarted"] = why.into();
        gatherer.scenario(&report);
    }
    let found = gatherer.broken_by_generated();
    assert_eq!(found.iter().map(|one| (one.promise, one.scenario.as_str())).collect::<Vec<_>>(), [("starts", "two")]);
    let card = gatherer.card();
    let cell = &card.promises.iter().find(|row| row.id == "starts").unwrap().cells["iptables"];
    assert_eq!((cell.verdict, cell.steps, cell.breaches.len()), (PromiseVerdict::Broken, 2, 1));
}

#[test]
fn as_text() {
    insta::assert_snapshot!(text(&card()).replace(env!("SVCLAB_VERSION"), "VERSION"));
}

#[test]
fn as_markdown() {
    insta::assert_snapshot!(markdown(&card()).replace(env!("SVCLAB_VERSION"), "VERSION"));
}

#[test]
fn the_page_is_well_formed() {
    let text = html(&card());
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&text, options).unwrap();
    let cards = document.descendants().filter(|node| node.attribute("class") == Some("card")).count();
    assert_eq!(cards, 3);
}

#[test]
fn cards_compare_by_number() {
    let (before, mut now) = (card(), card());
    assert_eq!(against(&now, &before), []);
    let read: Card = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
    assert_eq!(read, before);
    let cell = |card: &mut Card, id: &str, verdict| {
        let row = card.promises.iter_mut().find(|row| row.id == id).unwrap();
        row.cells.get_mut("iptables").unwrap().verdict = verdict;
    };
    cell(&mut now, "hairpin", PromiseVerdict::Broken);
    cell(&mut now, "restart", PromiseVerdict::Kept);
    let changes = against(&now, &before);
    let shown: Vec<_> = changes.iter().map(|one| (one.number, one.before, one.now, one.is_worse())).collect();
    assert_eq!(
        shown,
        [
            (502, Some(PromiseVerdict::Kept), PromiseVerdict::Broken, true),
            (801, Some(PromiseVerdict::Broken), PromiseVerdict::Kept, false),
        ]
    );
}

#[test]
fn every_shipped_scenario_says_which_promise_it_is_about() {
    // The lab's own audit, and the documents that the work started from, which promise names of chains.
    let without = ["scenarios/audit.yaml", "scenarios/seeds/"];
    for path in crate::shipped::scenarios() {
        let scenario = crate::scenario::load(path, 0).unwrap();
        let is_left_out = without.iter().any(|start| path.to_str().unwrap().starts_with(start));
        assert_eq!(scenario.promise.is_none(), is_left_out, "{}", path.display());
    }
}
