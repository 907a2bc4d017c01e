//! Audits on the real kernel: fresh rules have no finding, broken rules are found and named.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::support::runs::{Run, run};
use crate::support::{descends, eventually, finish, said};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const MANIFESTS: &str = r#"
  apiVersion: v1
  kind: Pod
  metadata: {name: caller}
  spec: {nodeName: node-a, containers: [{name: client}]}
  ---
  apiVersion: v1
  kind: Pod
  metadata: {name: web-1, labels: {app: web}}
  spec: {nodeName: node-a, containers: [{name: web, ports: [{containerPort: 8080}]}]}
  ---
  apiVersion: v1
  kind: Pod
  metadata: {name: web-2, labels: {app: web, on: b}}
  spec: {nodeName: node-b, containers: [{name: web, ports: [{containerPort: 8080}]}]}
  ---
  apiVersion: v1
  kind: Pod
  metadata: {name: host, labels: {app: host}}
  spec: {nodeName: node-a, hostNetwork: true, containers: [{name: web, ports: [{containerPort: 9100}]}]}
  ---
  apiVersion: v1
  kind: Service
  metadata: {name: web}
  spec: {type: LoadBalancer, selector: {app: web}, sessionAffinity: ClientIP, externalIPs: [198.51.100.7], ports: [{port: 80, targetPort: 8080}]}
  ---
  apiVersion: v1
  kind: Service
  metadata: {name: local}
  spec: {type: NodePort, externalTrafficPolicy: Local, selector: {on: b}, ports: [{port: 80, targetPort: 8080}]}
  ---
  apiVersion: v1
  kind: Service
  metadata: {name: host}
  spec: {selector: {app: host}, ports: [{port: 9100}]}
  ---
  apiVersion: v1
  kind: Service
  metadata: {name: nobody}
  spec: {selector: {app: nobody}, ports: [{port: 80}]}
"#;

pub(crate) fn svclab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(args).stdin(Stdio::null()).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command
}

pub(crate) struct LiveLab {
    child: Child,
    inner: String,
}

impl Drop for LiveLab {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

impl LiveLab {
    fn up(mode: &str, variant: &str) -> Option<LiveLab> {
        LiveLab::with_nodes(mode, variant, 2)
    }

    /// Starts a lab; `None`: this machine cannot run labs, which fails in CI.
    pub(crate) fn with_nodes(mode: &str, variant: &str, nodes: usize) -> Option<LiveLab> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("audited.yaml");
        let scenario = format!(
            "name: audited\nabout: A cluster to be audited.\nmodes: [{mode}]\ncluster: {{nodes: {nodes}, clients: [laptop], loadBalancer: true}}\n\
             manifests: |{MANIFESTS}\nsteps:\n- name: it answers\n  probe: {{from: pod/caller, to: service/web, count: 1}}\n  \
             expect: {{answered: [web-1, web-2]}}\n"
        );
        std::fs::write(&file, scenario).unwrap();
        let mut up = svclab(&["up", "--iptables-variant", variant, file.to_str().unwrap()]);
        let mut child = up.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        if lines.next().is_none() {
            let code = child.wait().unwrap().code();
            assert!(code == Some(3) && std::env::var_os("CI").is_none(), "svclab up ended: {code:?}");
            return None;
        }
        // Later output must not block the lab.
        std::thread::spawn(move || lines.for_each(drop));
        let running = svclab_netns::enter::running();
        let inner = running.iter().find(|place| descends(place.pid, child.id())).map(|place| place.pid.to_string());
        Some(LiveLab { inner: inner.unwrap(), child })
    }

    fn exec(&self, command: &[&str]) -> Output {
        finish(self.on("node-a", command), Duration::from_secs(60))
    }

    pub(crate) fn on(&self, node: &str, command: &[&str]) -> Command {
        let place = format!("node/{node}");
        svclab(&[&["exec", "--pid", &self.inner, &place, "--"][..], command].concat())
    }

