//! promtool (Debian package `prometheus`) judges the alerts by series of healthy, failing and hung proxies. Outside CI the test
//! skips without promtool.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Folders below `deploy/`, and series for their alerts.
const TESTS: [(&str, &str); 2] =
    [("overlays/monitored", include_str!("alerts.yaml")), ("auditor/monitored", include_str!("auditor_alerts.yaml"))];

fn promtool(directory: &Path) -> Option<std::process::Output> {
    match Command::new("promtool").args(["test", "rules", "tests.yaml"]).current_dir(directory).output() {
        Ok(output) => Some(output),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "promtool: {error}");
            eprintln!("NOT RUN: promtool: {error}");
            None
        }
    }
}

fn rules(folder: &str) -> Value {
    super::kustomize::build(&super::deploy().join(folder)).only("PrometheusRule")["spec"].clone()
}

/// Runs the tests of `series` on the rules; returns promtool's output if they fail.
fn failure(rules: &Value, series: &str) -> Option<Option<String>> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("rules.yaml"), rules.to_string()).unwrap();
    std::fs::write(directory.path().join("tests.yaml"), series).unwrap();
    let output = promtool(directory.path())?;
    let said = || {
        [output.stdout.clone(), output.stderr.clone()].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    };
    Some((!output.status.success()).then(said))
}

#[test]
fn alerts_fire_for_what_they_name_and_for_nothing_else() {
    for (folder, series) in TESTS {
        match failure(&rules(folder), series) {
            None => return,
            Some(failed) => assert_eq!(failed, None, "{folder}"),
        }
    }
}

/// The difference of both times says nothing about how long the change has waited.
#[test]
fn an_alert_that_stays_silent_while_a_sync_hangs_is_noticed() {
    let (folder, series) = TESTS[0];
    let mut rules = rules(folder);
    let of_group = rules["groups"][0]["rules"].as_array_mut().unwrap();
    let late = of_group.iter_mut().find(|rule| rule["alert"] == "SvcproxySyncIsLate").unwrap();
    let [queued, synced] =
        ["queued_", ""].map(|part| format!("kubeproxy_sync_proxy_rules_last_{part}timestamp_seconds"));
    late["expr"] = format!("{queued} - {synced} > 60").into();
    if let Some(failed) = failure(&rules, series) {
        assert!(failed.unwrap().contains("SvcproxySyncIsLate, time: 5m"));
    }
}

#[test]
fn every_alert_has_series_with_and_without_it() {
    for (folder, series) in TESTS {
        let series: Value = serde_saphyr::from_str(series).unwrap();
        let tests = series["tests"].as_array().unwrap().iter();
        let expected: Vec<&Value> = tests.flat_map(|test| test["alert_rule_test"].as_array().unwrap()).collect();
        let named = |fires: bool| {
            let of = expected.iter().filter(|one| one["exp_alerts"].as_array().unwrap().is_empty() != fires);
            of.map(|one| one["alertname"].as_str().unwrap()).collect::<BTreeSet<_>>()
        };
        let rules = rules(folder);
        let alerts = rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
        let alerts: BTreeSet<&str> = alerts.map(|rule| rule["alert"].as_str().unwrap()).collect();
        assert_eq!((named(true), named(false)), (alerts.clone(), alerts), "{folder}");
    }
}
