//! svcproxy judged as a foreign proxy, by a description and a KubeProxyConfiguration alone.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::finish;

/// Runs svcproxy by a description with `more` lines. `None`: this machine cannot run it.
fn run(more: &str, arguments: &[&str]) -> Option<(Output, String)> {
    lab(more, |command, file| {
        command.arg("run").args(arguments).args(["--mode", "iptables", "--keep-going"]).arg("--proxy").arg(file);
    })
}

/// Runs svclab; `add` makes its arguments from the description's file. `None`: this machine cannot run it.
fn lab(more: &str, add: impl FnOnce(&mut Command, &Path)) -> Option<(Output, String)> {
    let (output, stderr) = start(more, add);
    let unable = output.status.code() == Some(3);
    assert!(!unable || std::env::var_os("CI").is_none(), "{stderr}");
    (!unable).then_some((output, stderr))
}

fn start(more: &str, add: impl FnOnce(&mut Command, &Path)) -> (Output, String) {
    let program = program();
    let text = format!(
        "name: by-the-book\ncommand: [{program}, --config, '{{config}}', '--hostname-override={{node}}']\n\
         cleanup: [{program}, --cleanup, --config, '{{config}}']\n{more}"
    );
    described(&text, Duration::from_secs(250), add)
}

fn program() -> String {
    Path::new(env!("CARGO_BIN_EXE_svclab")).with_file_name("svcproxy").to_str().unwrap().to_owned()
}

fn described(text: &str, limit: Duration, add: impl FnOnce(&mut Command, &Path)) -> (Output, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("proxy.yaml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    add(&mut command, &file);
    command.stdin(Stdio::null());
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let output = finish(command, limit);
    let stderr = crate::support::said(&output);
    (output, stderr)
}

#[test]
fn a_described_proxy_keeps_every_promise() {
    let scenarios = ["clusterip", "hairpin", "local-policy", "restart", "cleanup", "masquerade-all", "dual-stack"];
    let Some((output, stderr)) = run("", &scenarios) else { return };
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("7 scenarios"), "{stderr}");
}

#[test]
fn a_described_proxy_gets_the_variant_of_iptables_and_no_manifests() {
    // The lab lists rules with the same variant.
    let Some((output, stderr)) = run("", &["cleanup", "flush", "--iptables-variant", "legacy"]) else { return };
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let Some((output, stderr)) = run("", &["hairpin", "--source", "manifests"]) else { return };
    assert!(output.status.code() == Some(2) && stderr.contains("reads the Kubernetes API"), "{stderr}");
}

#[test]
fn a_wrong_proxy_fails() {
    let Some((output, stderr)) = run("config: {iptables: {masqueradeAll: true}}\n", &["clusterip"]) else { return };
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("FAIL a pod reaches every backend, equally often, with its own address"), "{stderr}");
    assert!(stderr.contains("clusterip (iptables, by-the-book)"), "{stderr}");
    assert!(stderr.contains("repeat with: svclab run scenarios/clusterip.yaml --mode iptables --proxy "), "{stderr}");
}

#[test]
fn a_replay_runs_the_proxy_of_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let json = report.to_str().unwrap();
    let wrong = format!(
        "name: by-the-book\ncommand: [{}, --config, '{{config}}', '--hostname-override={{node}}']\n\
         config: {{iptables: {{masqueradeAll: true}}}}\n",
        program()
    );
    let run = |args: &[&str], proxy: Option<&Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
        command.args(args).stdin(Stdio::null()).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        command.envs(proxy.map(|proxy| ("SVCPROXY", proxy)));
        finish(command, Duration::from_secs(100))
    };
    let file = folder.path().join("wrong.yaml");
    std::fs::write(&file, wrong).unwrap();
    // The variable takes a description as well.
    let output = run(&["run", "clusterip", "--mode", "iptables", "--json", json], Some(&file));
    let stderr = crate::support::said(&output);
    if output.status.code() == Some(3) && std::env::var_os("CI").is_none() {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let recorded: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!(recorded["scenarios"][0]["proxy"]["name"], "by-the-book");
    let bundle = recorded["scenarios"][0]["steps"].as_array().unwrap().iter().find_map(|step| step["bundle"].as_str());
    for kept in [json, bundle.unwrap()] {
        let again = run(&["replay", kept], None);
        let stderr = crate::support::said(&again);
        assert!(again.status.code() == Some(1) && stderr.contains("by-the-book"), "{kept}: {stderr}");
    }
    let own = run(&["replay", json, "--proxy", &program()], None);
    assert_eq!(own.status.code(), Some(0), "{}", crate::support::said(&own));
}

