//! Audits find mutants, and have no findings for fresh rules.

use std::cell::Cell;

use proptest::test_runner::TestCaseError;
use svclab_audit::audit::{AuditOptions, Report, audit};
use svclab_oracle::generate::recipes;
use svclab_oracle::{ClusterModel, Mode};
use svclab_properties::mutants::{AuditScore, audit_score, catalogue, fixtures, narrow_catalogue};
use svclab_properties::proxies::Proxies;
use svclab_properties::snapshots::snapshot;
use svclab_properties::sweep::{cases, in_mode, scenario};

use crate::check_all;

fn audited(cluster: &ClusterModel) -> Result<Report, String> {
    let count = cluster.world.nodes.len();
    // Different clusters audit different nodes.
    let node = cluster.world.nodes.get(cluster.objects.services.len() % count.max(1)).ok_or("no node")?;
    let snapshot = snapshot(cluster, &node.name, &Proxies::synced(cluster, &node.name)?.dump());
    audit(&snapshot, &AuditOptions::default()).map_err(|error| error.to_string())
}

fn no_false_alarm(mode: Mode) {
    let (calls, services) = (Cell::new(0), Cell::new(0));
    check_all(77, cases() / 4, &recipes(), |recipe| {
        let cluster = in_mode(&recipe, mode);
        let report = audited(&cluster).map_err(TestCaseError::fail)?;
        calls.set(calls.get() + report.calls);
        services.set(services.get() + report.service_ports);
        if report.is_clean() && report.not_judged.is_empty() {
            return Ok(());
        }
        let report = serde_json::to_string_pretty(&report).unwrap_or_default();
        Err(TestCaseError::fail(format!("{}\n{}", report.replace("\\n", "\n"), scenario(&cluster))))
    });
    println!("{}: {} calls of {} service ports", mode.name(), calls.get(), services.get());
    assert!(calls.get() > u64::from(cases()) as usize * 2, "{} calls", calls.get());
}

#[test]
fn iptables_mode_is_clean() {
    no_false_alarm(Mode::Iptables);
}

#[test]
fn ipvs_mode_is_clean() {
    no_false_alarm(Mode::Ipvs);
}

#[test]
fn nftables_mode_is_clean() {
    no_false_alarm(Mode::Nftables);
}

#[test]
fn userspace_mode_is_clean() {
    no_false_alarm(Mode::Userspace);
}

/// Neither rules nor sockets show these mutants.
const IN_MEMORY: [&str; 6] = [
    "listening ports are rotated",
    "the first endpoint gets no connection",
    "the last endpoint gets no connection",
    "the first endpoint gets two turns",
    "endpoints are at the next port",
    "the ports of portals are rotated",
];

fn every_mutant_is_found(mode: Mode) {
    let fixtures = fixtures(mode, 32, 1).unwrap_or_else(|words| panic!("{words}"));
    let in_memory = |name: &str| mode == Mode::Userspace && IN_MEMORY.contains(&name);
    let all = catalogue(mode).into_iter().chain(narrow_catalogue(mode));
    let seen = all.filter(|mutant| !in_memory(mutant.name));
    let audits: Vec<AuditScore> = seen.map(|mutant| audit_score(mutant, &fixtures)).collect();
    let wrong: Vec<String> = audits.iter().filter(|audit| !audit.is_right()).map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let row = |audit: &AuditScore| {
        let kinds = audit.kinds.iter().copied().collect::<Vec<_>>().join(", ");
        format!("{:<68} {}", audit.mutant.name, if kinds.is_empty() { "(equivalent)" } else { &kinds })
    };
    let table: Vec<String> = audits.iter().map(row).collect();
    insta::assert_snapshot!(format!("found_{}", mode.name()), table.join("\n"));
}

#[test]
fn every_mutant_of_iptables_mode_is_found() {
    every_mutant_is_found(Mode::Iptables);
}

#[test]
fn every_mutant_of_ipvs_mode_is_found() {
    every_mutant_is_found(Mode::Ipvs);
}

#[test]
fn every_mutant_of_nftables_mode_is_found() {
    every_mutant_is_found(Mode::Nftables);
}

#[test]
fn every_mutant_of_userspace_mode_is_found() {
    every_mutant_is_found(Mode::Userspace);
}

#[test]
fn rules_that_could_not_be_read_are_not_missing() {
    let cluster = in_mode(&svclab_oracle::generate::recipe(3), Mode::Iptables);
    let mut snapshot = snapshot(&cluster, "node-a", &svclab_properties::proxies::Dump::default());
    for (what, refused) in [("rules/iptables-nft.v4", true), ("rules/iptables-legacy.v6", true), ("rules/ipset", false)]
    {
        snapshot.unread = vec![svclab_snapshot::Unread { what: what.to_owned(), why: "not permitted".to_owned() }];
        let error = audit(&snapshot, &AuditOptions::default()).map(drop).map_err(|error| error.to_string());
        let said = error.is_err_and(|error| error.contains(what) && error.contains("not permitted"));
        assert_eq!(said, refused, "{what}");
    }
}
