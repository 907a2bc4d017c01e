//! Starts with few descriptors, a configuration that is not a regular file, hung commands.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use crate::support::{Proxy, every_kind, http_get, inside, shell, wait_for};

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
            // The loader or the shell runs out of descriptors.
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

/// Runs with too little memory for an endless file.
fn configured(file: &Path) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 4000000 && exec \"$0\" --config=\"$1\" --write-config-to=/dev/null"]);
    command.arg(env!("CARGO_BIN_EXE_svcproxy")).arg(file).output().unwrap()
}

#[test]
fn a_configuration_that_is_not_a_small_regular_file_is_refused() {
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
    // A mounted ConfigMap consists of symbolic links.
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    std::fs::create_dir(path("..1")).unwrap();
    std::fs::write(path("..1/config.conf"), text).unwrap();
    symlink("..1", path("..data")).unwrap();
    symlink("..data/config.conf", path("config.conf")).unwrap();
    assert!(configured(&path("config.conf")).status.success());
}

/// Returns a command that hangs until `go` exists, in a child whose process id it writes to `pids`.
fn hanging_save(directory: &Path) -> String {
    let real = shell("command -v iptables-save");
    let script = format!(
        "#!/bin/sh\n[ -e {0}/go ] && exec {1} \"$@\"\nsleep 1000 &\necho $! >>{0}/pids\nwait\n",
        directory.display(),
        real.trim()
    );
    std::fs::create_dir(directory.join("bin")).unwrap();
    std::fs::write(directory.join("bin/iptables-save"), script).unwrap();
    shell(&format!("chmod 755 {}/bin/iptables-save", directory.display()));
    format!("{}/bin:{}", directory.display(), std::env::var("PATH").unwrap())
}

#[test]
fn a_hung_command_at_the_start_blocks_no_port_and_leaves_no_process() {
    if !inside!() {
        return;
    }
    for mode in ["iptables", "userspace"] {
        let directory = tempfile::tempdir_in("/run").unwrap();
        let path = hanging_save(directory.path());
        let manifests = directory.path().join("manifests");
        std::fs::create_dir(&manifests).unwrap();
        std::fs::write(manifests.join("cluster.json"), every_kind(1, &[2, 3])).unwrap();
        let flags = ["--proxy-mode", mode, "--iptables-writer=commands", "--hostname-override=node-a", "--manifests"];
        let flags = [&flags[..], &[manifests.to_str().unwrap()]].concat();
        let mut proxy = Proxy::with_path(&path, &flags);
        let hanging = wait_for("the command", || {
            std::fs::read_to_string(directory.path().join("pids")).ok().filter(|pids| pids.ends_with('\n'))
        });
        let answer = |port, path| wait_for(path, || http_get(&format!("127.0.0.1:{port}"), path));
        let livez = answer(10256, "/livez");
        assert!(livez.starts_with("HTTP/1.1 200"), "{livez}");
        assert!(answer(10256, "/healthz").starts_with("HTTP/1.1 503"), "there are no rules yet");
        assert!(answer(10249, "/metrics").contains("svcproxy_log_lines_dropped_total 0"));
        kill(Pid::from_raw(proxy.0.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        let status = wait_for("the end", || proxy.0.try_wait().unwrap());
        assert!(status.success(), "{status}");
        for pid in hanging.lines() {
            wait_for("the end of the command's child", || {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                (stat.is_empty() || stat.contains(") Z ")).then_some(())
            });
        }
        std::fs::write(directory.path().join("go"), "").unwrap();
        Proxy::with_path(&path, &flags).synced(Some("1"));
    }
}

#[test]
fn a_foreign_holder_of_the_lock_does_not_stop_the_proxy() {
    if !inside!() {
        return;
    }
    let address = std::os::unix::net::SocketAddr::from_abstract_name("svcproxy").unwrap();
    let _squatter = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let directory = tempfile::tempdir_in("/run").unwrap();
    let log = directory.path().join("log");
    std::fs::write(directory.path().join("cluster.json"), every_kind(1, &[2, 3])).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_svcproxy"));
    command.args(["--hostname-override=node-a", "--healthz-bind-address=127.0.0.1:10256", "--manifests"]);
    let stderr = Stdio::from(std::fs::File::create(&log).unwrap());
    let proxy = Proxy(command.arg(directory.path()).stderr(stderr).spawn().unwrap());
    proxy.synced(Some("1"));
    let said = std::fs::read_to_string(&log).unwrap();
    let warned = format!("process {}, which does not answer as svcproxy, has the socket @svcproxy", std::process::id());
    assert!(said.lines().any(|line| line.contains("WARN") && line.contains(&warned)), "{said}");
}