    fn must(&self, command: &[&str]) {
        let output = self.exec(command);
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn audit(&self) -> (Option<i32>, serde_json::Value) {
        let output = self.exec(&[env!("CARGO_BIN_EXE_svclab"), "audit", "--live", "--settle", "0", "--format", "json"]);
        let report = serde_json::from_slice(&output.stdout);
        let report = report.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code(), report)
    }

    fn audit_until_clean(&self) -> serde_json::Value {
        let mut clean = None;
        eventually("nothing is wrong", || match self.audit() {
            (Some(0), report) => {
                clean = Some(report);
                true
            }
            (status, report) => {
                println!("{status:?}: {report:#}");
                false
            }
        });
        clean.unwrap()
    }

    /// Breaks rules that the stopped proxy does not repair, and waits until the audit finds the damage.
    fn is_found(&self, command: &[&str], kind: &str) {
        self.must(&["pkill", "-STOP", "-f", "svcproxy.*node-a"]);
        self.must(command);
        eventually(&format!("a finding {kind}"), || {
            let (status, report) = self.audit();
            println!("{status:?}: {report:#}");
            let found = |finding: &serde_json::Value| finding["kind"] == kind;
            status == Some(1) && report["findings"].as_array().unwrap().iter().any(found)
        });
    }
}

/// Runs `--live` while a rule is broken, and `--watch` before and after.
#[test]
fn a_live_audit_finds_what_stays_broken_and_watches_until_a_signal() {
    let Some(lab) = LiveLab::up("nftables", "nft") else { return };
    lab.audit_until_clean();
    let audit = [env!("CARGO_BIN_EXE_svclab"), "audit", "--live", "--settle", "1"];
    assert_eq!(lab.exec(&audit).status.code(), Some(0));
    let place = ["exec", "--pid", &lab.inner, "node/node-a", "--"];
    let mut watch = svclab(&[&place[..], &audit, &["--watch", "1"]].concat());
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("nothing is wrong")));
    lab.must(&["pkill", "-STOP", "-f", "svcproxy.*node-a"]);
    lab.must(&["nft", "flush", "map", "ip", "kube-proxy", "service-ips"]);
    assert!(lines.any(|line| line.starts_with("not-translated: default/web")));
    let broken = lab.exec(&audit);
    assert_eq!(broken.status.code(), Some(1), "{}", String::from_utf8_lossy(&broken.stderr));
    lab.must(&["pkill", "-TERM", "-f", "audit --live --settle 1 --watch 1"]);
    let ended = watch.wait_with_output().unwrap();
    assert!(!String::from_utf8_lossy(&ended.stderr).contains("panicked"), "{ended:?}");
    assert_ne!(ended.status.code(), Some(0), "a signal ends a watch: {ended:?}");
}

#[test]
fn a_live_audit_knows_the_proxys_tables_by_its_description() {
    let Some(lab) = LiveLab::up("nftables", "nft") else { return };
    lab.audit_until_clean();
    let folder = tempfile::tempdir().unwrap();
    // The proxy's program need not be on the node.
    let described = |tables: &str| {
        let file = folder.path().join("proxy.yaml");
        std::fs::write(&file, format!("name: x\ncommand: [no-such-program]\nmodes: [other]\ntables: {tables}\n"))
            .unwrap();
        let audit = [env!("CARGO_BIN_EXE_svclab"), "audit", "--live", "--settle", "0", "--format", "json", "--proxy"];
        let output = lab.exec(&[&audit[..], &[file.to_str().unwrap()]].concat());
        serde_json::from_slice::<serde_json::Value>(&output.stdout).map_err(|_| said(&output))
    };
    let own = described("[ip kube-proxy, ip6 kube-proxy]").unwrap();
    assert_eq!((&own["mode"], &own["findings"]), (&"other".into(), &serde_json::json!([])), "{own:#}");
    assert!(own["coverage"]["total"].as_u64() > Some(0), "{own:#}");
    let anothers = described("[inet my-proxy]").unwrap();
    assert_eq!(anothers["coverage"]["total"], 0, "{anothers:#}");
    let wrong = described("[my-proxy]").unwrap_err();
    assert!(wrong.contains("proxy.yaml: tables: my-proxy: expected a family (ip, "), "{wrong}");
}

