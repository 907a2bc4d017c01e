use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{descends, finish, said};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn svclab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(args).stdin(Stdio::null()).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command
}

fn run(args: &[&str]) -> Output {
    finish(svclab(args), Duration::from_secs(250))
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn unable(output: &Output) -> bool {
    let unable = output.status.code() == Some(3);
    assert!(!(unable && std::env::var_os("CI").is_some()), "{}", err(output));
    unable
}

#[test]
fn a_passing_run_exits_with_0_and_writes_both_reports() {
    let directory = tempfile::tempdir().unwrap();
    let (json, junit) = (directory.path().join("r.json"), directory.path().join("r.xml"));
    let reports = ["--json", json.to_str().unwrap(), "--junit", junit.to_str().unwrap()];
    let output = run(&[&["run", "hairpin", "--mode", "iptables", "--seed", "7"][..], &reports].concat());
    if unable(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let report = out(&output);
    assert!(report.contains("through the cluster IP") && report.ends_with(": all passed\n"), "{report}");
    assert!(!report.contains('\u{1b}'), "no colour where nobody looks: {report}");
    assert_eq!(err(&output), "", "no progress where nobody looks");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["passed"], true);
    assert_eq!(report["scenarios"][0]["seed"], 7);
    assert_eq!(report["scenarios"][0]["steps"].as_array().unwrap().len(), 5);
    let xml = std::fs::read_to_string(&junit).unwrap();
    assert!(xml.contains("<testsuite ") && xml.contains("failures=\"0\""), "{xml}");
}

#[test]
fn a_run_in_which_nothing_was_judged_exits_with_3() {
    // The cache folder cannot exist, so there is no microVM, and no mode can run.
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(["run", "scenarios/clusterip.yaml", "--deterministic", "--cache-dir", "/dev/null/cache"]);
    command.env_remove("CI");
    command.stdin(Stdio::null()).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let output = finish(command, Duration::from_secs(60));
    let stderr = said(&output);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("not run") && stderr.contains("nothing was judged"), "{stderr}");
}

