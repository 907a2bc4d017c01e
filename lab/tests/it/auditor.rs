//! Auditors on the nodes of a lab: `svclab audit --live --watch SECONDS --listen ADDR --events`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::audit::{LiveLab, svclab};
use crate::support::{eventually, finish, said};

const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];
const ADDRESS: &str = "127.0.0.1:10289";
const PERIOD: Duration = Duration::from_secs(3);
const SETTLE: &str = "1";
/// What collecting, auditing and asking take here, besides the period, on a busy machine without optimisation: a stopped
/// proxy does not answer for its configuration.
const SLACK: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(60);

struct Auditor<'l> {
    lab: &'l LiveLab,
    node: &'static str,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Drop for Auditor<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Auditor<'_> {
    fn start<'l>(lab: &'l LiveLab, node: &'static str, settle: &str) -> Auditor<'l> {
        let period = PERIOD.as_secs().to_string();
        let program = env!("CARGO_BIN_EXE_svclab");
        let command =
            [program, "audit", "--live", "--watch", &period, "--settle", settle, "--listen", ADDRESS, "--events"];
        let mut child = lab.on(node, &command).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line))
        });
        Auditor { lab, node, child, lines }
    }

    fn get(&self, path: &str) -> Option<String> {
        let url = format!("http://{ADDRESS}{path}");
        let output = finish(self.lab.on(self.node, &["curl", "-sSf", &url]), Duration::from_secs(20));
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// The services of each finding.
    fn findings(&self) -> Option<Vec<String>> {
        let report: serde_json::Value = serde_json::from_str(&self.get("/findings")?).unwrap();
        let findings = report["findings"].as_array().unwrap().iter().filter(|finding| finding["known"].is_null());
        Some(findings.map(|finding| format!("{} {}", finding["kind"], finding["services"])).collect())
    }

    fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
    }

    fn after(&self, what: &str, most: Duration, mut condition: impl FnMut(&[String]) -> bool) -> Duration {
        let start = Instant::now();
        loop {
            let findings = self.findings();
            if findings.as_deref().is_some_and(&mut condition) {
                return start.elapsed();
            }
            assert!(start.elapsed() < most, "{}: {what}: not within {most:?}: {findings:?}", self.node);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn run(lab: &LiveLab, node: &str, command: &[&str]) -> Output {
    let output = finish(lab.on(node, command), Duration::from_secs(600));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    output
}

#[test]
fn each_auditor_finds_what_is_broken_on_its_node_and_that_it_is_mended() {
    let Some(lab) = LiveLab::with_nodes("iptables", "nft", 3) else { return };
    let auditors = NODES.map(|node| Auditor::start(&lab, node, SETTLE));
    for auditor in &auditors {
        eventually(&format!("{} is healthy", auditor.node), || auditor.get("/healthz").is_some());
        assert_eq!(auditor.findings().unwrap(), [""; 0]);
        assert!(auditor.metric("svclab_audit_calls{result=\"judged\"}") > 40.0);
    }
    for broken in &auditors {
        let proxy = format!("svcproxy.*{}", broken.node);
        run(&lab, broken.node, &["pkill", "-STOP", "-f", &proxy]);
        run(&lab, broken.node, &["iptables-nft", "-t", "nat", "-F", "KUBE-SERVICES"]);
        let found = broken.after("found", PATIENCE, |findings| findings.iter().any(|one| one.contains("default/web")));
        let events = "svclab_audit_events_total{result=\"sent\"}";
        eventually("Events are sent", || broken.metric(events) >= 1.0);
        let sent = broken.metric(events);
        let audits = "svclab_audit_age_seconds";
        std::thread::sleep(PERIOD);
        assert!(broken.metric(audits) < (PERIOD + SLACK).as_secs_f64());
        // At most five an audit.
        assert!(broken.metric(events) <= 2.0 * 5.0 && sent <= 5.0, "an Event is sent once");
        for other in auditors.iter().filter(|other| other.node != broken.node) {
            assert_eq!(other.findings().unwrap(), [""; 0], "on {} while {} is broken", other.node, broken.node);
        }
        run(&lab, broken.node, &["pkill", "-CONT", "-f", &proxy]);
        let gone = broken.after("gone", PATIENCE, |findings| findings.is_empty());
        println!("{}: found after {found:?}, gone after {gone:?}", broken.node);
        assert_eq!(broken.metric("svclab_audit_events_total{result=\"failed\"}"), 0.0);
    }
    let page = auditors[0].get("/findings.html").unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("node-a"), "{page}");
    one_report_of_all_nodes(&lab);
}

fn one_report_of_all_nodes(lab: &LiveLab) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    run(lab, "node-b", &["pkill", "-STOP", "-f", "svcproxy.*node-b"]);
    run(lab, "node-b", &["iptables-nft", "-t", "nat", "-F", "KUBE-SERVICES"]);
    for node in NODES {
        // Nodes share the machine's /tmp.
        run(lab, node, &[env!("CARGO_BIN_EXE_svclab"), "collect", &path(&format!("{node}.tar"))]);
    }
    std::fs::write(path("node-x.tar"), "not a tar").unwrap();
    std::fs::write(path("notes.txt"), "ignored").unwrap();
    let audit =
        |flags: &[&str]| finish(svclab(&[&["audit", "--settle", "0"], flags].concat()), Duration::from_secs(60));
    let output = audit(&["--cluster", &path(""), "--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["judged"], serde_json::json!(NODES));
    assert_eq!(report["notJudged"][0]["node"], "node-x");
    let somewhere = report["somewhere"].as_array().unwrap();
    assert!(somewhere.iter().any(|finding| finding["kind"] == "not-translated"), "{report:#}");
    assert!(somewhere.iter().all(|finding| finding["nodes"] == serde_json::json!(["node-b"])), "{report:#}");
    assert_eq!(report["different"][0]["nodes"], serde_json::json!(["node-b"]));

    let tars = path("all-nodes");
    let mut tar = std::process::Command::new("tar");
    tar.args(["-C", &path(""), "-cf", &tars, "node-a.tar", "node-c.tar"]);
    assert!(tar.status().unwrap().success());
    let mut command = svclab(&["audit", "--settle", "0", "--cluster", "-"]);
    command.stdin(std::fs::File::open(&tars).unwrap());
    let output = finish(command, Duration::from_secs(60));
    assert!(said(&output).contains("judged 2 of 2 nodes: nothing is wrong"), "{}", said(&output));

    let text = said(&audit(&["--cluster", &path(""), "--format", "html"]));
    assert!(text.contains("--cluster has the forms text, json and markdown"), "{text}");
    let text = said(&audit(&["--cluster", &path("nowhere")]));
    assert!(text.contains("cannot be listed"), "{text}");
    std::fs::create_dir(path("empty")).unwrap();
    let output = audit(&["--cluster", &path("empty")]);
    assert!(output.status.code() == Some(2) && said(&output).contains("there is no NODE.tar"), "{}", said(&output));
}

/// Changes Services and their endpoints through the API.
const CHANGES: &str = r#"
set -e
token=$(sed -n 's/.*"token": "\(.*\)".*/\1/p' "$KUBECONFIG")
url=https://127.0.0.1:6443/api/v1/namespaces/default/services
send() { curl -skSf -o /dev/null -H "Authorization: Bearer $token" "$@"; }
merge() { send -X PATCH -H 'Content-Type: application/merge-patch+json' -d "$2" "$url/$1"; }
i=0
while [ $i -lt "$1" ]; do
    name=changing-$((i / 5 % 7))
    case $((i % 5)) in
        0) send -H 'Content-Type: application/json' -d '{"apiVersion":"v1","kind":"Service","metadata":{"name":"'$name'"},
            "spec":{"selector":{"app":"web"},"ports":[{"port":80,"targetPort":8080}]}}' "$url" ;;
        1) merge $name '{"spec":{"ports":[{"port":81,"targetPort":8080}]}}' ;;
        2) merge $name '{"spec":{"type":"NodePort"}}' ;;
        3) merge $name '{"spec":{"selector":{"app":"nobody"}}}' ;;
        4) send -X DELETE "$url/$name" ;;
    esac
    i=$((i + 1))
