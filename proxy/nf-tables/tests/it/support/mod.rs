//! Runs a test again in a network namespace of its own, without root.

use std::io::Write as _;
use std::process::{Command, Stdio};

use nf_tables::{CommitError, Family, NfSocket, Rule, Table};

/// Set in the process inside the namespaces.
const INSIDE: &str = "NF_TABLES_TEST_INSIDE";

/// Runs the enclosing test again in new user, network and mount namespaces. Returns true inside, and false outside once
/// the inner run has succeeded.
///
/// If the machine refuses namespaces, the test fails with `CI` set, and otherwise prints that it did not run.
macro_rules! inside {
    () => {
        $crate::support::run_inside($crate::support::this_test!())
    };
}
pub(crate) use inside;

macro_rules! this_test {
    () => {{
        fn here() {}
        std::any::type_name_of_val(&here).trim_start_matches("it::").trim_end_matches("::here")
    }};
}
pub(crate) use this_test;

pub fn run_inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        shell("mount -t tmpfs none /run");
        return true;
    }
    for (probe, why) in [
        ("unshare -Urnm true", "this machine refuses user and network namespaces"),
        ("command -v iptables-nft-save", "the package iptables is not installed"),
        ("command -v ipset", "the package ipset is not installed"),
    ] {
        if !Command::new("sh").args(["-c", probe]).output().is_ok_and(|output| output.status.success()) {
            assert!(std::env::var_os("CI").is_none(), "{why}");
            eprintln!("NOT RUN: {why}");
            return false;
        }
    }
    let mut command = Command::new("unshare");
    command.args(["-Urnmpf", "--kill-child", "--mount-proc"]).arg(std::env::current_exe().unwrap());
    let status = command.args(["--exact", name, "--nocapture"]).env(INSIDE, "1").status().unwrap();
    assert!(status.success(), "{name} failed inside its namespaces");
    false
}

pub fn shell(line: &str) -> String {
    fed(line, "")
}

/// Runs a command like [`shell`], with this input.
pub fn fed(line: &str, input: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let _ = writer.join();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub const TABLE: Table<'static> = Table { family: Family::Ipv4, name: "t" };

pub fn named(comment: &str) -> Rule {
    let mut rule = Rule::new();
    rule.counter().set_comment(comment);
    rule
}

pub fn refused(error: &CommitError) -> Vec<(u32, i32)> {
    match error {
        CommitError::Refused(refusals) => {
            refusals.iter().map(|refusal| (refusal.operation.0, refusal.error.raw_os_error().unwrap())).collect()
        }
        other => panic!("{other:?}"),
    }
}

pub fn comments(socket: &mut NfSocket, chain: &str) -> Vec<(u64, String)> {
    let rules = socket.rules(TABLE, chain).unwrap();
    rules.map(|rule| (rule.handle, rule.comment().unwrap_or_default().to_owned())).collect()
}
