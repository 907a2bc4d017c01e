//! One report of many nodes.

use svclab_audit::audit::{Finding, Report};
use svclab_audit::fleet::{ClusterAudit, ClusterReport, markdown, text};

fn finding(kind: &'static str, services: &[&str]) -> Finding {
    Finding {
        kind,
        title: if kind == "dropped" { "Packets are dropped" } else { "Not served here" },
        service: services[0].to_owned(),
        services: services.iter().map(ToString::to_string).collect(),
        service_count: services.len(),
        protocol: "TCP",
        frontend: "cluster IP",
        calls: vec!["a pod → 10.96.0.10:80/TCP".to_owned()],
        count: 2,
        promised: "deliver to 10.244.1.5:8080".to_owned(),
        found: "dropped by FORWARD 1".to_owned(),
        cause: "a rule catches it: -A FORWARD -j DROP".to_owned(),
        way: "a long path".to_owned(),
        ..Finding::default()
    }
}

fn node(name: &str, findings: Vec<Finding>) -> Report {
    Report { node: name.to_owned(), mode: "iptables", calls: 90, judged: 90, findings, ..Report::default() }
}

fn cluster() -> ClusterReport {
    let mut cluster = ClusterAudit::default();
    for number in 1..=5 {
        let mut findings = vec![finding("dropped", &["shop/everywhere:http"])];
        // The numbers of rules differ between nodes.
        let mut forward = finding("dropped", &["a/x", "a/y", "a/z"]);
        forward.cause = format!("the policy of FORWARD is DROP, rule {number}0");
        findings.push(forward);
        if number != 4 {
            findings.push(finding("not-translated", &["shop/most"]));
        }
        if number == 2 || number == 5 {
            findings.push(finding("not-translated", &["shop/two\u{1b}[31m*"]));
        }
        let known = Finding { known: Some("everywhere".into()), ..finding("refusal", &["shop/known"]) };
        findings.push(known);
        cluster.add(&format!("n{number}"), Ok(node(&format!("node-{number}"), findings)));
    }
    cluster.add("n6", Ok(Report { judged: 80, ..node("node-6", vec![finding("dropped", &["shop/everywhere:http"])]) }));
    cluster.add("n7", Err("it is not an archive".to_owned()));
    cluster.add(
        "n8",
        Ok(Report { judged: 0, incomplete: vec!["nft.json is unread".to_owned()], ..node("node-8", vec![]) }),
    );
    cluster.report()
}

#[test]
fn what_nodes_break_alike_is_one_finding() {
    let report = cluster();
    let everywhere: Vec<&str> = report.everywhere.iter().map(|one| one.example.service.as_str()).collect();
    assert_eq!(everywhere, ["shop/everywhere:http"]);
    assert_eq!((report.everywhere[0].nodes.len(), report.everywhere[0].all_calls), (6, 12));
    let somewhere: Vec<(&str, usize)> =
        report.somewhere.iter().map(|one| (one.example.service.as_str(), one.nodes.len())).collect();
    assert_eq!(somewhere, [("a/x", 5), ("shop/most", 4), ("shop/two\u{1b}[31m*", 2)]);
    assert!(report.somewhere.iter().all(|one| one.example.way.is_empty()));
    let different: Vec<(String, usize, usize)> =
        report.different.iter().map(|group| (group.nodes.join(" "), group.more.len(), group.fewer.len())).collect();
    let expected = [("node-2 node-5", 1, 0), ("node-4", 0, 1), ("node-6", 0, 2)];
    assert_eq!(different, expected.map(|(nodes, more, fewer)| (nodes.to_owned(), more, fewer)));
    assert_eq!(report.not_judged.iter().map(|one| one.node.as_str()).collect::<Vec<_>>(), ["n7", "node-8"]);
    assert_eq!(report.incomplete[0].why, "judged 80 of 90 calls");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["everywhere"][0]["kind"], &json["kinds"][0]["nodes"]), (&"dropped".into(), &6.into()));
}

#[test]
fn a_report_has_the_form_that_is_asked_for() {
    let report = cluster();
    assert!(!text(&report).contains('\u{1b}') && !markdown(&report).contains('\u{1b}'));
    insta::assert_snapshot!("cluster_as_text", text(&report));
    insta::assert_snapshot!("cluster_as_markdown", markdown(&report));
}

#[test]
fn a_cluster_without_findings_says_whether_all_was_judged() {
    let of = |reports: Vec<Result<Report, String>>| {
        let mut cluster = ClusterAudit::default();
        reports.into_iter().for_each(|report| cluster.add("archive", report));
        let report = cluster.report();
        (report.is_clean(), report.is_complete(), text(&report).lines().last().unwrap().to_owned())
    };
    let clean = |name: &str| Ok(node(name, Vec::new()));
    let verdict = |text: &str| text.to_owned();
    assert_eq!(of(vec![clean("a"), clean("b")]), (true, true, verdict("judged 2 of 2 nodes: nothing is wrong")));
    let (clean_one, complete, text) = of(vec![clean("a"), Err("no".to_owned())]);
    assert_eq!((clean_one, complete), (true, false));
    assert_eq!(text, "judged 1 of 2 nodes: nothing is wrong in what was judged");
    let (_, complete, _) = of(vec![Ok(Report { judged: 89, ..node("a", Vec::new()) })]);
    assert!(!complete);
}

#[test]
fn two_archives_of_one_node_are_told_apart_and_a_single_node_has_no_peers() {
    let mut twice = ClusterAudit::default();
    twice.add("monday", Ok(node("a", Vec::new())));
    twice.add("tuesday", Ok(node("a", vec![finding("dropped", &["shop/web"])])));
    assert_eq!(twice.report().judged, ["a", "tuesday"]);
    let mut single = ClusterAudit::default();
    single.add("a", Ok(node("a", vec![finding("dropped", &["shop/web"])])));
    let report = single.report();
    assert!(report.everywhere.is_empty() && report.different.is_empty() && report.somewhere.len() == 1);
}
