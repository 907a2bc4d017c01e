//! Scenarios in a microVM: a seed always gives the same bytes, another seed other draws; failures inside end in time
//! with the console's last lines and leave nothing behind.
//!
//! Without cache and network there is no microVM, which fails in CI.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{eventually, finish};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use svclab::mode::Mode;

/// A scenario in which three hours pass.
const HOURS: &str = "tests/microvm-hours.yaml";
/// For several guests on a busy machine.
const LIMIT: Duration = Duration::from_secs(1200);

fn svclab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(args).stdin(Stdio::null()).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

fn stderr(output: &Output) -> String {
    crate::support::said(output)
}

/// Runs svclab; `None`: no package can be fetched, which fails in CI.
fn run(args: &[&str]) -> Option<Output> {
    let output = finish(svclab(args), LIMIT);
    let stderr = stderr(&output);
    if output.status.code() == Some(3) && stderr.contains("`--kernel host` needs no") {
        assert!(std::env::var_os("CI").is_none(), "{stderr}");
        eprintln!("no microVM here, so this test shows nothing: {stderr}");
        return None;
    }
    Some(output)
}

fn scenario(directory: &Path, command: &str) -> PathBuf {
    let path = directory.join("one.yaml");
    let text = format!(
        "name: one\nabout: One command.\nmodes: [iptables]\ncluster: {{nodes: 1}}\nsteps:\n- name: it\n  \
         exec: {{at: node/node-a, command: [sh, -c, {command:?}]}}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_seed_is_the_same_bytes_every_time_and_another_seed_draws_differently() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("first");
    let file = report.to_str().unwrap();
    let Some(output) = run(&["run", "tests/microvm.yaml", "--deterministic", "--seed", "1..4", "--json", file]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let scenarios = report["scenarios"].as_array().unwrap();
    let mut draws: Vec<&str> = scenarios.iter().map(|one| one["steps"][0]["summary"].as_str().unwrap()).collect();
    let mut times: Vec<String> = scenarios.iter().map(|one| one["seconds"].to_string()).collect();
    draws.sort_unstable();
    draws.dedup();
    times.sort_unstable();
    times.dedup();
    assert_eq!(times.len(), 3, "every seed has a course of its own: {report}");
    assert!(draws.len() > 1, "three seeds draw alike: {draws:?}");
    is_replayed(directory.path(), &scenarios[1]);
}

fn is_replayed(directory: &Path, scenario: &serde_json::Value) {
    let [alone, again] = ["alone", "replayed"].map(|name| directory.join(name).to_str().unwrap().to_owned());
    std::fs::write(&alone, serde_json::json!({ "scenarios": [scenario] }).to_string()).unwrap();
    let output = finish(svclab(&["replay", &alone, "--json", &again]), LIMIT);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let replayed: serde_json::Value = serde_json::from_slice(&std::fs::read(again).unwrap()).unwrap();
    assert_eq!(replayed["scenarios"].to_string(), serde_json::json!([scenario]).to_string());
}

#[test]
fn three_hours_of_virtual_time_take_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report");
    let file = report.to_str().unwrap();
    let Some(output) = run(&["run", HOURS, "--deadline", "1000", "--json", file]) else { return };
    let stderr = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("for microvm-hours needs virtual time"), "it is stderr why: {stderr}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert!(report["scenarios"][0]["seconds"].as_f64().unwrap() > 3.0 * 3600.0, "{report}");
    let output = finish(svclab(&["run", HOURS, "--kernel", "host"]), LIMIT);
    assert_eq!(output.status.code(), Some(2));
    assert!(self::stderr(&output).contains("microvm-hours needs virtual time"), "{}", self::stderr(&output));
}

#[test]
fn a_guest_that_fails_ends_with_status_3_and_its_last_lines() {
    let directory = tempfile::tempdir().unwrap();
    for (command, why) in [
        ("echo c > /proc/sysrq-trigger", "the microVM's kernel panicked: sysrq triggered crash"),
        ("mount -t tmpfs -o size=4g none /tmp && cat /dev/zero > /tmp/x", "the microVM ran out of memory"),
    ] {
        let path = scenario(directory.path(), command);
        let Some(output) = run(&["run", path.to_str().unwrap(), "--deterministic"]) else { return };
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{command}: {stderr}");
        assert!(stderr.contains(why) && stderr.contains("</TASK>"), "{command}: {stderr}");
    }
}

#[test]
fn a_guest_that_takes_too_long_is_ended() {
    let Some(output) = run(&["run", "tests/microvm.yaml", "--deterministic", "--deadline", "1"]) else { return };
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("did not come to its end within 1 s"), "{}", stderr(&output));
}

