//! Starts on a node that lacks something: descriptors, a configuration that is a file, commands that end.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

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

/// The program with this configuration file; its memory is too small for a file without end.
fn configured(file: &Path) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 4000000 && exec \"$0\" --config=\"$1\" --write-config-to=/dev/null"]);
    command.arg(env!("CARGO_BIN_EXE_svcproxy")).arg(file).output().unwrap()
}

#[test]
fn a_configuration_that_is_no_small_file_is_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let said = |file: &Path| {
        let output = configured(file);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
    std::fs::File::create(path("large")).unwrap().set_len((1 << 20) + 1).unwrap();
    for (file, cause) in [
        (path("fifo"), "it is no regular file"),
        ("/dev/zero".into(), "it is no regular file"),
        (directory.path().to_owned(), "it is no regular file"),
        (path("large"), "it has 1048577 bytes; 1048576 are allowed"),
    ] {
        let expected = format!("svcproxy: cannot read the configuration file {}: {cause}\n", file.display());
        assert_eq!(said(&file), expected);
    }
    // As the kubelet lays a ConfigMap out.
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    std::fs::create_dir(path("..1")).unwrap();
    std::fs::write(path("..1/config.conf"), text).unwrap();
    symlink("..1", path("..data")).unwrap();
    symlink("..data/config.conf", path("config.conf")).unwrap();
    assert!(configured(&path("config.conf")).status.success());
}
