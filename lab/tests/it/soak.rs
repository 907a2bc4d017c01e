//! Short runs of `svclab soak`, with a correct proxy and with wrong ones.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn soak(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.arg("soak").args(args).stdin(Stdio::null());
    crate::support::finish(command, Duration::from_secs(100))
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn unable(output: &Output) -> bool {
    let unable = output.status.code() == Some(3);
    assert!(!(unable && std::env::var_os("CI").is_some()), "{}", out(output));
    unable
}

#[test]
fn hundreds_of_changes_leave_nothing_behind() {
    leave_nothing_behind("iptables");
}

#[test]
fn hundreds_of_changes_leave_nothing_behind_in_nftables_mode() {
    leave_nothing_behind("nftables");
}

fn leave_nothing_behind(mode: &str) {
    let output = soak(&["--mode", mode, "--minutes", "0.15", "--changes", "600", "--seed", "4"]);
    if unable(&output) {
        return;
    }
    let stderr = out(&output);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let rows = stderr.lines().filter(|line| line.contains(" s ") && line.matches('|').count() == 3).count();
    assert_eq!(rows, 10, "a row for each tenth:\n{stderr}");
    // The last column of each node is its processor time per change.
    assert_eq!(stderr.lines().next().map(|head| head.matches("ms/change |").count()), Some(2), "{stderr}");
    let nodes = stderr.lines().filter(|line| line.contains(" s ")).flat_map(|line| line.split('|').skip(1).take(2));
    let spent: Vec<f64> = nodes.filter_map(|node| node.split_whitespace().last()?.parse().ok()).collect();
    assert!(spent.len() == 20 && spent.iter().all(|millis| *millis > 0.0), "{stderr}");
    assert!(stderr.contains("all passed") && stderr.lines().any(|line| line.contains(" 600 |")), "{stderr}");
}

#[test]
fn an_extra_rule_is_found() {
    let damage = "iptables -t nat -A KUBE-SERVICES -d 10.96.0.77 -j RETURN";
    let output = soak(&["--minutes", "0.02", "--changes", "20", "--seed", "4", "--break", damage]);
    if unable(&output) {
        return;
    }
    let stderr = out(&output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("FAILED node-a: IPv4 nat KUBE-SERVICES differs; too much: -d 10.96.0.77/32"), "{stderr}");
    assert!(stderr.contains("svclab soak --minutes 0.02 --changes 20 --seed 4"), "{stderr}");
}

#[test]
fn an_extra_chain_and_an_extra_element_are_found_in_nftables_mode() {
    let damage = "nft add chain ip kube-proxy tcp-77; nft add element ip kube-proxy cluster-ips '{ 10.96.0.77 }'";
    let output =
        soak(&["--mode", "nftables", "--minutes", "0.02", "--changes", "20", "--seed", "4", "--break", damage]);
    if unable(&output) {
        return;
    }
    let stderr = out(&output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for says in
        ["ip kube-proxy chain tcp-77 would not be there", "ip kube-proxy set cluster-ips differs; too much: 10.96.0.77"]
    {
        assert!(stderr.contains(says), "{says}: {stderr}");
    }
}

#[test]
fn a_proxy_that_complains_is_found() {
    // The shell prints a warning once the clock runs, and lives as long as the proxy.
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("proxy");
    let beside = std::path::Path::new(env!("CARGO_BIN_EXE_svclab")).with_file_name("svcproxy");
    let proxy = std::env::var("SVCPROXY").unwrap_or_else(|_| beside.display().to_string());
    let text = format!(
        "#!/bin/sh\n[ \"$1\" != --cleanup ] || exec {proxy} \"$@\"\n\
         (while :; do echo 2026-01-01T00:00:00Z WARN 'something is wrong'; sleep 0.1; done) &\nexec {proxy} \"$@\"\n"
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = soak(&["--minutes", "0.02", "--changes", "20", "--proxy", script.to_str().unwrap()]);
    if unable(&output) {
        return;
    }
    let stderr = out(&output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("complaints in the log: 2026-01-01T00:00:00Z WARN something is wrong"), "{stderr}");
}

#[test]
fn wrong_usage_says_what_is_expected() {
    let output = soak(&["--minutes", "0"]);
    assert_eq!(output.status.code(), Some(2), "{}", out(&output));
    assert!(out(&output).contains("expected a number of minutes"), "{}", out(&output));
}