#[test]
fn nothing_is_left_of_a_killed_lab() {
    if run(&["kernels"]).is_none() {
        return;
    }
    let mut child = svclab(&["run", "tests/microvm.yaml", "--deterministic"]).stderr(Stdio::null()).spawn().unwrap();
    let lab = child.id();
    let mut qemu = None;
    let started = || {
        let threads = std::fs::read_dir(format!("/proc/{lab}/task")).into_iter().flatten().flatten();
        let children = threads.flat_map(|thread| std::fs::read_to_string(thread.path().join("children")));
        let children = children.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let is_qemu = |pid: &String| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.windows(6).any(|part| part == b"-icoun"))
        };
        children.into_iter().find(is_qemu)
    };
    // The first run fetches packages and builds the image.
    let end = std::time::Instant::now() + LIMIT;
    while qemu.is_none() && child.try_wait().unwrap().is_none() && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        qemu = started();
    }
    let Some(qemu) = qemu else {
        assert!(std::env::var_os("CI").is_none(), "QEMU was never seen");
        return;
    };
    kill(Pid::from_raw(lab as i32), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    eventually("QEMU is gone", || {
        // A zombie counts as ended: a container may have no process that collects it.
        std::fs::read_to_string(format!("/proc/{qemu}/stat")).map_or(true, |stat| stat.contains(") Z"))
    });
}

#[test]
fn a_missing_part_is_reported_in_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = svclab(&["run", "tests/microvm.yaml", "--deterministic"]);
    command.env("SVCLAB_CACHE", directory.path()).env("PATH", directory.path());
    let output = finish(command, LIMIT);
    assert_eq!(output.status.code(), Some(3));
    let stderr = stderr(&output);
    assert!(
        stderr.starts_with("svclab: cannot run apt-get") && stderr.contains("`--kernel host` needs none"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    for (flags, why) in [
        (&["--deterministic", "--kernel", "host"][..], "--deterministic needs a microVM"),
        (&["--kernel", "debian-5"][..], "expected auto, host, debian-6.1, debian-6.12"),
        (&["--seed", "1..3"][..], "--seed A..B is for"),
        (&["--seed", "3..1"][..], "B must be larger than A"),
    ] {
        let output = finish(svclab(&[&["run", "tests/microvm.yaml"], flags].concat()), LIMIT);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
}

#[test]
#[ignore = "nightly: boots four guests"]
fn every_kernel_runs_what_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let [json, junit] = ["json", "junit"].map(|name| directory.path().join(name));
    let flags = ["--json", json.to_str().unwrap(), "--junit", junit.to_str().unwrap()];
    let mut command =
        vec!["run", "tests/microvm.yaml", "../scenarios/sctp.yaml", "--kernel", "all", "--mode", "iptables"];
    command.extend(flags);
    let Some(output) = run(&command) else { return };
    let stderr = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let scenarios = report["scenarios"].as_array().unwrap();
    let ran = |kernel: &str| scenarios.iter().filter(|one| one["machine"]["kernel"] == kernel).count();
    assert_eq!([ran("debian-6.1"), ran("debian-6.12")], [2, 2], "{stderr}");
    assert_eq!(std::fs::read_to_string(junit).unwrap().matches("<testsuite ").count(), scenarios.len());
    assert!(
        stderr.lines().any(|line| line.starts_with("microvm (iptables)  ") && line.matches("passed").count() == 3),
        "{stderr}"
    );
}

#[test]
fn a_scenario_is_run_in_every_mode_and_so_is_its_replay() {
    let directory = tempfile::tempdir().unwrap();
    let [json, junit] = ["json", "junit"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
    let Some(output) = run(&["run", "../scenarios/hairpin.yaml", "--json", &json, "--junit", &junit]) else { return };
    let modes = |stderr: &str| stderr.lines().filter(|line| line.contains("hairpin (")).map(str::to_owned).collect();
    let first = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{first}");
    if first.contains("not run: ") {
        assert!(std::env::var_os("CI").is_none(), "{first}");
        eprintln!("no microVM here, so this test shows nothing: {first}");
        return;
    }
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let ran = report["scenarios"].as_array().unwrap().iter().map(|one| one["mode"].as_str().unwrap());
    let ran: Vec<&str> = ran.collect();
    let all: Vec<String> = Mode::ALL.iter().map(Mode::to_string).collect();
    assert!(all.iter().all(|mode| ran.contains(&mode.as_str())) && ran.len() == all.len(), "{ran:?}");
    assert_eq!(std::fs::read_to_string(junit).unwrap().matches("<testsuite ").count(), all.len());
    let line =
        |mode: &String| first.lines().any(|line| line.starts_with(mode.as_str()) && line.contains("  passed in "));
    assert!(all.iter().all(line), "{first}");
    let Some(output) = run(&["replay", &json]) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (before, after): (Vec<String>, Vec<String>) = (modes(&first), modes(&stderr(&output)));
    assert_eq!(before, after, "every mode again, and no other");
}