/// Takes a minute: the lab waits for the proxies until they have been idle for 40 seconds.
#[test]
fn a_family_that_never_works_is_reported_and_the_other_is_judged() {
    let commands = tempfile::tempdir().unwrap();
    for name in ["ip6tables-restore", "ip6tables-nft-restore", "ip6tables-legacy-restore"] {
        let file = commands.path().join(name);
        std::fs::write(&file, "#!/bin/sh\nexit 1\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = format!("PATH={}:$PATH exec {} \"$@\"", commands.path().display(), program());
    let text = format!(
        "name: half\ncommand: [sh, -c, '{script}', sh, --iptables-writer=commands, --config, '{{config}}', \
         '--hostname-override={{node}}']\n"
    );
    let (output, stderr) = described(&text, Duration::from_secs(300), |command, file| {
        command.args(["run", "dual-stack", "--mode", "iptables", "--keep-going", "--proxy"]).arg(file);
    });
    assert!(output.status.code() != Some(3) || std::env::var_os("CI").is_none(), "{stderr}");
    if output.status.code() == Some(3) {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for text in [
        "the lab waits for the proxies after the start",
        "expected: node-a reaches svclab/marker, the lab's own Service, over IPv6",
        "no answer; the lab has waited for",
        "its log ends with:",
        "FAIL the cluster IP over IPv6",
        "ok   the same over IPv4",
    ] {
        assert!(stderr.contains(text), "{text}: {stderr}");
    }
    assert!(!stderr.contains("the lab's own Service, over IPv4"), "{stderr}");
}

#[test]
fn an_excused_scenario_is_named_with_the_reason() {
    let Some((output, stderr)) = run("excused: {hairpin: it cannot}\n", &["hairpin", "sctp"]) else { return };
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("hairpin is not run in iptables mode: it cannot") && stderr.contains("1 scenario,"),
        "{stderr}"
    );
}

#[test]
fn a_mode_that_the_proxy_lacks_is_not_run() {
    let more =
        "modes: [ipvs]\nversion: [sh, -c, 'echo v1.2.3']\nexcused: {sctp: {reason: it hangs, versions: '>=1.2'}}\n";
    for (more, scenario, says) in [
        (more.to_owned(), "hairpin", "hairpin is not run in iptables mode: by-the-book has no iptables mode"),
        (more.replace("ipvs", "iptables"), "sctp", "sctp is not run in iptables mode: it hangs"),
    ] {
        let (output, stderr) = start(&more, |command, file| {
            command.args(["run", scenario, "--mode", "iptables", "--proxy"]).arg(file);
        });
        assert_eq!(output.status.code(), Some(3), "nothing was judged: {stderr}");
        assert!(stderr.contains(says), "{stderr}");
    }
}

/// svcproxy in a mode that the lab does not know.
const OTHER: &str = "modes: [other]\nconfig: {mode: nftables}\ntables: [ip kube-proxy, ip6 kube-proxy]\n";

#[test]
fn a_proxy_in_none_of_kube_proxys_modes_is_judged_by_what_every_proxy_promises() {
    let folder = tempfile::tempdir().unwrap();
    let (report, junit) = (folder.path().join("report.json"), folder.path().join("junit.xml"));
    let found = lab(OTHER, |command, file| {
        command.args(["run", "clusterip", "restart", "two-interfaces", "flush-in-part-nftables", "switch-to-nftables"]);
        command.args(["--audit", "--keep-going", "--json"]).arg(&report).arg("--junit").arg(&junit);
        command.arg("--proxy").arg(file);
    });
    let Some((output, stderr)) = found else { return };
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("flush-in-part-nftables is not run in nftables mode: by-the-book has no nftables mode"));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let scenarios = report["scenarios"].as_array().unwrap();
    let ran: Vec<(&str, &str)> =
        scenarios.iter().map(|one| (one["name"].as_str().unwrap(), one["mode"].as_str().unwrap())).collect();
    assert_eq!(ran, [("clusterip", "other"), ("restart", "other"), ("two-interfaces", "other")]);
    let audits = scenarios.iter().flat_map(|one| one["steps"].as_array().unwrap());
    assert!(audits.filter(|step| step["action"] == "audit").count() >= 3, "{report}");
    let steps = scenarios[2]["steps"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap());
    let steps: Vec<&str> = steps.collect();
    assert!(steps.contains(&"a node without a pod"), "{steps:?}");
    for of_one_mode in ["the node port at another node's second address", "no node port there"] {
        assert!(!steps.contains(&of_one_mode), "{steps:?}");
    }
    let junit = std::fs::read_to_string(&junit).unwrap();
    assert!(junit.contains("other"), "{junit}");
}

