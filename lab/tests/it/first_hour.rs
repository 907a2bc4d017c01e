//! A new user's commands, without a checkout of the repository.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::command::{LIMIT, ended, err, out, svclab};
use crate::support::finish;
use serde_json::Value;

#[test]
fn scenarios_are_found_in_any_folder_and_a_report_is_all_that_a_replay_needs() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let listed = svclab(here, &["list"]);
    ended(&listed, 0);
    for name in crate::support::runs::names() {
        assert!(out(&listed).lines().any(|line| line.starts_with(&format!("{name} "))), "{name} is not listed");
    }
    let checked = svclab(here, &["check", "microvm/sctp"]);
    assert!(checked.status.success() && out(&checked).starts_with("sctp ("), "{}", err(&checked));
    let simulated = ["--simulate", "--mode", "iptables", "--json"];
    let run = |args: &[&str], report: &str| svclab(here, &[&["run"], args, &simulated[..], &[report]].concat());
    ended(&run(&["hairpin"], "carried.json"), 0);
    // The printed command that repeats the run has the path of the built-in scenario.
    ended(&run(&["scenarios/hairpin.yaml"], "-"), 0);

    // The user's files win over built-in ones.
    let own = here.join("scenarios");
    std::fs::create_dir(&own).unwrap();
    let text = std::fs::read_to_string(crate::support::runs::folder().join("hairpin.yaml")).unwrap();
    let (head, rest) = text.split_once("manifests: |\n").unwrap();
    let (manifests, steps) = rest.split_once("\nsteps:").unwrap();
    let manifests: String = manifests.lines().map(|line| format!("{}\n", line.get(2..).unwrap_or(""))).collect();
    std::fs::write(own.join("objects.yaml"), manifests).unwrap();
    let head = head.replace("\nabout: ", "\nabout: My own; ");
    std::fs::write(own.join("hairpin.yaml"), format!("{head}manifests: [objects.yaml]\n\nsteps:{steps}")).unwrap();
    ended(&run(&["hairpin"], "own.json"), 0);
    let report = |name: &str| -> Value { serde_json::from_slice(&std::fs::read(here.join(name)).unwrap()).unwrap() };
    assert!(report("own.json")["scenarios"][0]["about"].as_str().unwrap().starts_with("My own; "));
    assert!(out(&svclab(here, &["list"])).contains("My own; "));

    // The report contains the scenario, so a replay works without the folder.
    std::fs::remove_dir_all(&own).unwrap();
    ended(&svclab(here, &["replay", "own.json", "--json", "again.json"]), 0);
    assert_eq!(report("own.json"), report("again.json"));
    let unknown = run(&["no-such"], "none.json");
    assert!(unknown.status.code() == Some(2) && err(&unknown).contains("svclab list"), "{}", err(&unknown));
}

#[test]
fn a_description_of_a_proxy_is_found_in_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let output = svclab(folder.path(), &["run", "hairpin", "--proxy", "kube-proxy.yaml", "--mode", "userspace"]);
    // Either error shows that the description was read.
    assert!([2, 3].contains(&output.status.code().unwrap()), "{}", err(&output));
    assert!(
        ["there is no program", "has no userspace mode"].iter().any(|says| err(&output).contains(says)),
        "{}",
        err(&output)
    );
    let none = svclab(folder.path(), &["run", "hairpin", "--proxy", "other-proxy.yaml"]);
    assert!(none.status.code() == Some(2) && err(&none).contains("other-proxy.yaml: "), "{}", err(&none));
    assert!(
        err(&none).contains("has the descriptions cilium.yaml, kube-proxy.yaml, kube-router.yaml"),
        "{}",
        err(&none)
    );
}

