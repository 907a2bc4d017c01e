use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::clusters::{Families, in_pod, node, run, spec};
use crate::support::{SandboxCase, case};
use crate::support::{eventually, finish, inside_command};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use svclab_cluster::Cluster;
use svclab_cluster::process::ProcessSpec;
use svclab_cluster::traffic::probe::ClusterHost;
use svclab_netns::{enter, sandbox};
use svclab_spec::Cni;

/// The variable that marks this test's processes.
const TOKEN: &str = "SVCLAB_TEST_TOKEN";

pub const CASES: &[SandboxCase] = &[
    case!(Outside a_killed_sandbox_leaves_nothing),
    case!(Outside the_sandbox_forwards_signals_and_exit_status),
    case!(Outside a_running_lab_can_be_entered),
    case!(Outside a_reached_limit_is_reported),
    case!(Outside root_needs_no_user_namespaces),
    case!(Inside programs_cannot_write_settings_of_the_machine),
    case!(Helper hold),
    case!(Helper exit_7_on_sigterm),
    case!(Helper build_one),
];

/// A helper: waits in a cluster with a program on each node.
async fn hold() {
    let cluster = Cluster::build(&spec(Cni::Bridge, Families::Dual, 3, 10)).await.unwrap();
    let sleep = ProcessSpec { program: "sleep".into(), args: vec!["600".into()], env: vec![] };
    let mut handles = Vec::new();
    for name in ["a", "b", "c"] {
        handles.push(cluster.spawn_on_node(name, sleep.clone()).await.unwrap());
    }
    fs::write(Path::new(sandbox::WORK_DIR).join("file"), "x").unwrap();
    println!("READY {}", cluster.enter_line(&node("a")).unwrap());
    std::future::pending().await
}

async fn exit_7_on_sigterm() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).unwrap();
    println!("READY");
    term.recv().await;
    std::process::exit(7);
}

/// Returns the helper's first line without `READY`; `None` if this machine cannot run it.
fn start(helper: &str) -> Option<(Child, String, String)> {
    // Distinguishes starts, as tests may share a process.
    static STARTS: AtomicU32 = AtomicU32::new(0);
    let token = format!("{helper}-{}-{}", std::process::id(), STARTS.fetch_add(1, Ordering::Relaxed));
    let mut command = inside_command(helper);
    let mut child = command.env(TOKEN, &token).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let status = child.wait().unwrap();
        assert!(status.code() == Some(3) && std::env::var_os("CI").is_none(), "{helper}: {status}");
        println!("SKIPPED, this machine cannot run it");
        return None;
    }
    Some((child, token, line.trim_start_matches("READY").trim().to_owned()))
}

/// Returns the processes with the token, without zombies.
fn holders(token: &str) -> BTreeSet<String> {
    let wanted = format!("{TOKEN}={token}");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter(|entry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    });
    pids.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Lists everything that a run could leave on the host.
fn host_state() -> (String, BTreeSet<String>, BTreeSet<String>) {
    let names = |dir: &str| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().to_string_lossy().into_owned()).collect::<BTreeSet<_>>()
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours = |path: &String| path.contains("svclab") || path.contains("netns");
    let files = ["/run", "/run/netns", "/tmp", "/var/run"].map(names).into_iter().flatten();
    (mounts, names("/sys/class/net"), files.filter(ours).collect())
}

fn a_killed_sandbox_leaves_nothing() {
    let before = host_state();
    // Kills the outer process, then the first inner process.
    for inner in [false, true] {
        let Some((mut child, token, _)) = start("hold") else { return };
        // The environment of a program that has just been started may still read as empty.
        eventually("there are outer, inner, and one program per node", || holders(&token).len() == 5);
        assert_eq!(host_state(), before, "a run is invisible outside");
        let outer = Pid::from_raw(child.id() as i32);
        let first = enter::running().into_iter().find(|r| holders(&token).contains(&r.pid.to_string()));
        let target = if inner { Pid::from_raw(first.unwrap().pid) } else { outer };
        kill(target, Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        eventually("all processes are gone", || holders(&token).is_empty());
        assert_eq!(host_state(), before);
    }
}

fn the_sandbox_forwards_signals_and_exit_status() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let Some((mut child, token, _)) = start("exit_7_on_sigterm") else { return };
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let status = child.wait().unwrap();
        if signal == Signal::SIGTERM {
            assert_eq!(status.code(), Some(7));
        }
        eventually("all processes are gone", || holders(&token).is_empty());
    }
}

