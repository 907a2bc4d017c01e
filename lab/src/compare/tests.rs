#![allow(clippy::unwrap_used, reason = "tests")]
use std::net::SocketAddr;
use std::time::Duration;

use svclab_cluster::traffic::probe::{ProbeAnswer, ProbeOutcome};

use super::*;
use crate::expect::{Mismatch, OutcomeTally, StepAnswers};
use crate::report::{Idle, StepReport, StepVerdict};

/// Returns the report of a probe step: `servers` with their numbers of answers. Every server saw `source`.
fn probe(name: &str, verdict: StepVerdict, servers: &[(&str, usize)], source: &str, drawn: bool) -> StepReport {
    let outcome = |server: &str| {
        let peer = SocketAddr::new(source.parse().unwrap(), 40_000);
        ProbeOutcome {
            answer: ProbeAnswer::Replied { server: server.to_owned(), peer, at: peer, dscp: None },
            client: None,
            took: Duration::ZERO,
        }
    };
    let outcomes: Vec<ProbeOutcome> =
        servers.iter().flat_map(|(server, count)| std::iter::repeat_n(outcome(server), *count)).collect();
    let tally = OutcomeTally::of(&outcomes);
    StepReport {
        evidence: None,
        audited: None,
        promise: None,
        name: name.to_owned(),
        line: 7,
        action: "probe",
        verdict,
        summary: tally.summary(),
        answers: Some(StepAnswers { tally, drawn, ..StepAnswers::default() }),
        took: Duration::ZERO,
    }
}

fn report(steps: Vec<StepReport>) -> ScenarioReport {
    let figures = Figures {
        applied: vec![Duration::from_millis(20), Duration::from_millis(40)],
        rules: 30,
        chains: 12,
        peak_memory: 18_400_000,
        processor: Duration::from_millis(310),
        idle: Idle { processor: Duration::from_micros(1500), time: Duration::from_secs(20) },
    };
    let template = crate::report::sample().remove(0);
    ScenarioReport { steps, figures: Some(figures), ..template }
}

fn comparison(a: ScenarioReport, b: ScenarioReport) -> ProxyComparison {
    let [scenario, mode, proxy, reason] = ["flush", "iptables", "kube-proxy", "it looks every 30 s"].map(str::to_owned);
    let excused = vec![Excused { scenario, mode, proxy, reason }];
    ProxyComparison { names: ["svcproxy".to_owned(), "kube-proxy".to_owned()], pairs: vec![Pair { a, b }], excused }
}

fn broken() -> StepVerdict {
    StepVerdict::Failed(vec![Mismatch::new("every probe answered by d/a", "d/b ×20\nand more")])
}

#[test]
fn counts_within_chance_are_no_difference() {
    let steps =
        |a: usize, b: usize| vec![probe("shares", StepVerdict::Passed, &[("d/a", a), ("d/b", b)], "10.0.0.1", true)];
    let comparison = comparison(report(steps(230, 211)), report(steps(205, 236)));
    assert!(comparison.alike(), "{}", text(&comparison));
}

#[test]
fn affinity_to_different_servers_is_no_difference() {
    let sticks_to = |server| vec![probe("sticks", StepVerdict::Passed, &[(server, 60)], "10.0.0.1", false)];
    let pair = Pair { a: report(sticks_to("d/a")), b: report(sticks_to("d/b")) };
    assert_eq!(differences(&pair), []);
    let drawn = |server| vec![probe("moves", StepVerdict::Passed, &[(server, 60)], "10.0.0.1", true)];
    let pair = Pair { a: report(drawn("d/a")), b: report(drawn("d/b")) };
    assert_eq!(differences(&pair).len(), 1);
}

#[test]
fn all_outcomes_of_a_step_share_one_bound_on_a_false_alarm() {
    // 18 answers of one server have a probability of 1 in 9 · 10⁹: too few for a bound that 64 outcomes share.
    let found = |count: usize| {
        let step = |server| report(vec![probe("moves", StepVerdict::Passed, &[(server, count)], "10.0.0.1", true)]);
        differences(&Pair { a: step("d/a"), b: step("d/b") }).len()
    };
    assert_eq!((found(18), found(20)), (0, 1));
}

#[test]
fn every_kind_of_difference_is_found() {
    let a = report(vec![
        probe("a verdict", StepVerdict::Passed, &[("d/a", 20)], "10.0.0.1", true),
        probe("shares", StepVerdict::Passed, &[("d/a", 220), ("d/b", 221)], "10.0.0.1", true),
        probe("a source", StepVerdict::Passed, &[("d/a", 20)], "10.0.0.1", true),
        probe("too few to tell", StepVerdict::Passed, &[("d/a", 5)], "10.0.0.1", true),
    ]);
    let b = report(vec![
        probe("a verdict", broken(), &[("d/b", 20)], "10.0.0.1", true),
        probe("shares", StepVerdict::Passed, &[("d/a", 441)], "10.0.0.1", true),
        probe("a source", StepVerdict::Passed, &[("d/a", 20)], "172.18.0.2", true),
        probe("too few to tell", StepVerdict::Passed, &[("d/a", 5)], "172.18.0.2", true),
    ]);
    let comparison = comparison(a, b);
    let whats: Vec<DifferenceKind> =
        differences(&comparison.pairs[0]).into_iter().map(|difference| difference.what).collect();
    assert_eq!(whats, [DifferenceKind::Verdict, DifferenceKind::Distribution, DifferenceKind::Source]);
    insta::assert_snapshot!(text(&comparison));
    let value = json(&comparison);
    assert_eq!(value["alike"], false);
    assert_eq!(value["scenarios"][0]["differences"][2]["seen"][1], "d/a saw 172.18.0.2 ×20");
    assert_eq!(value["figures"][0]["rules"], 30);
    assert_eq!(value["figures"][0]["idle"], serde_json::json!({ "processorSeconds": 0.0015, "seconds": 20.0 }));
}

#[test]
fn a_proxy_that_does_not_start_is_a_difference_unless_neither_starts() {
    let started = || report(vec![probe("one", StepVerdict::Passed, &[("d/a", 1)], "10.0.0.1", true)]);
    let failed = || ScenarioReport { not_started: Some("it has ended".to_owned()), steps: Vec::new(), ..started() };
    let found = differences(&Pair { a: started(), b: failed() });
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].a.as_str(), found[0].b.as_str()), ("it started", "not started: it has ended"));
    assert_eq!(differences(&Pair { a: failed(), b: failed() }), []);
}