done
"#;

/// The number of changes: a thousand take some minutes.
const CHANGES_VARIABLE: &str = "SVCLAB_AUDITOR_CHANGES";

#[test]
fn changes_of_services_raise_no_alarm() {
    let Some(lab) = LiveLab::with_nodes("nftables", "auto", 3) else { return };
    let auditors = NODES.map(|node| Auditor::start(&lab, node, "3"));
    for auditor in &auditors {
        eventually(&format!("{} is healthy", auditor.node), || auditor.get("/healthz").is_some());
    }
    let changes = std::env::var(CHANGES_VARIABLE).unwrap_or_else(|_| "100".to_owned());
    run(&lab, "node-a", &["sh", "-c", CHANGES, "sh", &changes]);
    for auditor in &auditors {
        eventually(&format!("{} is settled", auditor.node), || {
            auditor.metric("svclab_audit_unsettled_addresses") + auditor.metric("svclab_audit_pending_findings") == 0.0
        });
        assert_eq!(auditor.findings().unwrap(), [""; 0]);
        let audits = auditor.metric("svclab_audits_total{result=\"done\"}");
        println!("{}: {audits} audits during {changes} changes", auditor.node);
        assert!(audits >= 3.0);
        assert_eq!(auditor.lines.lock().unwrap()[..], [""; 0], "no finding was ever reported");
    }
}

#[test]
fn wrong_flags_of_an_auditor_are_refused_in_a_sentence() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (flags, status, sentence) in [
        (&["--live", "--listen", "10289"][..], 2, "not an address and a port, such as 127.0.0.1:10289"),
        (&["--live", "--listen", "localhost:10289"], 2, "not an address and a port"),
        (&["--live", "--listen", &taken], 3, "Address already in use"),
        (&["--live", "--listen", "192.0.2.1:10289"], 3, "cannot listen on 192.0.2.1:10289"),
        (&["--live", "--events"], 2, "--events needs --watch or --listen"),
        (&["node.tar", "--listen", ADDRESS], 2, "cannot be used with"),
        (&["--live", "--listen", ADDRESS, "--output", "x"], 2, "cannot be used with"),
    ] {
        let output = finish(svclab(&[&["audit"], flags].concat()), Duration::from_secs(60));
        assert_eq!(output.status.code(), Some(status), "{flags:?}: {}", said(&output));
        assert!(said(&output).contains(sentence), "{flags:?}: {}", said(&output));
    }
}