fn a_running_lab_can_be_entered() {
    let Some((mut child, token, line)) = start("hold") else { return };
    let mut nsenter = Command::new("sh");
    nsenter.args(["-c", &format!("{line} sh -c 'hostname; ls /sys/class/net'")]);
    let output = finish(nsenter, Duration::from_secs(20));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("a\n") && text.contains("cni0"), "{line}: {output:?}");

    let mut ours = Command::new(std::env::current_exe().unwrap());
    ours.args(["--enter", "pod/default/p0"]).env("WANTED", &token);
    let output = finish(ours, Duration::from_secs(20));
    assert!(String::from_utf8_lossy(&output.stdout).contains("10.244.1.10/24"), "{output:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("all processes are gone", || holders(&token).is_empty());
}

/// Enters a host's namespaces like `svclab exec`.
pub fn enter_place(place: &str) {
    let token = std::env::var("WANTED").unwrap();
    let found = enter::running()
        .into_iter()
        .find(|running| running.place == place && holders(&token).contains(&running.pid.to_string()));
    let argv = ["ip", "-o", "addr"].map(str::to_owned);
    assert!(enter::exec(&found.unwrap(), &argv, &[]).unwrap().success());
}

async fn build_one() {
    let cluster = Cluster::build(&spec(Cni::Bridge, Families::V4, 1, 1)).await.unwrap();
    run(&cluster, node("a"), "iptables -t nat -N HERE").await;
}

/// Runs a helper in a user namespace in which `limit` is 0; `None` if this machine cannot.
fn limited(limit: &str, helper: &str) -> Option<Output> {
    let inner = inside_command(helper);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", &format!("echo 0 >/proc/sys/user/{limit} && exec \"$@\"")]);
    command.arg("sh").arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = finish(command, Duration::from_secs(20));
    let unable = String::from_utf8_lossy(&output.stderr).starts_with("unshare:");
    assert!(!unable || std::env::var_os("CI").is_none(), "{output:?}");
    if unable {
        println!("SKIPPED, this machine cannot run it");
    }
    (!unable).then_some(output)
}

fn root_needs_no_user_namespaces() {
    let Some(output) = limited("max_user_namespaces", "build_one") else { return };
    assert!(output.status.success(), "{output:?}");
}

/// Writes the current values, so that a broken sandbox changes nothing.
async fn programs_cannot_write_settings_of_the_machine() {
    let cluster = Cluster::build(&spec(Cni::Bridge, Families::V4, 1, 1)).await.unwrap();
    let is_root = !sandbox::lacks_root();
    for place in [node("a"), in_pod("p0")] {
        shell(&cluster, &place, "echo 63 >/proc/sys/net/ipv4/ip_default_ttl").await;
        shell(&cluster, &place, "test $(cat /proc/sys/net/ipv4/ip_default_ttl) = 63").await;
        for setting in [
            "/proc/sys/vm/swappiness",
            "/proc/sys/kernel/panic",
            "/proc/sys/net/core/wmem_max",
            "/proc/sys/net/netfilter/nf_conntrack_max",
            "/sys/module/nf_conntrack/parameters/hashsize",
        ] {
            shell(
                &cluster,
                &place,
                &format!("v=$(cat {setting} 2>/dev/null || true); ! (echo $v >{setting}) 2>/dev/null"),
            )
            .await;
        }
        if is_root {
            let setting = "/proc/sys/user/max_net_namespaces";
            shell(
                &cluster,
                &place,
                &format!("v=$(cat {setting} 2>/dev/null || true); ! (echo $v >{setting}) 2>/dev/null"),
            )
            .await;
            let modules = "test $((0x$(sed -n 's/^CapBnd:[^0-9a-f]*//p' /proc/self/status) & (1 << 16))) = 0";
            shell(&cluster, &place, modules).await;
        }
        shell(&cluster, &place, "! date -s now 2>/dev/null").await;
    }
    // Devices of other namespaces are invisible.
    shell(&cluster, &node("a"), "echo 0 >/sys/class/net/cni0/bridge/multicast_snooping").await;
    shell(&cluster, &node("a"), "test -d /sys/class/net/eth0 -a ! -d /sys/class/net/segment").await;
}

async fn shell(cluster: &Cluster, place: &ClusterHost, line: &str) {
    let output = cluster.exec(place, &["sh", "-euc", line].map(str::to_owned), Duration::from_secs(20)).await.unwrap();
    assert!(output.success(), "{place}: {line}: {output:?}");
}

fn a_reached_limit_is_reported() {
    let Some(output) = limited("max_net_namespaces", "build_one") else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(
        text.trim(),
        "a limit on namespaces is reached (No space left on device (os error 28)); \
         raise user.max_net_namespaces and its like with sysctl, or end other users of namespaces"
    );
}