#[test]
fn names_that_are_nearly_right_get_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let typo = svclab(folder.path(), &["run", "hairpni"]);
    assert!(typo.status.code() == Some(2) && err(&typo).contains("did you mean hairpin? "), "{}", err(&typo));
    let typo = svclab(folder.path(), &["check", "microvm/sctpp"]);
    assert!(err(&typo).contains("did you mean microvm/sctp? "), "{}", err(&typo));
    // Started with svcproxy's flags another's program would fail in its own words.
    let program = folder.path().join("kube-proxy");
    std::fs::write(&program, "").unwrap();
    let output = svclab(folder.path(), &["run", "hairpin", "--proxy", program.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    for says in ["is that of kube-proxy", "svclab run --proxy kube-proxy.yaml", "--config={config}"] {
        assert!(err(&output).contains(says), "{says}: {}", err(&output));
    }
}

#[test]
fn a_closed_reader_causes_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["list"][..],
        &["check", "hairpin"],
        &["objects", "hairpin"],
        &["objects", "hairpin", "--configuration"],
        &["run", "hairpin", "--simulate", "--mode", "iptables"],
        &["run", "hairpin", "--simulate", "--mode", "iptables", "--json", "-"],
        &["explain", "--scenario", "hairpin", "--from", "pod/web", "--to", "service/web"],
        &["collect", "-", "--kubeconfig", "/proc/nowhere"],
        &["--help"],
        &["run", "--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
        command.args(args).current_dir(folder.path()).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", err(&output));
        assert!(!err(&output).contains("panicked"), "{args:?}: {}", err(&output));
    }
    // Other write errors are reported.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.arg("list").current_dir(folder.path()).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
}

#[test]
fn the_report_goes_to_standard_output_unless_a_document_does() {
    let folder = tempfile::tempdir().unwrap();
    let run = |flags: &[&str]| {
        let args = [&["run", "hairpin", "clusterip", "--simulate", "--mode", "iptables"], flags].concat();
        let output = svclab(folder.path(), &args);
        ended(&output, 0);
        (out(&output), err(&output))
    };
    let (report, progress) = run(&[]);
    assert!(report.contains("  ok   through the cluster IP") && progress.is_empty(), "{report}{progress}");
    let last = report.lines().last().unwrap();
    assert!(last.starts_with("2 scenarios, ") && last.ends_with(": all passed"), "{last}");
    assert!(report.contains("passed in 0 ms of virtual time\n"), "{report}");
    assert_eq!(run(&["-q"]), (format!("{last}\n"), String::new()));
    assert!(run(&["-v"]).0.contains("  ok   through the cluster IP"));
    // With JSON on standard output, the report for people goes to standard error.
    let (document, told) = run(&["--json", "-"]);
    assert!(serde_json::from_str::<Value>(&document).is_ok() && told == report, "{told}");
}

/// A run may take an hour.
#[test]
fn a_report_that_cannot_be_written_is_an_error_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for format in ["--json", "--html", "--junit"] {
        let output = svclab(here, &["run", "hairpin", "--simulate", format, "missing/report"]);
        ended(&output, 2);
        assert_eq!((out(&output).as_str(), err(&output).lines().count()), ("", 1), "{}", err(&output));
        assert!(err(&output).contains("cannot write the report missing/report"), "{}", err(&output));
    }
    std::fs::write(here.join("earlier"), "kept until the run ends").unwrap();
    ended(&svclab(here, &["run", "no-such-scenario", "--json", "earlier"]), 2);
    assert_eq!(std::fs::read_to_string(here.join("earlier")).unwrap(), "kept until the run ends");
    ended(&svclab(here, &["run", "no-such-scenario", "--json", "new"]), 2);
    assert!(!here.join("new").exists());
}

#[test]
fn a_terminal_shows_progress() {
    let terminal = nix::pty::openpty(None, None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(["run", "hairpin", "--mode", "iptables", "--source", "manifests"]).current_dir(folder.path());
    command.env("TERM", "xterm").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(terminal.slave);
    let child = command.spawn().unwrap();
    drop(command);
    let reader = std::thread::spawn(move || {
        let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
        // Reading fails when the other side is closed.
        while let Ok(length @ 1..) = nix::unistd::read(&terminal.master, &mut piece) {
            seen.extend(&piece[..length]);
        }
        String::from_utf8_lossy(&seen).into_owned()
    });
    let output = child.wait_with_output().unwrap();
    let seen = reader.join().unwrap();
    if output.status.code() == Some(3) && std::env::var_os("CI").is_none() {
        eprintln!("NOT RUN: {seen}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{seen}");
    assert!(seen.contains("\u{1b}[2Khairpin (iptables): "), "{seen:?}");
    assert!(seen.ends_with("\r\u{1b}[2K"), "the last is erased: {seen:?}");
    assert!(!out(&output).contains('\u{1b}') && out(&output).contains("all passed"), "{}", out(&output));
}

const LONG: &str = "\
name: long
about: A run that is ended by a signal.
cluster: {nodes: 1}
manifests: |
  {apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: web}}, spec: {containers: [{name: web, ports: [{containerPort: 8080}]}]}}
  ---
  {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}
