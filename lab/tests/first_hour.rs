//! What somebody meets in the first hour with `svclab`, without a checkout.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::finish;

const LIMIT: Duration = Duration::from_secs(100);

/// Runs `svclab` in `folder`.
fn svclab(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(args).stdin(Stdio::null()).current_dir(folder);
    finish(command, LIMIT)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails with everything that was said unless the status is `status`.
#[track_caller]
fn ended(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{}\n{}", out(output), err(output));
}

#[test]
fn scenarios_are_found_in_any_folder_and_a_report_is_all_that_a_replay_needs() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let listed = svclab(here, &["list"]);
    ended(&listed, 0);
    for name in support::runs::names() {
        assert!(out(&listed).lines().any(|line| line.starts_with(&format!("{name} "))), "{name} is not listed");
    }
    let checked = svclab(here, &["check", "microvm/sctp"]);
    assert!(checked.status.success() && out(&checked).starts_with("sctp ("), "{}", err(&checked));
    let simulated = ["--simulate", "--mode", "iptables", "--json"];
    let run = |args: &[&str], report: &str| svclab(here, &[&["run"], args, &simulated[..], &[report]].concat());
    ended(&run(&["hairpin"], "carried.json"), 0);
    // The line that repeats a run names the file as the program carries it.
    ended(&run(&["scenarios/hairpin.yaml"], "-"), 0);

    // A folder of one's own goes first, and so does what stands beside a scenario.
    let own = here.join("scenarios");
    std::fs::create_dir(&own).unwrap();
    let text = std::fs::read_to_string(support::runs::folder().join("hairpin.yaml")).unwrap();
    let (head, rest) = text.split_once("manifests: |\n").unwrap();
    let (manifests, steps) = rest.split_once("\nsteps:").unwrap();
    let manifests: String = manifests.lines().map(|line| format!("{}\n", line.get(2..).unwrap_or(""))).collect();
    std::fs::write(own.join("objects.yaml"), manifests).unwrap();
    let head = head.replace("\nabout: ", "\nabout: My own; ");
    std::fs::write(own.join("hairpin.yaml"), format!("{head}manifests: [objects.yaml]\n\nsteps:{steps}")).unwrap();
    ended(&run(&["hairpin"], "own.json"), 0);
    let report = |name: &str| -> Value { serde_json::from_slice(&std::fs::read(here.join(name)).unwrap()).unwrap() };
    assert!(report("own.json")["scenarios"][0]["about"].as_str().unwrap().starts_with("My own; "));
    assert!(out(&svclab(here, &["list"])).contains("My own; "));

    // Without the folder the report still has it all, and the repeated run says the same.
    std::fs::remove_dir_all(&own).unwrap();
    ended(&svclab(here, &["replay", "own.json", "--json", "again.json"]), 0);
    assert_eq!(report("own.json"), report("again.json"));
    let unknown = run(&["no-such"], "none.json");
    assert!(unknown.status.code() == Some(2) && err(&unknown).contains("svclab list"), "{}", err(&unknown));
}

#[test]
fn a_description_of_a_proxy_is_found_in_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let output = svclab(folder.path(), &["run", "hairpin", "--proxy", "kube-proxy.yaml", "--mode", "userspace"]);
    // It is read: either kube-proxy is not on this machine, or it has no such mode.
    assert!([2, 3].contains(&output.status.code().unwrap()), "{}", err(&output));
    assert!(
        ["there is no program", "has no userspace mode"].iter().any(|says| err(&output).contains(says)),
        "{}",
        err(&output)
    );
    let none = svclab(folder.path(), &["run", "hairpin", "--proxy", "other-proxy.yaml"]);
    assert!(none.status.code() == Some(2) && err(&none).contains("other-proxy.yaml: "), "{}", err(&none));
}