#[test]
fn mode_other_is_for_a_proxy_whose_description_names_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for command in [
        &["run"][..],
        &["run", "--simulate"],
        &["up"],
        &["conformance"],
        &["explain", "--from", "node/node-a", "--to", "service/web", "--scenario"],
    ] {
        let mut asked = Command::new(env!("CARGO_BIN_EXE_svclab"));
        asked.args(command).args(["hairpin", "--mode", "other"]).arg("--proxy").arg(program());
        asked.stdin(Stdio::null()).current_dir(&root);
        let output = finish(asked, Duration::from_secs(60));
        let stderr = crate::support::said(&output);
        let says = "--mode other: svcproxy has the modes iptables, ipvs, nftables and userspace;";
        assert!(output.status.code() == Some(2) && stderr.contains(says), "{command:?}: {stderr}");
    }
    let (output, stderr) = start("", |command, file| {
        command.args(["run", "hairpin", "--mode", "other", "--proxy"]).arg(file);
    });
    let says = "--mode other: the description of by-the-book has no `modes: [other]`";
    assert!(output.status.code() == Some(2) && stderr.contains(says), "{stderr}");
}

#[test]
fn init_and_ready_of_a_description_run_on_each_node() {
    // `init` writes a file on each node, which `ready` and the proxy's variable name.
    let more = "env: {LAB_MODE: '{mode}'}\n\
                init: [sh, -c, 'echo $LAB_MODE > /run/prepared-{node}']\n\
                ready: {command: [grep, -qx, iptables, '/run/prepared-{node}']}\n";
    let Some((output, stderr)) = run(more, &["hairpin", "restart"]) else { return };
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let Some((output, stderr)) = run("ready: marker\n", &["hairpin"]) else { return };
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let url = "ready: {url: 'http://127.0.0.1:10256/livez'}\n";
    let Some((output, stderr)) = run(url, &["hairpin"]) else { return };
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let Some((output, stderr)) = run("init: [sh, -c, 'echo no bpffs here >&2; exit 4']\n", &["hairpin"]) else {
        return;
    };
    assert!(output.status.code() != Some(0) && stderr.contains("init of by-the-book"), "{stderr}");
    assert!(stderr.contains("no bpffs here"), "{stderr}");
}

