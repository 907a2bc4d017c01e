//! Audits of each kind of node have no findings, and find a fault of the proxy there.

use std::path::Path;

use svclab_audit::audit::{AuditOptions, Finding, Report, audit};
use svclab_oracle::Mode;
use svclab_properties::node_kinds::{ALL, table};

fn are_quiet_and_their_twins_found(mode: Mode) {
    let kinds = ALL.iter().filter(|kind| kind.modes.contains(&mode));
    let wrong: Vec<String> = kinds.flat_map(|kind| kind.problems(mode)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nodes_in_iptables_mode_are_quiet_and_their_twins_found() {
    are_quiet_and_their_twins_found(Mode::Iptables);
}

#[test]
fn nodes_in_ipvs_mode_are_quiet_and_their_twins_found() {
    are_quiet_and_their_twins_found(Mode::Ipvs);
}

#[test]
fn nodes_in_nftables_mode_are_quiet_and_their_twins_found() {
    are_quiet_and_their_twins_found(Mode::Nftables);
}

#[test]
fn nodes_in_userspace_mode_are_quiet_and_their_twins_found() {
    are_quiet_and_their_twins_found(Mode::Userspace);
}

/// Returns what the report of a kind says of its audit.
fn remarks(kind: &str) -> String {
    let kind = ALL.iter().find(|one| one.name == kind).unwrap();
    let report = kind.audit(Mode::Iptables, None).unwrap();
    report.incomplete.into_iter().chain(report.not_asked).chain(report.assumed).collect::<Vec<_>>().join("\n")
}

#[test]
fn reports_say_what_other_programs_decide_and_what_could_not_be_asked() {
    for (kind, remark) in [
        ("flannel", "a rule of another program decides the source: rule 5 of chain FLANNEL-POSTRTG in table nat: "),
        (
            "Antrea",
            "Open vSwitch changes no packet of the machines on antrea-gw0, and hands each of their answers to this node",
        ),
        ("NodeLocal DNSCache", "NodeLocal DNSCache answers at 10.96.1.1:80, not the proxy"),
        ("no Node objects", "calls at the node's addresses were not made: there is no Node object of this node"),
        ("cluster-pool IPAM, only own endpoints", "calls of a pod of another node over IPv4: no pod range"),
    ] {
        let found = remarks(kind);
        assert!(found.contains(remark), "{kind}: {found}");
    }
}

/// kube-proxy in IPVS mode with masqueradeAll: no rule tells pods from others.
#[test]
fn what_depends_on_an_unknown_setting_is_not_judged() {
    let kind = ALL.iter().find(|one| one.name == "no configuration; masqueradeAll").unwrap();
    let mut snapshot = kind.snapshot(Mode::Ipvs, None).unwrap();
    let text = snapshot.nft_v4.as_mut().unwrap();
    assert!(text.contains("KUBE-PROXY-FIREWALL ! -s 10.244.0.0/16"));
    *text = text.replace("KUBE-PROXY-FIREWALL ! -s 10.244.0.0/16", "KUBE-PROXY-FIREWALL");
    let report = audit(&snapshot, &AuditOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    let why: Vec<&str> = report.not_judged.iter().map(|one| one.why.as_str()).collect();
    assert_eq!(why, ["it depends on how the proxy tells pods from others, which is not known"]);
    assert!(report.judged * 10 > report.calls * 9, "{} of {}", report.judged, report.calls);
}

/// Audits a kind in iptables mode with this rule ahead of all others of its table.
fn with_first_rule(kind: &str, table: &str, rule: &str) -> Report {
    let kind = ALL.iter().find(|one| one.name == kind).unwrap();
    let mut snapshot = kind.snapshot(Mode::Iptables, None).unwrap();
    let text = snapshot.nft_v4.as_mut().unwrap();
    let start = text.find(&format!("*{table}\n")).unwrap();
    let first = start + text[start..].find("\n-A ").unwrap() + 1;
    text.insert_str(first, &format!("{rule}\n"));
    audit(&snapshot, &AuditOptions::default()).unwrap()
}

#[test]
fn a_foreign_rule_is_the_cause_of_what_it_breaks() {
    let masquerade = "! -s 10.244.0.0/16 -d 10.244.0.0/16 -j MASQUERADE";
    let report = with_first_rule("no other program", "nat", &format!("-A POSTROUTING {masquerade}"));
    let found: Vec<_> = report.wrong().map(|finding| (finding.kind, finding.services.join(", "))).collect();
    assert_eq!(found, [("source", "default/svc-1".to_owned())], "only policy Local keeps the source");
    assert!(report.wrong().all(|finding| finding.cause.contains(masquerade)), "{:?}", report.findings);

    let accept = "-A FORWARD -j OPENSHIFT-FIREWALL-FORWARD";
    let report = with_first_rule("OpenShift SDN", "filter", accept);
    assert!(!report.is_clean());
    let named = |finding: &Finding| finding.cause.starts_with("a rule of OpenShift SDN");
    assert!(report.wrong().all(named), "{:?}", report.findings);
}

#[test]
fn the_table_of_kinds_is_the_one_in_the_docs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/audit.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- generated: kinds of nodes -->\n", "<!-- end -->\n");
    let (before, rest) = text.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let expected = format!("{before}{begin}\n{}\n{end}{after}", table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == expected,
        "docs/audit.md is out of date: UPDATE_DOCS=1 cargo nextest run -p svclab-properties table_of_kinds"
    );
}
