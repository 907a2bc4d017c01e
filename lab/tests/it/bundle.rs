//! A failed step leaves a bundle.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::finish;
use serde_json::Value;
use svclab_snapshot::Snapshot;

/// `other` is no endpoint of the service, so the step fails.
const WRONG: &str = "\
name: wrong
about: A promise that no proxy keeps.
cluster: {nodes: 2}
manifests: |
  {apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: web}}, spec: {nodeName: node-a, containers: [{name: web, ports: [{containerPort: 8080}]}]}}
  ---
  {apiVersion: v1, kind: Pod, metadata: {name: other}, spec: {nodeName: node-b, containers: [{name: web, ports: [{containerPort: 8080}]}]}}
  ---
  {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}
steps:
- name: another pod answers
  probe: {from: pod/other, to: service/web, count: 2}
  expect: {answered: other}
";

fn svclab(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(arguments).stdin(Stdio::null());
    let output: Output = finish(command, Duration::from_secs(100));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs a failing scenario; returns report, bundle and output. `None`: this machine cannot run it.
fn failed(directory: &Path, text: &str) -> Option<(Value, PathBuf, String)> {
    let (scenario, json) = (directory.join("wrong.yaml"), directory.join("report.json"));
    fs::write(&scenario, text).unwrap();
    let (scenario, report) = (scenario.to_str().unwrap(), json.to_str().unwrap());
    let (status, stdout, stderr) =
        svclab(&["run", scenario, "--keep-going", "--mode", "iptables", "--seed", "5", "--json", report]);
    let stderr = stdout + &stderr;
    let unable = status == Some(3);
    assert!(!unable || std::env::var_os("CI").is_none(), "{stderr}");
    if unable {
        return None;
    }
    assert_eq!(status, Some(1), "{stderr}");
    let report = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    Some((report, directory.join("wrong-iptables-step1"), stderr))
}

/// Returns the destination ports of SYNs without ACK, in a capture with `LINKTYPE_LINUX_SLL2`.
fn syns(capture: &[u8]) -> Vec<u16> {
    let number = |at: usize| u32::from_ne_bytes(capture[at..at + 4].try_into().unwrap());
    assert_eq!((number(0), number(20)), (0xa1b2_c3d4, 276));
    let (mut at, mut ports) = (24, Vec::new());
    while at < capture.len() {
        let length = number(at + 8) as usize;
        let packet = &capture[at + 16..at + 16 + length];
        at += 16 + length;
        let (link, ip) = packet.split_at(20);
        if link[..2] == [8, 0] && ip[9] == 6 {
            let tcp = &ip[usize::from(ip[0] & 0xf) * 4..];
            if tcp[13] & 0x12 == 0x02 {
                ports.push(u16::from_be_bytes([tcp[2], tcp[3]]));
            }
        }
    }
    ports
}

#[test]
fn a_failed_probe_leaves_the_evidence() {
    let directory = tempfile::tempdir().unwrap();
    let Some((report, bundle, stderr)) = failed(directory.path(), WRONG) else { return };
    assert!(!stderr.contains("not kept"), "{stderr}");
    for node in ["node-a", "node-b"] {
        let snapshot = Snapshot::read(File::open(bundle.join(format!("{node}.tar"))).unwrap()).unwrap();
        assert_eq!(snapshot.node_name.as_deref(), Some(node));
        assert_eq!(snapshot.objects.unwrap().services.len(), 1);
        let connections = fs::read_to_string(bundle.join(format!("conntrack-{node}.txt"))).unwrap();
        assert_eq!(connections.contains("dport=80 "), node == "node-b", "{connections}");
        assert!(bundle.join(format!("proxy-{node}.log")).is_file());
    }
    assert_eq!(fs::read_to_string(bundle.join("scenario.yaml")).unwrap(), WRONG);
    let step: Value = serde_json::from_slice(&fs::read(bundle.join("step.json")).unwrap()).unwrap();
    assert_eq!((&step["seed"], &step["step"]["number"]), (&5.into(), &1.into()));
    assert_eq!(step["call"]["node"], "node-b");
    assert!(step["repeat"].as_str().unwrap().contains("--seed 5"), "{step}");

    let told = &report["scenarios"][0]["steps"][0];
    assert_eq!(told["bundle"], bundle.to_str().unwrap());
    let why: Vec<&str> = told["explanation"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(why[0].starts_with("on node-b: always") && why[0].contains("web"), "{why:?}");
    assert!(why[1].contains("DNAT"), "{why:?}");
    assert!(stderr.contains(&format!("why:      {}", why[0])) && !stderr.contains("    log:"), "{stderr}");
    // The caller's node sees the service's port; the endpoint's node sees the endpoint's port.
    for (node, port) in [("node-b", 80), ("node-a", 8080)] {
        let capture = fs::read(bundle.join(format!("capture-{node}.pcap"))).unwrap();
        assert!(syns(&capture).contains(&port), "{node}: {:?}", syns(&capture));
    }
    let explained = fs::read_to_string(bundle.join("explain.txt")).unwrap();
    assert!(explained.contains("KUBE-SERVICES"), "{explained}");
}

/// Two promises that no proxy keeps: one of two endpoints alone answers, and the masqueraded source is the client's.
const TWO_REASONS: &str = "\
name: wrong
about: Promises that no proxy keeps.
cluster: {nodes: 2, clients: [out]}
manifests: |
  {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}}
  ---
  {apiVersion: v1, kind: Pod, metadata: {name: web-1, labels: {app: web}}, spec: {nodeName: node-a, containers: [{name: web, ports: [{containerPort: 80}]}]}}
  ---
  {apiVersion: v1, kind: Pod, metadata: {name: web-2, labels: {app: web}}, spec: {nodeName: node-b, containers: [{name: web, ports: [{containerPort: 80}]}]}}
steps:
- name: only web-1 answers
  probe: {from: node/node-a, to: service/web, count: 40}
  expect: {answered: web-1}
- name: only web-2 answers
  probe: {from: node/node-a, to: service/web, count: 40}
  expect: {answered: web-2}
- name: the client's address is kept
  probe: {from: client/out, to: nodePort/web@node-a, count: 10}
  expect: {answered: [web-1, web-2], sawSource: client}
";

#[test]
fn the_rule_that_is_named_broke_the_promise_of_its_step() {
    let directory = tempfile::tempdir().unwrap();
    let Some((report, ..)) = failed(directory.path(), TWO_REASONS) else { return };
    let decided: Vec<&str> = (0..3)
        .map(|step| {
            let told = &report["scenarios"][0]["steps"][step]["explanation"];
            told.as_array().unwrap().last().unwrap().as_str().unwrap()
        })
        .collect();
    for (line, address) in decided.iter().zip(["10.244.2.2:80", "10.244.1.2:80"]) {
        let translates = line.starts_with("decided by rule ") && line.contains(" in table nat: ");
        assert!(translates && line.ends_with(&format!("-j DNAT --to-destination {address}")), "{line}");
    }
    let source = decided[2];
    assert!(source.starts_with("masqueraded by rule ") && source.contains("-j MASQUERADE"), "{source}");
}

#[test]
fn a_bundle_is_explained_and_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_, bundle, _)) = failed(directory.path(), WRONG) else { return };
    let path = bundle.to_str().unwrap();
    let (status, stdout, stderr) = svclab(&["explain", path]);
    assert_eq!((status, stdout), (Some(0), fs::read_to_string(bundle.join("explain.txt")).unwrap()), "{stderr}");
    let (status, _, stderr) = svclab(&["explain", path, "--from", "node"]);
    assert_eq!(status, Some(0), "{stderr}");
    let (status, _, stderr) = svclab(&["explain", bundle.join("node-a.tar").to_str().unwrap()]);
    assert!(status == Some(2) && stderr.contains("--from is missing"), "{stderr}");

    fs::remove_file(directory.path().join("wrong.yaml")).unwrap();
    let (status, stdout, stderr) = svclab(&["replay", path]);
    let stderr = stdout + &stderr;
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("--seed 5 --mode iptables") && stderr.contains("FAIL another pod answers"), "{stderr}");
    let (status, _, stderr) = svclab(&["replay", directory.path().to_str().unwrap()]);
    assert!(status == Some(2) && stderr.contains("no bundle of a failed step"), "{stderr}");
}
