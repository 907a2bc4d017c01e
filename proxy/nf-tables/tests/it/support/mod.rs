//! A network namespace of its own for a test, without root: the test runs itself again inside.

use std::io::Write as _;
use std::process::{Command, Stdio};

use nf_tables::{CommitError, Family, Rule, Socket, Table};

/// Set in the copy of the test that runs inside.
const INSIDE: &str = "NF_TABLES_TEST_INSIDE";

/// Runs the test that it stands in again in new user, network and mount namespaces. Returns true inside, and false outside
/// once the inside has succeeded.
///
/// Where this machine refuses such namespaces the test fails if `CI` is set, and prints that it did not run otherwise.
macro_rules! inside {
    () => {
        $crate::support::run_inside($crate::support::this_test!())
    };
}
pub(crate) use inside;

/// The name that the test runner has for the test that it stands in.
macro_rules! this_test {
    () => {{
        fn here() {}
        std::any::type_name_of_val(&here).trim_start_matches("it::").trim_end_matches("::here")
    }};
}
pub(crate) use this_test;

/// What [`inside!`] does.
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

/// Runs a line of shell and returns what it printed.
pub fn shell(line: &str) -> String {
    fed(line, "")
}

/// As [`shell`], with this as its input.
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

/// The table of a test.
pub const TABLE: Table<'static> = Table { family: Family::Ipv4, name: "t" };

/// A rule that is known by its comment.
pub fn named(comment: &str) -> Rule {
    let mut rule = Rule::new();
    rule.counter().set_comment(comment);
    rule
}

/// What was refused: operations and error numbers.
pub fn refused(error: &CommitError) -> Vec<(u32, i32)> {
    match error {
        CommitError::Refused(refusals) => {
            refusals.iter().map(|refusal| (refusal.operation.0, refusal.error.raw_os_error().unwrap())).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Handles and comments of a chain's rules.
pub fn comments(socket: &mut Socket, chain: &str) -> Vec<(u64, String)> {
    let rules = socket.rules(TABLE, chain).unwrap();
    rules.map(|rule| (rule.handle, rule.comment().unwrap_or_default().to_owned())).collect()
}