#[test]
fn flags_of_a_live_audit_are_refused_with_an_archive() {
    for flag in
        [&["--watch"][..], &["--watch", "5"], &["--kubeconfig", "x"], &["--node-name", "x"], &["--proxy-config", "x"]]
    {
        let output = finish(svclab(&[&["audit", "node.tar"], flag].concat()), Duration::from_secs(60));
        assert_eq!(output.status.code(), Some(2), "{flag:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be used with"), "{output:?}");
    }
}

fn clean_and_broken(mode: &str, variant: &str, command: &[&str], kind: &str) {
    let Some(lab) = LiveLab::up(mode, variant) else { return };
    let report = lab.audit_until_clean();
    assert_eq!(report["mode"], mode);
    assert!(report["calls"].as_u64().unwrap() > 40, "{report:#}");
    assert_eq!(report["notJudged"].as_array().unwrap().len(), 0, "{report:#}");
    lab.is_found(command, kind);
}

#[test]
fn rules_of_iptables_mode() {
    let command = ["iptables-nft", "-t", "nat", "-D", "PREROUTING", "1"];
    clean_and_broken("iptables", "nft", &command, "not-translated");
}

#[test]
fn rules_of_iptables_legacy() {
    let command = ["iptables-legacy", "-t", "nat", "-F", "KUBE-POSTROUTING"];
    clean_and_broken("iptables", "legacy", &command, "source");
}

#[test]
fn elements_of_nftables_mode() {
    let command = ["nft", "flush", "map", "ip", "kube-proxy", "service-ips"];
    clean_and_broken("nftables", "auto", &command, "not-translated");
}

#[test]
fn portals_of_userspace_mode() {
    let command = ["iptables", "-t", "nat", "-F", "KUBE-PORTALS-CONTAINER"];
    clean_and_broken("userspace", "auto", &command, "not-translated");
}

#[test]
fn a_rule_of_another_program_is_named() {
    let Some(lab) = LiveLab::up("nftables", "auto") else { return };
    lab.audit_until_clean();
    lab.must(&["iptables-nft", "-N", "cali-FORWARD"]);
    lab.must(&["iptables-nft", "-A", "cali-FORWARD", "-p", "tcp", "--dport", "8080", "-j", "DROP"]);
    lab.must(&["iptables-nft", "-A", "FORWARD", "-j", "cali-FORWARD"]);
    let (status, report) = lab.audit();
    assert_eq!(status, Some(1));
    let causes: Vec<&str> =
        report["findings"].as_array().unwrap().iter().filter_map(|one| one["cause"].as_str()).collect();
    assert!(causes.iter().any(|cause| cause.starts_with("a rule of Calico catches it")), "{causes:?}");
    assert!(report["findings"][0]["way"].as_str().unwrap().contains("cali-FORWARD"), "{report:#}");
}

