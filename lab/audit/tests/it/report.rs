//! Reports of audits in every format.

use std::collections::BTreeMap;

use svclab_audit::audit::{Coverage, Finding, NotJudged, Report, RuleTallies, RuleTally};
use svclab_audit::report::{json, junit, markdown, sarif, summary, text};

fn finding(kind: &'static str, title: &'static str, service: &str, known: Option<&'static str>) -> Finding {
    Finding {
        kind,
        title,
        service: service.to_owned(),
        services: vec![service.to_owned()],
        service_count: 1,
        protocol: "TCP",
        frontend: "cluster IP",
        calls: vec!["a pod of this node (10.244.1.9) → 10.96.0.10:80/TCP".to_owned()],
        count: 3,
        promised: "deliver to 10.244.1.5:8080 (default/web-1) 1/1, sees 10.244.1.9".to_owned(),
        because: vec!["cluster-ip: each node captures it [page reference/networking/virtual-ips]".to_owned()],
        rules: vec!["cluster-ip"],
        found: "to be delivered, and: lost on node/node-a: dropped by FORWARD 1".to_owned(),
        cause: "a rule of Calico catches it: rule 1 of chain cali-FORWARD in table filter: -m comment --comment \"</script>`*\" -j DROP"
            .to_owned(),
        known: known.map(Into::into),
        way: "10.244.1.9 sends tcp 10.244.1.9:40000 -> 10.96.0.10:80 SYN\n  route: out by eth0 to 10.244.1.1\n"
            .to_owned(),
    }
}

fn report() -> Report {
    let dropped = "Packets are dropped that should be delivered";
    Report {
        node: "node-a".to_owned(),
        taken: "2026-11-24T18:00:00Z".to_owned(),
        mode: "iptables",
        service_ports: 12,
        frontends: 1,
        calls: 98,
        judged: 96,
        no_promise: 0,
        unsettled: 1,
        rules: RuleTallies::from([
            ("cluster-ip", RuleTally { held: 90, broken: 3, known: 0 }),
            ("no-endpoints", RuleTally { held: 3, broken: 0, known: 3 }),
        ]),
        coverage: Coverage {
            total: 120,
            met: 118,
            unmet: vec![
                "2 × rule of KUBE-FORWARD with -j DROP, such as -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP"
                    .to_owned(),
            ],
        },
        findings: vec![
            finding("dropped", dropped, "default/web:http", None),
            finding(
                "refusal",
                "Packets are refused in the wrong way",
                "default/nobody",
                Some("kube-proxy does so everywhere"),
            ),
        ],
        not_judged: vec![NotJudged {
            why: "table filter, rule 3: bpf asks for a program's answer".to_owned(),
            count: 2,
            first: "the node → 10.96.0.11:80/TCP".to_owned(),
        }],
        not_asked: vec!["calls of a pod of another node over IPv4: no route shows one".to_owned()],
        assumed: vec!["10.244.1.5 is behind a port of cni0 of its own".to_owned()],
        incomplete: vec!["rules/nft.json was not read".to_owned()],
        unread: vec!["rules/ipset: ipset: not found".to_owned()],
    }
}

#[test]
fn as_text() {
    insta::assert_snapshot!(text(&report(), true));
}

#[test]
fn as_markdown() {
    insta::assert_snapshot!(markdown(&report()));
}

#[test]
fn as_junit() {
    insta::assert_snapshot!(junit(&report()));
}

#[test]
fn as_sarif() {
    let document = sarif(&report(), "1.2.3");
    let results = document["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results[0]["level"], "error");
    assert_eq!(results[1]["level"], "note");
    assert_eq!(results[0]["partialFingerprints"]["finding/v1"], "dropped/cluster IP/node-a/default/web:http/TCP");
    let rules = document["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    for result in results {
        assert!(rules.iter().any(|rule| rule["id"] == result["ruleId"]), "{result}");
    }
}

#[test]
fn as_json() {
    let document: serde_json::Value = serde_json::from_str(&json(&report()).unwrap()).unwrap();
    assert_eq!(document["servicePorts"], 12);
    assert_eq!(document["findings"][0]["kind"], "dropped");
    assert_eq!(document["findings"][0].get("known"), None);
}

#[test]
fn nothing_is_wrong_only_if_everything_was_judged() {
    let whole = Report { findings: Vec::new(), judged: 98, incomplete: Vec::new(), ..report() };
    assert!(summary(&whole).ends_with("nothing is wrong\n"));
    for (report, why) in [
        (Report { judged: 58, ..whole.clone() }, "40 of 98 calls could not be judged"),
        (Report { calls: 0, judged: 0, ..whole.clone() }, "there was no call to judge"),
        (Report { incomplete: report().incomplete, ..whole.clone() }, "rules/nft.json was not read"),
    ] {
        assert!(!report.is_complete());
        let summary = summary(&report);
        assert!(summary.ends_with(&format!("not judged: {why}\n")), "{summary}");
        assert!(junit(&report).contains(&format!("<skipped message=\"{why}\"/>")), "{}", junit(&report));
    }
    let known = report().findings.into_iter().filter(|one| one.known.is_some()).collect();
    let known = Report { findings: known, ..whole };
    assert!(known.is_clean() && summary(&known).ends_with("nothing is wrong\n"), "{}", summary(&known));
}

#[test]
fn a_cause_of_the_whole_node_is_one_finding() {
    let mut report = report();
    let services: Vec<String> = (0..12).map(|number| format!("default/s{number}:p")).collect();
    report.findings[0] = Finding { services, service_count: 40, ..report.findings[0].clone() };
    let text = text(&report, false);
    assert!(text.contains("dropped: 40 service ports\n  services  default/s0:p, "), "{text}");
    assert!(text.contains("default/s11:p and 28 more\n") && text.contains("1 finding of 40 service ports\n"), "{text}");
    assert!(markdown(&report).contains("## dropped: 40 service ports"));
    assert!(junit(&report).contains("name=\"40 service ports: a rule of Calico"));
}

#[test]
fn what_the_proxy_is_known_to_break_is_no_fault_of_the_node() {
    let excused = |promise: &str| {
        let mut report = report();
        report.excuse(&BTreeMap::from([(promise.to_owned(), "it has none before 2.0".to_owned())]));
        report
    };
    assert_eq!(excused("hairpin"), report());
    let excused = excused("cluster-ip");
    assert!(excused.is_clean() && !report().is_clean());
    assert_eq!(excused.rules["cluster-ip"], RuleTally { held: 90, broken: 0, known: 3 });
    let known: Vec<_> = excused.findings.iter().map(|finding| finding.known.as_deref()).collect();
    assert_eq!(known, [Some("it has none before 2.0"), Some("kube-proxy does so everywhere")]);
}
