//! Starts on a node that lacks something: descriptors, a configuration that is a file, commands that end.

use std::process::{Command};

use crate::support::{Proxy, every_kind, http_get, inside, wait_for};

/// Runs the program within this many descriptors, soft and hard.
fn limited(limit: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_svcproxy")]).args(arguments);
    command.env_remove("RUST_LOG").env("RUST_BACKTRACE", "1");
    command
}

#[test]
fn any_limit_of_descriptors_ends_in_a_sentence_or_runs() {
    if !inside!() {
        return;
    }
    let directory = tempfile::tempdir_in("/run").unwrap();
    let (manifests, log) = (directory.path().join("manifests"), directory.path().join("log"));
    std::fs::create_dir(&manifests).unwrap();
    std::fs::write(manifests.join("cluster.json"), every_kind(1, &[2, 3])).unwrap();
    let manifests = manifests.to_str().unwrap();
    let modes = [
        ["--proxy-mode=iptables", "--iptables-writer=commands"],
        ["--proxy-mode=iptables", "--iptables-writer=netlink"],
        ["--proxy-mode=nftables", "--nftables-flowtable"],
        ["--proxy-mode=userspace", "--iptables-writer=auto"],
    ];
    let mut ran = Vec::new();
    for (limit, mode) in (1..=64).zip(modes.into_iter().cycle()) {
        let flags = ["--hostname-override=node-a", "--healthz-bind-address=127.0.0.1:10256", "--manifests", manifests];
        let mut command = limited(limit, &[&flags, &mode[..]].concat());
        let mut proxy = Proxy(command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap());
        let status = wait_for("an end, or rules", || match proxy.0.try_wait().unwrap() {
            Some(status) => Some(Some(status)),
            None => http_get("127.0.0.1:10256", "/healthz")?.starts_with("HTTP/1.1 200").then_some(None),
        });
        let said = std::fs::read_to_string(&log).unwrap();
        assert!(!said.contains("panicked"), "{limit} {mode:?}: {said}");
        match status {
            None => ran.push(limit),
            // The system's loader, or the shell, has no descriptor.
            Some(status) if limit < 4 => assert!(!status.success(), "{said}"),
            Some(status) => {
                assert_eq!(status.code(), Some(1), "{limit} {mode:?}: {said}");
                let last = said.lines().last().unwrap_or_default();
                assert!(last.starts_with(&format!("svcproxy: cannot run within {limit} file descr")), "{said}");
            }
        }
    }
    assert!(ran.len() > 2 * modes.len() && ran == (ran[0]..=64).collect::<Vec<_>>(), "{ran:?}");
    for limit in 1..=16 {
        for arguments in [&["--cleanup"][..], &["render", "--manifests", manifests, "--hostname-override=node-a"]] {
            let said = String::from_utf8(limited(limit, arguments).output().unwrap().stderr).unwrap();
            assert!(!said.contains("panicked"), "{limit} {arguments:?}: {said}");
        }
    }
}