#[test]
fn an_archive_is_explained() {
    let Some(lab) = LiveLab::up("iptables", "nft") else { return };
    lab.audit_until_clean();
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("node-a.tar");
    let archive = archive.to_str().unwrap();
    // The node shares the machine's /tmp.
    lab.must(&[env!("CARGO_BIN_EXE_svclab"), "collect", archive]);
    let svg = directory.path().join("way.svg");
    let explain = ["explain", archive, "--from", "outside", "--to", "nodePort/web", "--svg", svg.to_str().unwrap()];
    let output = finish(svclab(&explain), Duration::from_secs(60));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in ["pod/default/web-1 answers", "pod/default/web-2 answers", "1/2", "assumed:", "KUBE-EXT-"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(std::fs::read_to_string(svg).unwrap().contains("pod/default/web"), "names are in the picture");
    let table = finish(svclab(&["reach", archive]), Duration::from_secs(60));
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    let row = table.lines().find(|line| line.starts_with("service/default/web"));
    assert!(row.is_some_and(|row| row.contains(" . ") && !row.contains(['X', 'R'])), "{table}");
    let wrong =
        finish(svclab(&["explain", archive, "--from", "outside", "--to", "service/wab"]), Duration::from_secs(60));
    assert_eq!(wrong.status.code(), Some(2));
}

/// Runs a scenario with `--audit`; `None`: this machine cannot run labs, which fails in CI.
fn audited(name: &str, mode: &str, flags: &[&str]) -> Option<Run> {
    let run = run(name, &[&["--audit", "--kernel", "host", "--mode", mode, "--no-bundle"], flags].concat());
    assert!(run.status != 3 || std::env::var_os("CI").is_none(), "{}", run.stderr);
    (run.status != 3).then_some(run)
}

fn audits(run: &Run) -> Vec<&serde_json::Value> {
    run.scenario["steps"].as_array().unwrap().iter().filter(|step| step["action"] == "audit").collect()
}

#[test]
fn an_audit_finds_nothing_after_any_change_of_a_scenario() {
    let all = [
        ("rolling-update", "iptables", 7),
        ("terminating", "nftables", 5),
        ("restart", "userspace", 6),
        ("switch-between-nftables-and-userspace", "nftables", 4),
        ("dual-stack", "iptables", 1),
        // This scenario has a load balancer's address in the nodes' network.
        ("seeds/my-nginx", "nftables", 1),
    ];
    for (name, mode, count) in all {
        let Some(run) = audited(name, mode, &[]) else { return };
        assert_eq!(run.status, 0, "{name} in {mode} mode: {}", run.stderr);
        let audits = audits(&run);
        assert_eq!(audits.len(), count, "{name} in {mode} mode: {}", run.stderr);
        assert!(audits.iter().all(|step| step["verdict"] == "passed"), "{}", run.stderr);
    }
}

#[test]
fn a_run_fails_if_only_an_audit_fails() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shadowed.yaml");
    let scenario = format!(
        "name: shadowed\nabout: A rule of another program that no probe meets.\ncluster: {{nodes: 2, clients: [laptop], loadBalancer: true}}\n\
         manifests: |{MANIFESTS}\nsteps:\n\
         - name: a drop\n  exec: {{at: node/node-b, command: [iptables, -I, FORWARD, -p, udp, -j, DROP]}}\n\
         - name: and another\n  exec: {{at: node/node-b, command: [iptables, -I, FORWARD, -p, tcp, --dport, '8080', -j, DROP]}}\n\
         - name: a change\n  apply: |\n    {{apiVersion: v1, kind: Service, metadata: {{name: new}}, spec: {{selector: {{app: host}}, ports: [{{port: 9100}}]}}}}\n\
         - name: a probe that does not meet it\n  probe: {{from: pod/caller, to: service/host, count: 1}}\n  expect: {{answered: host}}\n"
    );
    std::fs::write(&file, scenario).unwrap();
    let name = file.with_extension("");
    let name = name.to_str().unwrap();
    let plain = run(name, &["--kernel", "host", "--mode", "iptables", "--no-bundle"]);
    let Some(run) = audited(name, "iptables", &["--keep-going"]) else { return };
    assert_eq!(plain.status, 0, "{}", plain.stderr);
    assert_eq!(run.status, 1, "{}", run.stderr);
    let broken = run.broken();
    assert_eq!(broken.len(), 1, "{broken:?}");
    let (step, why) = &broken[0];
    assert_eq!(step, "audit after \"a change\"");
    assert!(why.contains("no such finding on node-b") && why.contains("dropped: default/"), "{why}");
    assert!(!why.contains("on node-a"), "{why}");
    assert!(run.scenario["repeat"].as_str().unwrap().contains(" --audit "), "{}", run.scenario["repeat"]);
    assert_eq!(audits(&run)[0]["verdict"], "passed");
}
