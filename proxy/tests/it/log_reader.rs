//! With a stalled or closed reader of standard error, or a full disk, rules follow the cluster, and SIGTERM ends the
//! program.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Proxy, every_kind, http_get, inside, shell, wait_for};

/// Faulty manifests, and faults per manifest: a log line each, several MiB together.
const FAULTY: (usize, usize) = (60, 100);

fn modes() -> Vec<&'static str> {
    let ipvs = Path::new("/proc/net/ip_vs").exists().then_some("ipvs");
    ["iptables", "nftables", "userspace"].into_iter().chain(ipvs).collect()
}

fn put(directory: &Path, name: &str, text: &str) {
    let partial = directory.join(".partial");
    std::fs::write(&partial, text).unwrap();
    std::fs::rename(partial, directory.join(name)).unwrap();
}

fn faulty(faults: usize) -> String {
    (0..faults).fold(String::new(), |mut text, index| {
        let metadata = format!("{{name: x{index:062}, namespace: {:063}}}", 0);
        let spec = format!("{{clusterIP: \"{}\", ports: [{{port: 80}}]}}", "no address ".repeat(20));
        let _ = writeln!(text, "---\napiVersion: v1\nkind: Service\nmetadata: {metadata}\nspec: {spec}");
        text
    })
}

fn start(mode: &str, manifests: &Path, stderr: Stdio) -> Proxy {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svcproxy"));
    command.args(["--proxy-mode", mode, "--hostname-override=node-a", "--iptables-min-sync-period=10ms"]);
    command.args(["--healthz-bind-address=127.0.0.1:10256", "--manifests"]).arg(manifests);
    Proxy(command.env_remove("RUST_LOG").stderr(stderr).spawn().unwrap())
}

fn change(proxy: &Proxy, manifests: &Path, version: u32) {
    put(manifests, "cluster.json", &every_kind(version, &[2, 100 + u8::try_from(version).unwrap()]));
    proxy.synced(Some(&version.to_string()));
}

fn dropped() -> u64 {
    let text = http_get("127.0.0.1:10249", "/metrics").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("svcproxy_log_lines_dropped_total "));
    line.unwrap().parse().unwrap()
}

fn ends(mut proxy: Proxy) {
    kill(Pid::from_raw(proxy.0.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let status = wait_for("the end", || proxy.0.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

#[test]
fn a_stalled_or_dead_log_reader_delays_nothing() {
    if !inside!() {
        return;
    }
    for mode in modes() {
        let directory = tempfile::tempdir_in("/run").unwrap();
        let manifests = directory.path();
        for file in 0..FAULTY.0 {
            put(manifests, &format!("{file}.yaml"), &faulty(FAULTY.1));
        }
        let (reader, writer) = std::io::pipe().unwrap();
        let proxy = start(mode, manifests, writer.into());
        change(&proxy, manifests, 1);
        change(&proxy, manifests, 2);
        let missing = dropped();
        assert!(missing > 0, "{mode}: all lines were taken");
        // When the reader continues it gets the waiting lines, and then the number of dropped ones.
        let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
        let notice = lines.find(|line| line.contains("log lines are missing")).unwrap();
        let told = notice.split_once("dropped=").and_then(|(_, number)| number.parse::<u64>().ok());
        assert!(notice.contains("WARN") && told >= Some(missing), "{missing}: {notice}");
        drop(lines);
        change(&proxy, manifests, 3);
        ends(proxy);

        let (reader, writer) = std::io::pipe().unwrap();
        let proxy = start(mode, manifests, writer.into());
        change(&proxy, manifests, 4);
        ends(proxy);
        drop(reader);
    }
}

#[test]
fn a_full_disk_under_the_log_stops_nothing() {
    if !inside!() {
        return;
    }
    shell("mkdir /run/log && mount -t tmpfs -o size=64k none /run/log");
    for mode in modes() {
        let directory = tempfile::tempdir_in("/run").unwrap();
        let log = std::fs::File::options().create(true).append(true).open("/run/log/svcproxy.log").unwrap();
        shell("cat /dev/zero >/run/log/filler 2>/dev/null || true");
        let proxy = start(mode, directory.path(), log.into());
        change(&proxy, directory.path(), 1);
        change(&proxy, directory.path(), 2);
        assert!(dropped() > 0, "{mode}: there was room for the log");
        std::fs::remove_file("/run/log/filler").unwrap();
        put(directory.path(), "faulty.yaml", &faulty(1));
        wait_for("the number of missing lines", || {
            let text = std::fs::read("/run/log/svcproxy.log").unwrap();
            String::from_utf8_lossy(&text).contains("log lines are missing").then_some(())
        });
        ends(proxy);
        std::fs::remove_file("/run/log/svcproxy.log").unwrap();
    }
}

#[test]
fn a_log_file_at_the_limit_of_its_size_stops_nothing() {
    if !inside!() {
        return;
    }
    for mode in modes() {
        let directory = tempfile::tempdir_in("/run").unwrap();
        put(directory.path(), "faulty.yaml", &faulty(FAULTY.1));
        let log = std::fs::File::create("/run/svcproxy.log").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 4 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_svcproxy"), "--proxy-mode", mode]);
        command.args(["--hostname-override=node-a", "--healthz-bind-address=127.0.0.1:10256", "--manifests"]);
        let proxy = Proxy(command.arg(directory.path()).env_remove("RUST_LOG").stderr(log).spawn().unwrap());
        change(&proxy, directory.path(), 1);
        change(&proxy, directory.path(), 2);
        wait_for("lines without room", || (dropped() > 0).then_some(()));
        ends(proxy);
    }
}