#[test]
fn a_proxy_that_never_gets_ready_is_waited_for_once() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let text =
        "name: sleeper\nstartTimeout: 2s\ncommand: [sh, -c, 'echo {node} waits for its leader; exec sleep 1000']\n";
    let (output, stderr) = described(text, Duration::from_secs(250), |command, file| {
        command
            .args(["run", "ipv6", "hairpin", "clusterip", "--mode", "iptables", "--keep-going", "--proxy"])
            .arg(file);
        command.arg("--json").arg(&report);
    });
    if output.status.code() == Some(3) && std::env::var_os("CI").is_none() {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("log: node-a: node-a waits for its leader"), "{stderr}");
    let why = "clusterip is not run: in iptables mode the proxy has not got ready in this run, and the lab waited for it in hairpin";
    assert!(stderr.contains(why), "{stderr}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let scenarios = report["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 2, "the settings of ipv6 are its own");
    assert!(scenarios.iter().all(|one| one["seconds"].as_f64().unwrap() < 80.0), "not the 90 s of other proxies");
    assert_eq!((&report["notRun"][0]["scenario"], &report["passed"]), (&"clusterip".into(), &false.into()));
    let bundle = Path::new(scenarios[1]["bundle"].as_str().unwrap());
    assert!(bundle.ends_with("hairpin-iptables-start"), "{bundle:?}");
    let log = std::fs::read_to_string(bundle.join("proxy-node-b.log")).unwrap();
    assert_eq!(log, "node-b waits for its leader\n");
    assert!(bundle.join("node-a.tar").is_file() && bundle.join("step.json").is_file());
}

#[test]
fn tables_of_a_description_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let init = "init: [sh, -c, 'nft add table inet own && nft add chain inet own c && nft add rule inet own c counter && nft add rule inet own c accept']\n";
    let mut counts = Vec::new();
    for tables in ["", "tables: [\"inet  own\", ip gone]\n"] {
        let flags = ["hairpin", "--figures", "--json", report.to_str().unwrap()];
        let Some((output, stderr)) = run(&format!("{init}{tables}"), &flags) else { return };
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        let figures = &report["scenarios"][0]["figures"];
        counts.push((figures["rules"].as_u64().unwrap(), figures["chains"].as_u64().unwrap()));
    }
    let nodes = 3;
    assert_eq!(counts[1], (counts[0].0 + 2 * nodes, counts[0].1 + nodes));
}

