#![allow(clippy::unwrap_used, reason = "tests")]
use std::time::Duration;

use svclab_audit::audit::RuleTally;

use super::*;
use crate::expect::Mismatch;
use crate::report::{Audited, BrokenRule, RunRecord, ScenarioRecord, StepRecord, VerdictWord};

fn step(name: &str, verdict: VerdictWord) -> StepRecord {
    StepRecord { name: name.to_owned(), verdict, ..StepRecord::default() }
}

fn failed(name: &str, expected: &str, seen: &str) -> StepRecord {
    let explanation = ["10.244.1.9 sends to 10.96.0.1:80", "dropped by FORWARD 1"].map(str::to_owned).into();
    StepRecord {
        mismatches: vec![Mismatch::new(expected, seen)],
        explanation: Some(explanation),
        ..step(name, VerdictWord::Failed)
    }
}

/// Returns an audit step. Each rule has its numbers of kept, broken and known calls.
fn audit(rules: &[(&str, [usize; 3])], broken: Vec<BrokenRule>) -> StepRecord {
    let is_known = broken.iter().all(|one| one.known.is_some());
    let tally = |[held, broken, known]: [usize; 3]| RuleTally { held, broken, known };
    let rules = rules.iter().map(|(rule, counts)| ((*rule).to_owned(), tally(*counts))).collect();
    StepRecord {
        audited: Some(Audited { rules, broken }),
        ..step("audit before the first step", if is_known { VerdictWord::Passed } else { VerdictWord::Failed })
    }
}

fn report(name: &str, promise: Option<&str>, steps: &[StepRecord]) -> ScenarioRecord {
    let figures = Figures {
        applied: [200, 100].map(Duration::from_millis).into(),
        peak_memory: 12_000_000,
        processor: Duration::from_millis(1500),
        ..Figures::default()
    };
    ScenarioRecord {
        name: name.to_owned(),
        promise: promise.map(str::to_owned),
        mode: "iptables".to_owned(),
        kernel: Some("6.12".to_owned()),
        text: format!("name: {name}\n"),
        steps: steps.to_vec(),
        repeat: format!("svclab run scenarios/{name}.yaml --mode iptables"),
        figures: Some(figures),
        ..ScenarioRecord::default()
    }
}

fn broken(rule: &str, known: Option<&'static str>) -> BrokenRule {
    BrokenRule {
        rule: rule.to_owned(),
        node: "node-a".to_owned(),
        call: "a pod → 10.96.0.1:80/TCP".to_owned(),
        promised: "deliver".to_owned(),
        found: "it is dropped".to_owned(),
        cause: "a rule `|` of <b>".to_owned(),
        known: known.map(Into::into),
        way: "prerouting\nforward".to_owned(),
    }
}

fn card() -> Card {
    let mut gatherer = Gatherer::new("kube-proxy 1.36.2".to_owned(), 7, ["iptables".to_owned()]);
    gatherer.generated("generated-iptables-7".to_owned(), "name: generated\n```\n".to_owned());
    let rules = [("cluster-ip", [9, 0, 0]), ("source-ranges", [1, 2, 0])];
    gatherer.scenario(&report(
        "generated-iptables-7",
        None,
        &[audit(&rules, vec![broken("source-ranges", None)]), failed("a probe", "x", "y")],
    ));
    let known = audit(&[("no-endpoints", [3, 0, 1])], vec![broken("no-endpoints", Some("it refuses everywhere"))]);
    gatherer.scenario(&report("hairpin", Some("hairpin"), &[known, step("it answers", VerdictWord::Passed)]));
    (0..4).for_each(|_| gatherer.measured(&report("clusterip", None, &[])));
    gatherer.scenario(&report(
        "restart",
        Some("restart"),
        &[failed("it lives", "an answer", "silence"), failed("and again", "an answer", "silence")],
    ));
    let why = Some("the machine is busy".to_owned());
    let idle = StepRecord { why, ..step("nothing happens", VerdictWord::NotJudged) };
    gatherer.scenario(&report("idle", Some("idle"), &[idle]));
    let udp = Promise::of_id("udp-flows");
    gatherer.excused("udp-stale", udp, "iptables", "it leaves the flows of a deleted service");
    gatherer.not_run("sctp", Promise::of_id("cluster-ip"), "iptables", "no microVM here");
    gatherer.not_run("generated-iptables-8", None, "iptables", "the run ended without a report of it");
    with_some_judges(gatherer.card())
}

fn with_some_judges(mut card: Card) -> Card {
    card.mutants = MutantCount { noticed: 3, all: 4 };
    for row in &mut card.promises {
        if row.id == "cluster-ip" {
            let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let mutants = ["no-udp", "no-tcp"].map(str::to_owned).into();
            let (scenarios, simulator) = (names(&["microvm/sctp", "udp"]), ["udp".to_owned()].into());
            row.judges = Judges { audit: true, scenarios, simulator, mutants, every_run: false };
        }
    }
    card
}

fn cell<'a>(card: &'a Card, id: &str) -> &'a Cell {
    &card.promises.iter().find(|row| row.id == id).unwrap().cells["iptables"]
}

fn verdict(card: &Card, id: &str) -> PromiseVerdict {
    cell(card, id).verdict
}

