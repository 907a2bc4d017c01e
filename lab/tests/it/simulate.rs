//! In the simulator all scenarios pass, twice with the same bytes, and broken rules are noticed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::finish;
use serde_json::Value;

fn svclab(args: &[&str], proxy: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(args).stdin(Stdio::null()).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    if let Some(proxy) = proxy {
        command.arg("--proxy").arg(proxy);
    }
    finish(command, Duration::from_secs(580))
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn files() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let mut files = Vec::new();
    for folder in ["", "seeds", "microvm"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                files.push(path.display().to_string());
            }
        }
    }
    files.sort();
    files
}

fn run(files: &[String], proxy: Option<&Path>) -> Output {
    let args: Vec<&str> = ["run", "--simulate", "--keep-going", "--json", "-"]
        .into_iter()
        .chain(files.iter().map(String::as_str))
        .collect();
    svclab(&args, proxy)
}

fn all(proxy: Option<&Path>) -> Output {
    run(&files(), proxy)
}

#[test]
fn every_scenario_passes_and_prints_the_same_bytes_twice() {
    let output = all(None);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let report: Value = serde_json::from_str(&out(&output)).unwrap();
    let scenarios = report["scenarios"].as_array().unwrap();
    // A quarter suffices: different draws would be the program's fault, not a scenario's.
    let some: Vec<String> = files().into_iter().step_by(4).collect();
    let again: Value = serde_json::from_str(&out(&run(&some, None))).unwrap();
    let first = scenarios.iter().filter(|scenario| some.iter().any(|file| scenario["path"] == **file));
    let first: Vec<String> = first.map(Value::to_string).collect();
    let again: Vec<String> = again["scenarios"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert!(first == again && again.len() >= some.len(), "the same bytes");
    let verdicts = |scenario: &Value| {
        let steps = scenario["steps"].as_array().unwrap().clone();
        steps.into_iter().map(|step| step["verdict"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let steps: Vec<String> = scenarios.iter().flat_map(verdicts).collect();
    let simulated = steps.iter().filter(|verdict| *verdict == "passed").count();
    assert!(simulated > 700, "of {} steps only {simulated} are simulated", steps.len());
    // A step that checks nothing in some mode must name its modes.
    let mut others = steps.iter().filter(|verdict| *verdict != "passed" && *verdict != "not simulated");
    assert!(others.next().is_none(), "{report:#}");
    for scenario in scenarios.iter().filter(|scenario| scenario["name"] == "hairpin") {
        assert!(verdicts(scenario).iter().all(|verdict| verdict == "passed"), "{scenario:#}");
    }
}

/// Requests to a pod or node itself, which need no service's rules.
const NO_SERVICE: [(&str, &str); 25] = [
    ("address-ranges", "a pod reaches another node's pod directly"),
    ("flow-fate", "one to the pod itself"),
    ("flow-fate", "so does that to the pod itself"),
    ("ipvs-ipv6", "the node calls the pod itself"),
    ("localhost-nodeport", "an agent on the node is reached on localhost by the node"),
    ("masquerade-all", "a packet to a pod's own address is not masqueraded"),
    ("node-as-load-balancer", "the other node reaches another port of the node"),
    ("node-as-load-balancer", "so does a pod of the other node"),
    ("node-as-load-balancer", "so does a client outside"),
    ("refusals", "on another address of the same node a program listens on its number"),
    ("refusals", "to the node itself, too"),
    ("service-cidr", "addresses beside it are reached"),
    ("service-cidr", "an address of node-b's answers a pod"),
    ("service-cidr", "and another node"),
    ("service-cidr", "not so over IPv6"),
    ("service-cidr", "the address answers again"),
    ("service-cidr-over-pods", "a pod reaches a pod of another node"),
    ("service-cidr-over-pods", "a pod reaches another node"),
    ("service-counters", "and a pod"),
    ("terminating", "a connection to the pod that will go"),
    ("terminating", "the open one lives"),
    ("vip-of-a-node", "another port of that node is its own"),
    ("vip-of-a-node", "for pods of another node, too"),
    ("vip-of-a-node", "and for another node itself"),
    ("vip-ports", "the program answers at the node's own address"),
];

#[test]
fn without_rules_every_step_that_expects_delivery_fails() {
    let directory = tempfile::tempdir().unwrap();
    let nothing = script(directory.path(), "");
    let report: Value = serde_json::from_str(&out(&all(Some(&nothing)))).unwrap();
    let (mut red, mut exempt, mut unknown) = (0, BTreeSet::new(), Vec::new());
    for scenario in report["scenarios"].as_array().unwrap() {
        let (name, path) = (scenario["name"].as_str().unwrap(), scenario["path"].as_str().unwrap());
        let written = svclab::scenario::load(Path::new(path), 0).unwrap();
        for step in scenario["steps"].as_array().unwrap() {
            let called = step["name"].as_str().unwrap();
            let expect = &written.steps.iter().find(|one| one.name == called).unwrap().expect;
            let no_answer = expect.refused.is_some() || expect.dropped.is_some() || expect.unanswered.is_some();
            let no_answer = no_answer || expect.alive == Some(false) || expect.reset.is_some();
            let sends = ["probe", "connect", "send"].contains(&step["action"].as_str().unwrap());
            match step["verdict"].as_str().unwrap() {
                "failed" | "error" => red += 1,
                "passed" if sends && !no_answer => match NO_SERVICE.iter().find(|known| **known == (name, called)) {
                    Some(known) => drop(exempt.insert(known)),
                    None => unknown.push(format!("{name}: {called}")),
                },
                _ => {}
            }
        }
    }
    assert_eq!(unknown, [""; 0], "these steps need no rules");
    assert!(red > 450, "only {red} steps turn red");
    assert_eq!(exempt.len(), NO_SERVICE.len(), "only these need no service: {exempt:?}");
}

/// Returns a svcproxy whose rendered rules pass through `sed`.
fn broken(directory: &Path, edit: &str) -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_svclab")).with_file_name("svcproxy");
    let real = std::env::var("SVCPROXY").unwrap_or_else(|_| beside.display().to_string());
    script(directory, &format!("'{real}' \"$@\" | sed -E '{edit}'"))
}

fn script(directory: &Path, commands: &str) -> PathBuf {
    let path = directory.join("svcproxy");
    fs::write(&path, format!("#!/bin/sh\n{commands}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn broken_rules_are_noticed() {
    let cases = [
        ("hairpin", "iptables", "/MASQUERADE/d", "through the cluster IP"),
        ("hairpin", "ipvs", "/MASQUERADE/d", "through the cluster IP"),
        ("clusterip", "iptables", "s/--probability 0.[0-9]+/--probability 0.9/", "expected"),
        ("clusterip", "iptables", "/--to-destination 10.244.1/d", "expected"),
        ("no-endpoints", "iptables", "s/-j REJECT.*/-j DROP/", "expected"),
        ("source-ranges", "iptables", "s/ -s 172.18.0.110.32//; /KUBE-PROXY-FIREWALL.*DROP/d", "another does not"),
        ("affinity", "iptables", "/--rcheck/d", "expected"),
        ("affinity", "ipvs", "s/ -p [0-9]+//", "expected"),
        ("hairpin", "ipvs", "/^ip addr add/d", "expected"),
        ("microvm/ipvs-ipv6", "ipvs", "s/ preferred_lft 0//", "expected"),
        ("clusterip", "userspace", "s/ to 10.244.1[^ ]*/ to/", "expected"),
        ("affinity", "userspace", "s/ affinity [0-9]+//", "expected"),
        ("userspace-udp-timeout", "userspace", "s/ serving .*//", "stays with its pod"),
        ("loadbalancer", "iptables", "s/direct loadbalancer IP/x/", "10 packets"),
        ("health-check-node-port", "iptables", "s/^(# health check .*) [1-9]/\\1 0/", "status 200"),
        ("vip-ports", "iptables", "s/--dport 443 /--dport 442 /", "open: 80"),
    ];
    for (scenario, mode, edit, says) in cases {
        let directory = tempfile::tempdir().unwrap();
        let proxy = broken(directory.path(), edit);
        let output = svclab(&["run", scenario, "--simulate", "--mode", mode], Some(&proxy));
        let stderr = crate::support::said(&output);
        assert_eq!(output.status.code(), Some(1), "{scenario} in {mode} mode, {edit}: {stderr}");
        assert!(stderr.contains(says) && stderr.contains("--simulate"), "{scenario} in {mode} mode, {edit}: {stderr}");
    }
}

#[test]
fn the_simulator_refuses_unknown_rules() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = broken(directory.path(), "s/-m addrtype --dst-type LOCAL/-m quantum --state both/");
    let output = svclab(&["run", "hairpin", "--simulate", "--mode", "iptables"], Some(&proxy));
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("quantum"), "{}", out(&output));
    let proxy = broken(directory.path(), "s/ to / towards /");
    let output = svclab(&["run", "hairpin", "--simulate", "--mode", "userspace"], Some(&proxy));
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("\"towards\" is not understood"), "{}", out(&output));
}

#[test]
fn explain_prints_the_path_of_a_packet() {
    let directory = tempfile::tempdir().unwrap();
    let drawing = directory.path().join("way.svg").display().to_string();
    let hairpin = ["explain", "--scenario", "hairpin", "--from", "pod/web", "--to", "service/web", "--svg", &drawing];
    let output = svclab(&hairpin, None);
    let svg = fs::read_to_string(&drawing).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("sent by pod/default/web") && svg.ends_with("</svg>\n"), "{svg}");
    let stdout = out(&output);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    for part in [
        "pod/default/web sends tcp",
        "-j KUBE-MARK-MASQ",
        "mark 0x0 becomes 0x4000",
        "DNAT: tcp",
        "SNAT: tcp",
        "and back",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    assert!(stdout.ends_with("always  pod/default/web answers at 10.244.1.2:8080 and sees 10.244.1.1\n"), "{stdout}");
    let mut relayed = hairpin.to_vec();
    relayed.extend(["--mode", "userspace"]);
    let relayed = out(&svclab(&relayed, None));
    for part in ["-j REDIRECT --to-ports", "node/node-a relays what it takes at port", "and sees 10.244.1.1\n"] {
        assert!(relayed.contains(part), "{part}: {relayed}");
    }
    let tree =
        svclab(&["explain", "--scenario", "clusterip", "--from", "pod/client", "--to", "service/web", "--all"], None);
    assert!(out(&tree).contains("+-- probability"), "{}{}", out(&tree), err(&tree));
}

#[test]
fn explain_reads_a_dump_of_another_machine() {
    let directory = tempfile::tempdir().unwrap();
    let (rules, wrong) = (directory.path().join("rules"), directory.path().join("wrong"));
    let text = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:8080\nCOMMIT\n";
    fs::write(&rules, text).unwrap();
    fs::write(&wrong, text.replace("-m tcp", "-m quantum")).unwrap();
    let explain = |rules: &Path, to: &str| {
        let rules = rules.display().to_string();
        svclab(&["explain", "--rules", &rules, "--address", "192.0.2.1/24", "--from", "198.51.100.7", "--to", to], None)
    };
    let output = explain(&rules, "192.0.2.1:80");
    let answers = "\nalways  10.0.0.1 answers at 10.0.0.1:8080 and sees 198.51.100.7\n\nassumed:\n  a program waits at 10.0.0.1:8080\n";
    assert!(out(&output).contains(answers), "{}", out(&output));
    for (rules, to, says) in [(&rules, "service/web", "nothing has a name"), (&wrong, "192.0.2.1:80", "quantum")] {
        let output = explain(rules, to);
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
        assert!(err(&output).contains(says) && !err(&output).contains("panicked"), "{}", err(&output));
    }
}

const CLUSTER: &str = "
name: scenario
about: What is judged.
cluster: {nodes: 1}
manifests: |
  {apiVersion: v1, kind: Pod, metadata: {name: caller}, spec: {nodeName: node-a, containers: [{name: caller}]}}
  ---
  apiVersion: v1
  kind: Pod
  metadata: {name: web, labels: {app: web}}
  spec: {nodeName: node-a, containers: [{name: web, ports: [{containerPort: 80}]}]}
  ---
  {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}
";

/// Simulates steps on a cluster of one service on one node.
fn judged(mode: &str, steps: &str) -> (Option<i32>, Value, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scenario.yaml");
    fs::write(&file, format!("{CLUSTER}steps:\n{steps}")).unwrap();
    let output = svclab(&["run", file.to_str().unwrap(), "--simulate", "--mode", mode, "--json", "-"], None);
    let report: Value = serde_json::from_str(&out(&output)).unwrap_or_default();
    (output.status.code(), report["scenarios"][0]["steps"].clone(), err(&output))
}

#[test]
fn rules_of_another_mode_are_not_judged() {
    let of_ipvs = "- name: a\n  rules: [{at: node-a, chain: KUBE-NODE-PORT, mode: ipvs}]\n";
    let of_both =
        "- name: b\n  rules: [{at: node-a, chain: KUBE-NODE-PORT, mode: ipvs}, {at: node-a, chain: KUBE-SERVICES}]\n";
    let (status, steps, words) = judged("iptables", of_ipvs);
    assert_eq!((status, steps[0]["verdict"].as_str()), (Some(3), Some("not judged")), "{words}");
    assert!(words.contains("nothing was judged"), "{words}");
    let (status, steps, words) = judged("iptables", &format!("{of_ipvs}{of_both}"));
    assert_eq!((status, steps[1]["verdict"].as_str()), (Some(0), Some("passed")), "{words}");
    assert!(words.contains("(1 not judged)"), "{words}");
}

#[test]
fn a_comparison_with_a_skipped_step_is_not_judged() {
    let probe = "probe: {from: pod/caller, to: service/web, count: 3}\n";
    let steps = format!(
        "- name: a\n  modes: [userspace]\n  {probe}  expect: {{answered: web}}\n- name: b\n  {probe}  expect: {{answered: web, sameAs: a}}\n"
    );
    let (status, steps, words) = judged("iptables", &steps);
    assert_eq!((status, steps[0]["verdict"].as_str()), (Some(3), Some("not judged")), "{words}");
    assert!(steps[0]["why"].as_str().unwrap().contains("\"a\""), "{steps}");
}

#[test]
fn reach_has_all_callers_by_all_targets() {
    let output = svclab(&["reach", "source-ranges", "--mode", "nftables"], None);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let table = out(&output);
    let squeezed: Vec<String> =
        table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "5 client/friend",
        "6 client/stranger",
        "service/default/web:80 TCP . . . . - -",
        "nodePort/default/web:80@node-a TCP . . . . . .",
        "loadBalancer/default/web:80 TCP . X X X . X",
    ] {
        assert!(squeezed.iter().any(|found| found == line), "{line}: {table}");
    }
    let both = out(&svclab(&["reach", "dual-stack", "--mode", "nftables"], None));
    let of_family =
        |family: &str| both.lines().filter(|line| line.contains("service/") && line.contains(family)).count();
    assert_eq!([of_family(" TCP IPv4 "), of_family(" UDP IPv6 ")], [2, 1], "{both}");
    // Source ranges are of one family: those of IPv4 have no caller here, and over IPv6 there are none.
    let balanced = |family: &str| {
        both.lines().find(|line| line.contains(&format!("loadBalancer/default/limited:80 TCP {family}"))).unwrap()
    };
    assert!(!balanced("IPv4").contains(" .") && !balanced("IPv6").contains(" X"), "{both}");
    let refused = out(&svclab(&["reach", "no-endpoints", "--mode", "iptables"], None));
    assert!(refused.contains(" R  R  R"), "{refused}");
    let archive = svclab(&["reach", "none.tar", "--mode", "ipvs"], None);
    assert!(archive.status.code() == Some(2) && err(&archive).contains("are for scenarios"), "{}", err(&archive));
}

#[test]
fn a_step_names_what_the_mode_does_not_promise() {
    let step = "- name: a\n  probe: {from: pod/caller, to: service/web, count: 3}\n  expect: {answered: web, sawSource: client}\n";
    let not_promised = "sawSource: client is not promised in userspace mode";
    for (mode, says) in [("iptables", false), ("userspace", true)] {
        let (status, steps, words) = judged(mode, step);
        assert_eq!((status, steps[0]["verdict"].as_str()), (Some(0), Some("passed")), "{words}");
        assert_eq!(steps.to_string().contains(not_promised), says, "{mode}: {steps}");
    }
}