steps:
- name: it answers
  probe: {from: pod/web, to: service/web}
  expect: {answered: web}
- name: it takes long
  exec: {at: node/node-a, command: [sleep, \"28.7531\"]}
- name: it answers again
  probe: {from: pod/web, to: service/web}
  expect: {answered: web}
";

fn interrupted(modes: &str, signal: nix::sys::signal::Signal) -> Option<(i32, Value)> {
    use std::io::{BufRead, BufReader};
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("long.yaml"), LONG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(["run", "long.yaml", "--mode", modes, "--json", "r.json", "--junit", "r.xml", "--html", "r.html"]);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    if !lines.any(|line| line.starts_with("  ok   it answers ")) {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.code() == Some(3) && std::env::var_os("CI").is_none(), "{}", err(&output));
        return None;
    }
    let sleeps = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.filter(|line| line.windows(7).any(|part| part == b"28.7531")).count()
    };
    crate::support::eventually("the command is started", || sleeps() > 0);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), signal).unwrap();
    let rest: Vec<String> = lines.collect();
    let output = child.wait_with_output().unwrap();
    crate::support::eventually("nothing of the run is left", || sleeps() == 0);
    assert!(err(&output).contains(&format!("ended by {signal}")), "{}", err(&output));
    assert!(rest.iter().any(|line| line.contains("a signal ended it before its last step")), "{rest:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let junit = read("r.xml");
    let junit = roxmltree::Document::parse(&junit).unwrap();
    let cases = |tag: &str| junit.descendants().filter(|node| node.has_tag_name(tag)).count();
    assert_eq!((cases("testcase"), cases("skipped"), cases("error")), (4, 2, 1));
    assert!(read("r.html").contains(&format!("{signal} ended the run")));
    Some((output.status.code().unwrap(), serde_json::from_str(&read("r.json")).unwrap()))
}