#[test]
fn a_failing_run_exits_with_1_and_prints_how_to_repeat_it() {
    // The damaged rules' target port refuses connections, which is quicker than a timeout.
    let damage = r#"{"before":"through the node port of its own node","at":"all","commands":["iptables-save -t nat | sed s/:8080$/:1/ | iptables-restore -T nat"]}"#;
    let output = run(&["run", "hairpin", "--mode", "iptables", "--junit", "-", "--break", damage]);
    if unable(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let stderr = err(&output);
    assert!(stderr.contains("FAIL through the node port of its own node"), "{stderr}");
    assert!(stderr.contains("repeat with: svclab run scenarios/hairpin.yaml --mode iptables --seed 0"), "{stderr}");
    assert!(stderr.contains("skip through the load balancer's address"), "the rest is not run: {stderr}");
    assert!(out(&output).contains("<failure "), "{}", out(&output));

    let output = run(&["run", "hairpin", "--mode", "iptables", "--keep-going", "--break", damage]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(!said(&output).contains("skip "), "{}", said(&output));
}

#[test]
fn scenarios_at_once_are_reported_in_the_order_of_the_list() {
    let names = ["affinity", "hairpin", "clusterip"];
    let args =
        |more: &[&'static str]| [&["run"][..], &names, &["--mode", "iptables", "--parallel", "3"], more].concat();
    let output = run(&args(&["--json", "-"]));
    if unable(&output) {
        return;
    }
    // The first takes the longest.
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found: Vec<&str> =
        report["scenarios"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(found, names);
    let heads = err(&output);
    let heads: Vec<&str> =
        heads.lines().filter_map(|line| line.split_once(" (iptables)")).map(|(name, _)| name).collect();
    assert_eq!(heads, names, "{}", err(&output));
    assert_eq!(err(&output).matches(" passed in ").count(), 3 + 1, "one total: {}", err(&output));

    let damage = r#"{"scenario":"hairpin","before":"through the cluster IP","at":"all","commands":["iptables -t nat -F KUBE-SERVICES"]}"#;
    let output = run(&args(&["--quiet", "--break", damage]));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("FAIL through the cluster IP"), "{}", said(&output));
}

/// Debian gives ordinary users no sbin folder.
#[test]
fn a_lab_finds_the_machines_tools_without_sbin_in_path() {
    let mut command = svclab(&["run", "flush", "--mode", "iptables"]);
    command.env("PATH", "/usr/bin:/bin");
    let output = finish(command, Duration::from_secs(100));
    if unable(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn wrong_usage_and_wrong_files_exit_with_2_and_name_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("s.yaml");
    let text = "name: s\nabout: x\ncluster: {nodes: 0}\nsteps:\n- name: a\n  prob: {from: pod/a}\n";
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for (args, says) in [
        (&["run", path][..], "s.yaml:"),
        (&["check", path], "s.yaml:"),
        (&["run", "no-such-scenario"], "`svclab list` shows what there is"),
        (&["run"], "<FILE>"),
        (&["run", "hairpin", "--mode", "ipvz"], "ipvz"),
        (&["run", "kill-mid-sync", "--mode", "ipvs"], "--mode leaves nothing to run: kill-mid-sync is for iptables"),
        (&["list", "/proc/nowhere"], "cannot read /proc/nowhere"),
        (&["list", empty.to_str().unwrap()], "empty has no scenario"),
        (&["exec", "--pid", "1", "node/a", "--", "true"], "svclab up FILE"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", err(&output));
        assert!(err(&output).contains(says), "{args:?}: {}", err(&output));
        assert!(!err(&output).contains("panicked"), "{args:?}: {}", err(&output));
    }
}

#[test]
fn a_missing_requirement_exits_with_3_and_says_how_to_get_it() {
    let output = run(&["run", "hairpin", "--proxy", "/proc/nowhere/proxy"]);
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    assert!(err(&output).contains("cargo build -p svcproxy"), "{}", err(&output));
}

#[test]
fn a_mode_that_cannot_run_is_reported_and_fails_in_ci_or_if_named() {
    // No kernel is cached or can be fetched.
    let directory = tempfile::tempdir().unwrap();
    let apt = directory.path().join("apt-get");
    std::fs::write(&apt, "#!/bin/sh\necho no network >&2\nexit 100\n").unwrap();
    std::fs::set_permissions(&apt, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap_or_default());
    let report = directory.path().join("report");
    let start = |ci: bool, flags: &[&str]| {
        let args = [&["run", "hairpin", "--json", report.to_str().unwrap()], flags].concat();
        let mut command = svclab(&args);
        command.env("PATH", &path).env("SVCLAB_CACHE", directory.path().join("cache")).env_remove("CI");
        if ci {
            command.env("CI", "1");
        }
        finish(command, Duration::from_secs(60))
    };
    let output = start(false, &[]);
    let report_of = || -> serde_json::Value { serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap() };
    let modes = |report: &serde_json::Value| -> Vec<String> {
        report["scenarios"].as_array().unwrap().iter().map(|one| one["mode"].to_string()).collect()
    };
    if !said(&output).contains("not run: ") {
        // The machine has IPVS, so all modes ran, or it cannot run labs.
        unable(&output);
        return;
    }
    assert_eq!(output.status.code(), Some(0), "at a desk the other modes count: {}", said(&output));
    let lines = out(&output);
    let of = |mode: &str| lines.lines().rev().find(|line| line.starts_with(mode)).unwrap_or_default().to_owned();
    assert!(of("iptables").contains("this machine's kernel") && of("iptables").contains("  passed in "), "{lines}");
    assert!(of("ipvs").contains("debian-6.1 in a microVM") && of("ipvs").contains("  not run: "), "{lines}");
    let here = ["\"iptables\"", "\"nftables\"", "\"userspace\""].map(str::to_owned).to_vec();
    assert_eq!((&report_of()["passed"], modes(&report_of())), (&true.into(), here));
    assert_eq!(report_of()["notRun"][0]["mode"], "ipvs");

    let output = start(true, &[]);
    assert_eq!((output.status.code(), &report_of()["passed"]), (Some(3), &false.into()), "in CI: {}", said(&output));
    let output = start(false, &["--mode", "iptables,ipvs"]);
    assert_eq!(output.status.code(), Some(3), "named: {}", said(&output));
    let damage = r#"{"before":"through the cluster IP","at":"all","commands":["iptables -t nat -F KUBE-SERVICES"]}"#;
    let output = start(false, &["--patience", "500", "--break", damage]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("not run: an earlier mode failed; use --keep-going to continue"),
        "{}",
        said(&output)
    );
}

#[test]
fn list_and_check_run_nothing() {
    let listed = run(&["list"]);
    assert_eq!(listed.status.code(), Some(0), "{}", err(&listed));
    for name in crate::support::runs::names() {
        assert!(out(&listed).lines().any(|line| line.starts_with(&format!("{name} "))), "{name} is not listed");
    }
    let checked = run(&["check", "hairpin", "--seed", "1"]);
    assert!(out(&checked).contains("which sees the address of node/node-a"), "{}", out(&checked));
    let other = run(&["check", "hairpin", "--seed", "2"]);
    assert_ne!(out(&checked), out(&other), "the seed decides open addresses");
    assert_eq!(out(&checked), out(&run(&["check", "hairpin", "--seed", "1"])), "and nothing else does");
}

#[test]
fn a_lab_stays_up_and_can_be_entered() {
    let name = format!("cli-{}", std::process::id());
    let mut lab = svclab(&["up", "hairpin", "--name", &name]);
    let mut lab = lab.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut lines = BufReader::new(lab.stdout.take().unwrap()).lines();
    let Some(first) = lines.next() else {
        let code = lab.wait().unwrap().code();
        assert!(code == Some(3) && std::env::var_os("CI").is_none(), "svclab up ended: {code:?}");
        return;
    };
    assert_eq!(first.unwrap(), format!("{name} is up in iptables mode; ctrl-c ends it"));
    // svclab finds runs by process id only.
    let pid = lab.id().to_string();
    let mut listing = svclab(&["exec", "--pid", &pid, "node/node-a", "--", "iptables-save", "-t", "nat"]);
    let node = listing.env("PATH", "/usr/bin:/bin").output().unwrap();
    assert!(out(&node).contains("KUBE-SERVICES"), "{}", err(&node));
    let pod = run(&["exec", "--name", &name, "web", "--", "sh", "-c", "ip -o addr; exit 7"]);
    assert!(out(&pod).contains("10.244.1."), "{}", err(&pod));
    assert_eq!(pod.status.code(), Some(7), "the command's own exit status");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let here = svclab(&["exec", "--name", &name, "web", "--", "pwd"]).current_dir(&folder).output().unwrap();
    assert_eq!(Path::new(out(&here).trim()), folder.canonicalize().unwrap(), "the caller's folder");
    let wrong = run(&["exec", "--name", &name, "node/node-z", "--", "true"]);
    assert!(wrong.status.code() == Some(2) && err(&wrong).contains("node/node-b"), "{}", err(&wrong));
    // SIGHUP, as from a closed terminal.
    kill(Pid::from_raw(lab.id() as i32), Signal::SIGHUP).unwrap();
    assert_eq!(lab.wait().unwrap().code(), Some(129), "in order, and not killed");
    assert!(!svclab_netns::enter::running().iter().any(|place| descends(place.pid, lab.id())));
}

/// Another user's process that looks like a lab may offer any program as a tool.
#[test]
fn root_enters_no_lab_of_another_user() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("NOT RUN: only root can be another user as well");
        return;
    }
    let trap = "mount -t tmpfs none /run && mkdir /run/svclab && printf '1\\tnode/trap\\n' > /run/svclab/places && echo set && exec sleep 1000";
    let mut other = std::process::Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig=KILL"]);
    other.args(["unshare", "-Urpfm", "--kill-child", "--mount-proc", "sh", "-c", trap]);
    let mut other = other.stdout(Stdio::piped()).spawn().unwrap();
    let set = BufReader::new(other.stdout.take().unwrap()).lines().next();
    if !set.is_some_and(|line| line.is_ok_and(|line| line == "set")) {
        other.wait().unwrap();
        assert!(std::env::var_os("CI").is_none(), "this machine lets other users make no namespaces");
        eprintln!("NOT RUN: this machine lets other users make no namespaces");
        return;
    }
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", other.id())).unwrap();
    let pid: i32 = children.trim().parse().unwrap();
    assert!(std::path::Path::new(&format!("/proc/{pid}/root/run/svclab/places")).exists(), "it looks like a lab");
    let listed = svclab_netns::enter::running().into_iter().any(|place| place.pid == pid);
    let output = run(&["exec", "--pid", &pid.to_string(), "node/trap", "--", "true"]);
    let place = svclab_netns::enter::LabPlace { pid, place: "node/trap".to_owned(), tid: pid };
    let entered = svclab_netns::enter::exec(&place, &["true".to_owned()], &[]);
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(!listed && output.status.code() == Some(2), "{}", err(&output));
    assert!(err(&output).contains("that this user has started"), "{}", err(&output));
    let refused = entered.unwrap_err().to_string();
    assert!(refused.contains(&format!("process {pid} is not a lab of this user")), "{refused}");
}

#[test]
fn the_list_of_scenarios_has_the_about_of_each() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = std::fs::read_to_string(root.join("docs/scenario-list.md")).unwrap();
    let mut wanted = Vec::new();
    for name in crate::support::runs::names() {
        let scenario =
            svclab::scenario::load(&crate::support::runs::folder().join(&name).with_extension("yaml"), 0).unwrap();
        wanted.push(format!("| `{name}` | {} |", scenario.about));
    }
    let missing: Vec<&String> = wanted.iter().filter(|row| !readme.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "docs/scenario-list.md lacks {missing:#?}");
    let rows = readme.lines().filter(|line| line.starts_with("| `") && !line.contains("svclab run")).count();
    assert_eq!(rows, wanted.len(), "docs/scenario-list.md lists scenarios that are gone");
}

#[test]
fn collect_reads_this_machine() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node.tar");
    let output = run(&["collect", file.to_str().unwrap(), "--kubeconfig", "/proc/nowhere", "--redact"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains("network.json") && err(&output).contains("not read"), "{}", err(&output));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let read = svclab_snapshot::Snapshot::read(std::fs::File::open(&file).unwrap()).unwrap();
    assert!(read.host.starts_with("x-") && read.network.is_some());
    assert!(read.unread.iter().any(|unread| unread.what == "objects"), "{:?}", read.unread);

    let output = run(&["collect", "-", "--kubeconfig", "/proc/nowhere"]);
    let read = svclab_snapshot::Snapshot::read(&output.stdout[..]).unwrap();
    assert!(!read.host.starts_with("x-") && read.network.is_some());

    let nowhere = run(&["collect", "/proc/nowhere/node.tar", "--kubeconfig", "/proc/nowhere"]);
    assert_eq!(nowhere.status.code(), Some(3), "{}", err(&nowhere));
    assert!(err(&nowhere).contains("/proc/nowhere/node.tar"), "{}", err(&nowhere));
}