fn compare(more: &str, arguments: &[&str]) -> Option<(Output, String, String)> {
    let (output, stderr) = lab(more, |command, file| {
        command.args(["compare", "svcproxy"]).arg(file).args(arguments);
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some((output, text, stderr))
}

#[test]
fn a_proxy_does_not_differ_from_itself() {
    let Some((output, text, stderr)) = compare("", &["clusterip", "affinity", "rolling-update"]) else { return };
    assert_eq!(output.status.code(), Some(0), "{text}{stderr}");
    assert!(
        text.contains("0 of 3 scenarios differ") && text.contains("svcproxy") && text.contains("by-the-book"),
        "{text}"
    );
    let value = |label: &str, column: usize| {
        let line = text.lines().find(|line| line.starts_with(label)).unwrap_or_else(|| panic!("no {label}: {text}"));
        line.split("  ").map(str::trim).filter(|part| !part.is_empty()).nth(column).unwrap().to_owned()
    };
    assert_eq!(value("rules at the end", 1), value("rules at the end", 2), "{text}");
    for column in [1, 2] {
        assert!(value("  of one that is idle", column).ends_with("% of a core"), "{text}");
    }
    for label in ["a change to the first right answer", "rules at the end", "most memory", "processor time"] {
        for column in [1, 2] {
            assert!(value(label, column).chars().any(|digit| ('1'..='9').contains(&digit)), "{label}: {text}");
        }
    }
}

#[test]
fn a_comparison_names_a_needless_masquerade() {
    let more = "config: {iptables: {masqueradeAll: true}}\nexcused: {sctp: it cannot}\n";
    let Some((output, text, stderr)) = compare(more, &["clusterip", "sctp", "--json", "-"]) else { return };
    assert_eq!(output.status.code(), Some(1), "{text}{stderr}");
    let value: serde_json::Value = serde_json::from_str(&text).expect(&text);
    assert_eq!(value["alike"], false);
    let found: Vec<&str> = value["scenarios"][0]["differences"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|difference| difference["what"].as_str())
        .collect();
    assert!(found.contains(&"verdict") && found.contains(&"source address"), "{found:?}");
    assert_eq!(value["excused"][0]["name"], "sctp");
    assert_eq!(value["scenarios"][0]["reports"][1]["passed"], false);
}

#[test]
fn a_command_line_can_replace_a_description() {
    let program = Path::new(env!("CARGO_BIN_EXE_svclab")).with_file_name("svcproxy");
    let line = format!("'{}' --config={{config}} --hostname-override={{node}}", program.display());
    let found = lab("", |command, _| {
        command.args(["run", "hairpin", "--mode", "iptables", "--proxy", &line]);
    });
    let Some((output, stderr)) = found else { return };
    assert_eq!(output.status.code(), Some(0), "{stderr}");
}

/// A scenario in which nothing happens for two seconds.
const QUIET: &str = "name: quiet\nabout: Nothing happens.\nmodes: [iptables]\nsteps:\n- name: nothing\n  idle: 2s\n";

/// Runs `idle` with a proxy that has a shell command as a child; returns the lab's output.
fn beside(beside: &str) -> Option<(Option<i32>, String)> {
    let program = Path::new(env!("CARGO_BIN_EXE_svclab")).with_file_name("svcproxy");
    let directory = tempfile::tempdir().unwrap();
    let scenario = directory.path().join("quiet.yaml");
    std::fs::write(&scenario, QUIET).unwrap();
    let script = directory.path().join("proxy.sh");
    std::fs::write(&script, format!("({beside}) &\nexec '{}' \"$@\"\n", program.display())).unwrap();
    let line = format!("bash {} --config={{config}} --hostname-override={{node}}", script.display());
    let (output, stderr) = lab("", |command, _| {
        command.arg("run").arg(&scenario).args(["--proxy", &line]);
    })?;
    Some((output.status.code(), stderr))
}

#[test]
fn an_idle_proxy_passes() {
    let Some((status, stderr)) = beside("exec sleep 1000") else { return };
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stderr.contains("% of a core"), "{stderr}");
}

fn is_found_out(companion: &str, says: &str) {
    let Some((status, stderr)) = beside(companion) else { return };
    assert_eq!(status, Some(1), "{companion}: {stderr}");
    assert!(stderr.contains("FAIL nothing") && stderr.contains(says), "{companion}: {stderr}");
}

#[test]
fn a_proxy_that_is_never_idle_fails() {
    is_found_out("while :; do :; done", "less than 1 % of a core's time");
}

#[test]
fn short_lived_children_count_as_the_proxys_work() {
    is_found_out("while :; do /bin/true; done", "less than 1 % of a core's time");
}

#[test]
fn growing_files_and_processes_fail() {
    is_found_out("while sleep 0.3; do exec {one}</dev/null; done", "open files grew from");
    is_found_out("while sleep 0.1; do sleep 1000 & done", "grew from");
}

#[test]
fn an_idle_proxy_that_logs_fails() {
    is_found_out("while sleep 0.5; do echo still here; done", "lines: still here");
}

/// The child grows an array by elements: bash copies a growing string as a whole.
#[test]
fn growing_memory_fails() {
    is_found_out("text=$(printf '%02000000d' 7); while sleep 0.2; do texts+=(\"$text\"); done", "memory grew from");
}

/// Runs a scenario in a user namespace below the machine's, where the kernel refuses rights of the machine's root.
/// `None`: this machine has no user namespaces. With `is_refused` the proxy logs the refusal.
fn in_user_namespace(scenario: &str, is_refused: bool) -> Option<(Option<i32>, String)> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("proxy.yaml");
    let line = "echo 'sendmsg() failed: Message too long' >&2; exec sleep 1000";
    std::fs::write(&file, format!("name: too-long\ncommand: [sh, -c, \"{line}\"]\n")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", env!("CARGO_BIN_EXE_svclab"), "run", "--kernel", "host"]);
    command.args(["--mode", "iptables", scenario]).stdin(Stdio::null());
    if is_refused {
        command.arg("--proxy").arg(&file);
    }
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let output = finish(command, Duration::from_secs(100));
    let stderr = crate::support::said(&output);
    let unable = stderr.starts_with("unshare:") || stderr.contains("AppArmor");
    assert!(!unable || std::env::var_os("CI").is_none(), "{stderr}");
    (!unable).then(|| (output.status.code(), stderr))
}

#[test]
fn what_a_user_namespace_refuses_is_not_the_proxys_fault() {
    let Some((status, said)) = in_user_namespace("hairpin", true) else { return };
    assert!(status == Some(3) && said.contains("refuses SO_SNDBUFFORCE"), "{status:?} {said}");
}

#[test]
fn a_scenario_with_large_batches_needs_large_socket_buffers() {
    let room: u64 = std::fs::read_to_string("/proc/sys/net/core/wmem_default").unwrap().trim().parse().unwrap();
    let Some((status, said)) = in_user_namespace("kill-mid-sync", true) else { return };
    let says = if room < 300_000 { "needs largeBatches" } else { "refuses SO_SNDBUFFORCE" };
    assert!(status == Some(3) && said.contains(says), "{status:?} {said}");
}

#[test]
fn svcproxy_sends_no_large_batches() {
    let Some((status, said)) = in_user_namespace("kill-mid-sync", false) else { return };
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn a_matrix_has_a_column_for_each_version_and_mode() {
    let program = Path::new(env!("CARGO_BIN_EXE_svclab")).with_file_name("svcproxy");
    let directory = tempfile::tempdir().unwrap();
    for (version, does) in
        [("v1.9.0", format!("exec '{}' \"$@\"", program.display())), ("v1.10.0", "exit 7".to_owned())]
    {
        let script = directory.path().join("versions").join(version).join("by-the-book");
        std::fs::create_dir_all(script.parent().unwrap()).unwrap();
        let text = format!("#!/bin/sh\n[ \"$1\" = --version ] && exec echo by-the-book {version}\n{does}\n");
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let file = directory.path().join("proxy.yaml");
    let description = "name: by-the-book\nversion: [by-the-book, --version]\nmodes: [iptables]\n\
                       command: [by-the-book, --config, '{config}', '--hostname-override={node}']\n\
                       excused: {sctp: {reason: it has none before (kubernetes#12345), versions: '<1.10'}}\n";
    std::fs::write(&file, description).unwrap();
    let json = directory.path().join("matrix.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.arg("matrix").arg(directory.path().join("versions")).args(["hairpin", "sctp", "--kernel", "host"]);
    command.arg("--proxy").arg(&file).arg("--json").arg(&json).stdin(Stdio::null());
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let output = finish(command, Duration::from_secs(100));
    let (text, said) = (String::from_utf8_lossy(&output.stdout).into_owned(), crate::support::said(&output));
    let unable = said.contains("run as root");
    assert!(!unable || std::env::var_os("CI").is_none(), "{said}");
    if unable {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    for line in ["| scenario | v1.9.0 iptables | v1.10.0 iptables |", "| hairpin | ✓ | **failed** [1](#reason-1) |"] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}{said}");
    }
    assert!(text.contains("it has none before ([kubernetes#12345]("), "{text}");
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let verdict = |scenario: &str, version: &str| {
        let cells = value["cells"].as_array().unwrap();
        let cell = cells.iter().find(|cell| cell["scenario"] == scenario && cell["version"] == version);
        cell.unwrap()["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict("hairpin", "1.9.0"), "passed");
    assert_eq!(verdict("sctp", "1.9.0"), "excused");
    assert_eq!(verdict("hairpin", "1.10.0"), "failed");
}