fn is_cut_short(report: &Value, signal: &str) {
    assert_eq!((&report["passed"], &report["interrupted"]), (&false.into(), &signal.into()));
    let scenarios = report["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 1, "later ones were not begun");
    let steps = scenarios[0]["steps"].as_array().unwrap();
    let verdicts: Vec<&str> = steps.iter().filter_map(|step| step["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["passed", "skipped", "skipped"]);
    assert_eq!(scenarios[0]["interrupted"], true);
}

#[test]
fn a_signal_ends_a_run_in_order_and_the_report_has_its_steps() {
    use nix::sys::signal::Signal;
    let Some((status, report)) = interrupted("iptables", Signal::SIGINT) else { return };
    assert_eq!(status, 130);
    is_cut_short(&report, "SIGINT");
    // Each mode has a process, to which svclab forwards the signal.
    let Some((status, report)) = interrupted("iptables,nftables", Signal::SIGTERM) else { return };
    assert_eq!(status, 143);
    is_cut_short(&report, "SIGTERM");
}

#[test]
fn a_report_names_its_program_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let output = svclab(folder.path(), &["run", "hairpin", "--mode", "iptables", "--json", "-"]);
    if output.status.code() == Some(3) && std::env::var_os("CI").is_none() {
        return;
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schemaVersion"], 1);
    assert_eq!(report["program"]["version"], env!("CARGO_PKG_VERSION"));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report["scenarios"][0]["kernel"], kernel.trim());
    let started: jiff::Timestamp = report["scenarios"][0]["started"].as_str().unwrap().parse().unwrap();
    let ago = jiff::Timestamp::now().duration_since(started);
    assert!(ago.as_secs() >= 0 && ago.as_secs() < 600, "{started}");
    let simulated = svclab(folder.path(), &["run", "hairpin", "--mode", "iptables", "--simulate", "--json", "-"]);
    let report: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    let scenario = &report["scenarios"][0];
    assert!(scenario["kernel"].is_null() && scenario["started"].is_null(), "the same bytes every time");
}

/// Runs svclab with a text as its standard input.
fn svclab_reading(folder: &Path, args: &[&str], text: &str) -> Output {
    std::fs::write(folder.join("input"), text).unwrap();
    // `cat` makes it a pipe, which can be read only once.
    let mut cat = Command::new("cat").arg("input").current_dir(folder).stdout(Stdio::piped()).spawn().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(args).stdin(cat.stdout.take().unwrap()).current_dir(folder);
    let output = finish(command, LIMIT);
    cat.wait().unwrap();
    output
}

#[test]
fn a_scenario_from_standard_input_is_run_in_each_mode_checked_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let text = std::fs::read_to_string(crate::support::runs::folder().join("hairpin.yaml")).unwrap();
    let checked = svclab_reading(here, &["check", "-"], &text.replacen("answered:", "answred:", 1));
    assert_eq!(checked.status.code(), Some(2), "{}", err(&checked));
    assert!(err(&checked).starts_with("svclab: <stdin>:") && err(&checked).contains("answered"), "{}", err(&checked));
    let simulated = ["run", "-", "--simulate", "--mode", "iptables", "--json", "r.json"];
    ended(&svclab_reading(here, &simulated, &text), 0);
    ended(&svclab(here, &["replay", "r.json"]), 0);
    // Each mode is a process, and so is the lab in it.
    let run = svclab_reading(here, &["run", "-", "--mode", "iptables,userspace", "--json", "r.json"], &text);
    if run.status.code() != Some(3) || std::env::var_os("CI").is_some() {
        ended(&run, 0);
        let report: Value = serde_json::from_slice(&std::fs::read(here.join("r.json")).unwrap()).unwrap();
        let repeat = report["scenarios"][1]["repeat"].as_str().unwrap();
        assert!(repeat.starts_with("svclab run - --mode userspace"), "{repeat}");
    }
}

#[test]
fn a_shell_is_offered_scenarios_and_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hairstyle.yaml"), "").unwrap();
    std::fs::write(folder.path().join("haircut.txt"), "").unwrap();
    for (words, offered) in [
        (&["run", "hair"][..], &["hairpin", "hairpin-point-to-point", "hairstyle.yaml"][..]),
        (&["check", "microvm/sc"], &["microvm/sctp"]),
        (&["explain", "--scenario", "hairpin-"], &["hairpin-point-to-point"]),
        (&["kern"], &["kernels"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
        command.env("COMPLETE", "bash").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        command.args(["--", "svclab"]).args(words).current_dir(folder.path()).stdin(Stdio::null());
        let output = finish(command, LIMIT);
        ended(&output, 0);
        assert_eq!(out(&output).lines().collect::<Vec<_>>(), offered, "{words:?}");
    }
}

#[test]
fn completions_and_manual_pages_have_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, part) in [("bash", "complete -o"), ("zsh", "#compdef svclab"), ("fish", "--command svclab")] {
        let output = svclab(folder.path(), &["completion", shell]);
        ended(&output, 0);
        assert!(out(&output).contains(part) && out(&output).contains("COMPLETE"), "{shell}: {}", out(&output));
        assert!(!out(&output).contains(env!("CARGO_MANIFEST_DIR")), "the program is found in PATH");
    }
    let completion = out(&svclab(folder.path(), &["completion", "bash"]));
    // If the shell exists, it must read the completions.
    let mut command = Command::new("bash");
    command.args(["-n", "-c", &completion]).stdin(Stdio::null());
    let read = finish(command, LIMIT);
    assert!(read.status.success(), "{}", err(&read));
    ended(&svclab(folder.path(), &["man", "."]), 0);
    let page = std::fs::read_to_string(folder.path().join("svclab.1")).unwrap();
    assert!(page.contains(".TH svclab 1") && page.contains("Exit status"), "{page}");
    assert!(folder.path().join("svclab-run.1").is_file() && !folder.path().join("svclab-guest-init.1").exists());
    let nowhere = svclab(folder.path(), &["man", "/proc/nowhere"]);
    assert!(nowhere.status.code() == Some(2) && err(&nowhere).contains("/proc/nowhere"), "{}", err(&nowhere));
}

#[test]
fn the_version_names_the_commit_where_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let said = out(&svclab(folder.path(), &["--version"]));
    let rest = said.strip_prefix(concat!("svclab ", env!("CARGO_PKG_VERSION"))).unwrap().trim_end();
    let commit = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
    let is_commit = |text: &str| text.len() == 12 && text.chars().all(|letter| letter.is_ascii_hexdigit());
    assert!(rest.is_empty() || commit.is_some_and(is_commit), "{said}");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.git").exists();
    assert!(commit.is_some() || !repository || Command::new("git").arg("--version").output().is_err(), "{said}");
}
