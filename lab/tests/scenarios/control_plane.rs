//! Scenarios on a real control plane, if `$KUBEBUILDER_ASSETS` names a folder with its programs.

use std::path::PathBuf;

use crate::support::command::{ended, err, svclab};
use crate::support::runs::run;
use libtest_mimic::{Completion, Failed, Trial};
use svclab_control_plane::Programs;

pub fn trials() -> Vec<Trial> {
    // Traffic through every frontend, every API fault, an API outage, hostile answers, split slices.
    let scenarios =
        ["hairpin", "api-faults", "api-outage", "hostile-api", "endpoint-slices", "terminating", "dual-stack"];
    let judged = scenarios
        .into_iter()
        .map(|name| Trial::ignorable_test(format!("control_plane::{name}"), move || with_programs(|| kept(name))));
    let refused =
        Trial::ignorable_test("control_plane::what_no_api_server_takes_is_not_judged", || with_programs(not_judged));
    let mistakes = Trial::test("control_plane::without_programs_a_sentence_says_what_is_missing", || {
        mistakes();
        Ok(())
    });
    judged.chain([refused, mistakes]).collect()
}

fn with_programs(case: impl FnOnce() -> Result<Completion, Failed>) -> Result<Completion, Failed> {
    let folder = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    match folder.and_then(|folder| Programs::find(&folder).ok()) {
        Some(_) => case(),
        None => Ok(Completion::ignored_with("$KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")),
    }
}

const FLAGS: [&str; 3] = ["--control-plane", "--mode", "iptables"];

fn kept(name: &str) -> Result<Completion, Failed> {
    let run = run(name, &FLAGS);
    match run.status {
        0 if run.scenario["passed"] == true && run.scenario["controlPlane"]["version"].is_string() => {
            Ok(Completion::Completed)
        }
        3 => crate::support::unable(&run.stderr),
        status => Err(format!("exit status {status}\n{}", run.stderr).into()),
    }
}

/// Runs a scenario that is not judged: its manifests set creation times, which only a server can set.
fn not_judged() -> Result<Completion, Failed> {
    let run = run("claimed-address", &FLAGS);
    let why = run.scenario["steps"][0]["why"].as_str().unwrap_or_default();
    match run.status {
        3 if why.contains("an API server sets creationTimestamp itself") => Ok(Completion::Completed),
        3 if run.scenario["unable"] == true => crate::support::unable(&run.stderr),
        status => Err(format!("exit status {status}, {why:?}\n{}", run.stderr).into()),
    }
}

fn mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = folder.path().display().to_string();
    for (args, says) in [
        (
            vec!["run", "hairpin", "--control-plane", &in_folder],
            "has no kube-apiserver: a control plane needs etcd and kube-apiserver",
        ),
        (vec!["run", "hairpin", "--control-plane", &in_folder, "--simulate"], "cannot be used with"),
        (
            vec!["run", "hairpin", "--control-plane", &in_folder, "--source", "manifests"],
            "leave out --source manifests",
        ),
    ] {
        let output = svclab(folder.path(), &args);
        ended(&output, 2);
        assert!(err(&output).contains(says), "{args:?}: {}", err(&output));
    }
}