#[test]
fn each_promise_has_the_verdict_of_its_runs() {
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
fn steps_after_a_failed_step_do_not_count_and_a_generated_scenario_has_its_text() {
    let card = card();
    let breaches = |id: &str| &cell(&card, id).breaches;
    assert_eq!(breaches("restart").iter().map(|one| one.step.as_str()).collect::<Vec<_>>(), ["it lives"]);
    let generated = &breaches("source-ranges")[0];
    assert!(generated.text.is_some());
    assert_eq!(generated.repeat, "svclab run generated-iptables-7.yaml --mode iptables --audit");
}

#[test]
fn breaches_are_sorted_by_length_and_generated_scenarios_are_last() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    gatherer.generated("g".to_owned(), String::new());
    for name in ["long-name", "a-very-long-name", "short", "g", "longest-name-of-all"] {
        gatherer.scenario(&report(name, Some("hairpin"), &[failed("x", "y", "z")]));
    }
    let card = gatherer.card();
    let names: Vec<&str> = cell(&card, "hairpin").breaches.iter().map(|one| one.scenario.as_str()).collect();
    assert_eq!(names, ["short", "long-name", "a-very-long-name"]);
}

#[test]
fn an_error_of_the_lab_counts_against_no_proxy() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    let mut error = failed("a probe", "the lab can do this step", "binding UDP: Address already in use");
    error.verdict = VerdictWord::Error;
    gatherer.scenario(&report("hairpin", Some("hairpin"), &[error, failed("the next", "an answer", "silence")]));
    let card = gatherer.card();
    let cell = cell(&card, "hairpin");
    assert_eq!((cell.verdict, cell.breaches.len()), (PromiseVerdict::NotJudged, 0));
    assert_eq!(cell.not_judged[0].why, "the lab failed: binding UDP: Address already in use");
}

#[test]
fn expected_findings_are_no_breaches() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    let mut expected = audit(&[("cluster-ip", [2, 1, 0])], vec![broken("cluster-ip", None)]);
    expected.verdict = VerdictWord::Passed;
    gatherer.scenario(&report("audit", None, &[expected]));
    assert_eq!(verdict(&gatherer.card(), "cluster-ip"), PromiseVerdict::Kept);
}

#[test]
fn a_smaller_generated_cluster_replaces_the_larger() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    let breach = |rule: &str, known| audit(&[], vec![broken(rule, known)]);
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

    let one = |name: &str, steps: &[StepRecord]| RunRecord::new(false, vec![report(name, None, steps)]);
    let other =
        gatherer.judge_apart("s", "", &one("s", &[breach("hairpin", None), breach("kept", Some("everywhere"))]));
    assert!(other.breaks("hairpin", "iptables") && !other.breaks("kept", "iptables"));
    let smaller = gatherer.judge_apart("s", "name: s\n", &one("s", &[breach("kept", None), breach("hairpin", None)]));
    assert!(smaller.breaks("kept", "iptables") && !smaller.breaks("kept", "ipvs"));
    gatherer.take_breaches(smaller);
    let card = gatherer.card();
    let names: Vec<&str> = cell(&card, "kept").breaches.iter().map(|one| one.scenario.as_str()).collect();
    assert_eq!(names, ["s"]);
    assert_eq!(
        verdict(&card, "hairpin"),
        PromiseVerdict::NotJudged,
        "a smaller cluster that breaks something else says nothing"
    );
    assert_eq!(card.modes[0].generated, 2);
}

#[test]
fn a_proxy_that_does_not_start_breaks_the_promise_and_a_lab_that_does_not_start_judges_nothing() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    let mut dead = report("hairpin", Some("hairpin"), &[]);
    dead.not_started = Some("the proxy on node-a has ended".to_owned());
    let mut unable = report("restart", Some("restart"), &[]);
    unable.not_started = Some("no namespaces here".to_owned());
    unable.unable = true;
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
fn a_generated_cluster_with_which_the_proxy_does_not_start_breaks_the_promise() {
    let mut gatherer = Gatherer::new("p".to_owned(), 0, ["iptables".to_owned()]);
    for (name, why) in [("one", None), ("two", Some("the proxy on node-a has ended"))] {
        gatherer.generated(name.to_owned(), "nodes: []\n".to_owned());
        let mut report = report(name, None, &[]);
        report.not_started = why.map(str::to_owned);
        gatherer.scenario(&report);
    }
    let found = gatherer.broken_by_generated();
    assert_eq!(found.iter().map(|one| (one.promise, one.scenario.as_str())).collect::<Vec<_>>(), [("starts", "two")]);
    let card = gatherer.card();
    let cell = cell(&card, "starts");
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
fn cards_compare_by_the_number_of_the_promise() {
    let (before, mut now) = (card(), card());
    assert_eq!(against(&now, &before), []);
    let read: Card = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
    assert_eq!(read, before);
    let set = |card: &mut Card, id: &str, verdict| {
        let row = card.promises.iter_mut().find(|row| row.id == id).unwrap();
        row.cells.get_mut("iptables").unwrap().verdict = verdict;
    };
    set(&mut now, "hairpin", PromiseVerdict::Broken);
    set(&mut now, "restart", PromiseVerdict::Kept);
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
fn every_shipped_scenario_names_its_promise() {
    // These name no promise: scenarios of the lab's own audit, and examples of chain names.
    let without = ["scenarios/audit.yaml", "scenarios/masquerade-borrows-address.yaml", "scenarios/seeds/"];
    for path in crate::shipped::scenarios() {
        let scenario = crate::scenario::load(path, 0).unwrap();
        let is_left_out = without.iter().any(|start| path.to_str().unwrap().starts_with(start));
        assert_eq!(scenario.promise.is_none(), is_left_out, "{}", path.display());
    }
}
