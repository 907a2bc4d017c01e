//! `svcproxy check` and `svcproxy render` with the API.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::kubernetes_source::api::{EVENTS, NODES, RANGES, SERVICES, SLICES, ScriptedApi};
use crate::start::{LoggedProxy, node, ready};
use crate::support::{every_kind, inside, shell, svcproxy, wait_for};

/// Makes the other checks fine.
const FINE: [&str; 5] = [
    "--hostname-override=node-a",
    "--nodeport-addresses=all",
    "--cluster-cidr=10.244.0.0/16,fd00:244::/64",
    "--conntrack-max-per-core=0",
    "--oom-score-adj=0",
];

/// Returns the exit status and the lines.
fn check(flags: &[&str]) -> (i32, Vec<String>) {
    let output = svcproxy(&[&["check"], &FINE[..], flags].concat());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let lines = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    (output.status.code().unwrap(), lines)
}

/// Returns the only line that is not `ok`.
fn complaint(flags: &[&str]) -> (i32, String) {
    let (status, lines) = check(flags);
    let mut complaints: Vec<String> = lines.into_iter().filter(|line| !line.starts_with("ok ")).collect();
    assert_eq!(complaints.len(), 1, "{complaints:#?}");
    (status, complaints.remove(0))
}

fn manifests() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("node.json"), node("node-a")).unwrap();
    let flag = format!("--manifests={}", directory.path().display());
    (directory, flag)
}

/// The tables, without times and counters, and kernel settings of this network namespace.
fn state() -> String {
    let legacy = "for family in ip ip6; do ${family}tables-legacy-save | grep -v '^#' | sed 's/ \\[[0-9:]*\\]$//'; cat /proc/net/${family}_tables_names; done";
    let settings = "grep -rs . /proc/sys/net/ipv4/conf/all /proc/sys/net/ipv4/ip_forward /proc/sys/net/netfilter | grep -v conntrack_count";
    shell(&format!("nft list ruleset; {legacy}; {settings}; ip -o link; ip -o addr"))
}

#[test]
fn a_check_of_a_fine_node_changes_nothing() {
    if !inside!() {
        return;
    }
    let (_directory, manifests) = manifests();
    // The first use of a module makes its kernel settings.
    for mode in ["iptables", "nftables"] {
        check(&[&manifests, "--proxy-mode", mode]);
    }
    let before = state();
    for flags in [
        &["--proxy-mode=iptables", "--iptables-writer=netlink"][..],
        &["--proxy-mode=iptables", "--iptables-writer=commands", "--iptables-variant=nft"],
        &["--proxy-mode=iptables", "--iptables-variant=legacy"],
        &["--proxy-mode=userspace"],
        &["--proxy-mode=nftables"],
        &["--proxy-mode=nftables", "--conntrack-tcp-timeout-established=2h", "--conntrack-tcp-be-liberal"],
    ] {
        let (status, lines) = check(&[&[&manifests[..]], flags].concat());
        assert_eq!(state(), before, "{flags:?}");
        assert_eq!(status, 0, "{flags:?}: {lines:#?}");
        for subject in [
            "configuration",
            "manifests",
            "node",
            "other svcproxy",
            "kube-proxy",
            "limits",
            "kernel settings",
            "tables",
            "capabilities",
            "ports",
        ] {
            assert!(
                lines.iter().any(|line| line.starts_with(&format!("ok       {subject}: "))),
                "{subject}: {lines:#?}"
            );
        }
    }
}

#[test]
fn what_a_start_would_warn_of_is_a_warning() {
    if !inside!() {
        return;
    }
    let (_directory, manifests) = manifests();
    let flags = [&manifests[..], "--proxy-mode=iptables", "--iptables-writer=netlink"];
    shell("iptables-legacy -t mangle -N KUBE-KUBELET-CANARY");
    let (status, line) = complaint(&flags);
    assert_eq!(status, 3);
    assert!(line.starts_with("warning  tables: kubelet uses the legacy tables of iptables on this node"), "{line}");
    shell("iptables-legacy -t mangle -X KUBE-KUBELET-CANARY && iptables-legacy -t nat -N KUBE-SERVICES");
    let before = state();
    let (status, line) = complaint(&flags);
    assert_eq!((status, state()), (3, before));
    assert!(line.contains("the legacy tables of iptables also contain rules of a service proxy"), "{line}");
    shell("iptables-legacy -t nat -X KUBE-SERVICES");
    let taken = std::net::TcpListener::bind("127.0.0.1:10249").unwrap();
    let (status, line) = complaint(&flags);
    assert_eq!(status, 3);
    assert!(
        line.starts_with("warning  ports: cannot listen on 127.0.0.1:10249 for /metrics: Address already in use"),
        "{line}"
    );
    let (status, line) = complaint(&[&flags[..], &["--bind-address-hard-fail"]].concat());
    assert_eq!((status, &line[..15]), (1, "problem  ports:"));
    drop(taken);
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nnewer: 1\nnodePortAddresses: [all]\n\
                clusterCIDR: 10.244.0.0/16,fd00:244::/64\nconntrack: {maxPerCore: 0}\noomScoreAdj: 0\n";
    std::fs::write(file.path(), text).unwrap();
    let output =
        svcproxy(&["check", &manifests, "--hostname-override=node-a", "--config", file.path().to_str().unwrap()]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("warning  configuration: ") && said.contains("newer: there is no such field"), "{said}");
    assert_eq!(output.status.code(), Some(3), "{said}");
}

#[test]
fn what_would_keep_a_start_from_its_work_is_a_problem() {
    if !inside!() {
        return;
    }
    let (directory, manifests) = manifests();
    let flags = [&manifests[..], "--proxy-mode=nftables"];
    let (status, line) = complaint(&[&flags[..], &["--hostname-override=node-b"]].concat());
    assert_eq!(status, 1);
    assert!(line.starts_with("problem  node: there is no Node node-b"), "{line}");
    let (status, line) = complaint(&[&flags[..], &["--detect-local-mode=NodeCIDR"]].concat());
    assert_eq!(status, 1);
    assert!(line.starts_with("problem  node: Node node-a has no podCIDR"), "{line}");
    let (status, line) = complaint(&[&flags[..], &["--conntrack-tcp-timeout-established=-1s"]].concat());
    assert_eq!((status, &line[..23]), (1, "problem  configuration:"));

    let program = directory.path().join("kube-proxy");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let other = Ended(Command::new(&program).arg("600").spawn().unwrap());
    let named =
        format!("problem  kube-proxy: process {} is a kube-proxy; both would write the same rules", other.0.id());
    let (status, line) = wait_for("the process's name", || {
        let (status, lines) = check(&flags);
        (status == 1).then(|| (status, lines.into_iter().find(|line| line.starts_with("problem ")).unwrap()))
    });
    assert!(status == 1 && line.starts_with(&named), "{line}");
    drop(other);

    let without = Command::new("setpriv")
        .args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", env!("CARGO_BIN_EXE_svcproxy"), "check"])
        .args(FINE)
        .args(flags)
        .output()
        .unwrap();
    let said = String::from_utf8(without.stdout).unwrap();
    assert!(
        said.contains("\nproblem  tables: ") && said.contains("\nproblem  capabilities: CAP_NET_ADMIN is missing"),
        "{said}"
    );
    assert_eq!(without.status.code(), Some(1));

    let running = LoggedProxy::start(directory.path(), &["--proxy-mode=nftables"]);
    ready();
    let (status, lines) = check(&flags);
    let problems: Vec<&String> = lines.iter().filter(|line| line.starts_with("problem ")).collect();
    assert_eq!((status, problems.len()), (1, 1), "its ports are warnings: {lines:#?}");
    assert!(problems[0].starts_with("problem  other svcproxy: another svcproxy (process "), "{problems:?}");
    assert!(!running.lines().iter().any(|line| line.contains("existed before")), "the check did not disturb it");
}

/// As in a container with NET_ADMIN alone.
#[test]
fn legacy_tables_that_cannot_be_read_are_named() {
    if !inside!() {
        return;
    }
    let (_directory, manifests) = manifests();
    let said = |mode: &str| {
        let mut without = Command::new("setpriv");
        without.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", env!("CARGO_BIN_EXE_svcproxy"), "check"]);
        let output =
            without.args(FINE).args([&manifests, "--proxy-mode", mode, "--iptables-variant=nft"]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(said("iptables").0, Some(0), "there are none");
    shell("ip6tables-legacy -t nat -N KUBE-SERVICES");
    for mode in ["iptables", "ipvs", "nftables"] {
        let (status, said) = said(mode);
        if mode == "ipvs" && said.contains("cannot reach IPVS in this kernel") {
            continue;
        }
        let line =
            said.lines().find(|line| line.starts_with("warning  tables: ")).unwrap_or_else(|| panic!("{mode}: {said}"));
        assert!(line.contains("cannot be read without CAP_NET_RAW") && line.ends_with("family=IPv6"), "{line}");
        assert_eq!((status, said.matches("warning ").count()), (Some(3), 1), "{mode}: {said}");
    }
}

/// In a container without the host's processes.
#[test]
fn a_kube_proxy_is_known_by_its_ports() {
    if !inside!() {
        return;
    }
    let (_directory, manifests) = manifests();
    let listener = std::net::TcpListener::bind("127.0.0.1:10249").unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            assert!(request[..length].ends_with(b"\r\n\r\n"), "the request arrives in one piece");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\niptables").unwrap();
        }
    });
    let flags = [&manifests[..], "--proxy-mode=nftables", "--metrics-bind-address=127.0.0.1:20249"];
    let (status, line) = complaint(&flags);
    assert_eq!(status, 1);
    assert!(line.starts_with("problem  kube-proxy: port 10249 answers to /proxyMode as kube-proxy does"), "{line}");
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kubeconfig(directory: &Path, api: &ScriptedApi) -> PathBuf {
    let file = directory.join("kubeconfig");
    let text = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", api.address)}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(&file, text.to_string()).unwrap();
    file
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn the_api_is_asked_for_what_the_proxy_needs() {
    if !inside!() {
        return;
    }
    let (runtime, directory) = (runtime(), tempfile::tempdir().unwrap());
    let mut api = runtime.block_on(ScriptedApi::start(None));
    let object = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    api.put(NODES, object(node("node-a")));
    let kubeconfig = format!("--kubeconfig={}", kubeconfig(directory.path(), &api).display());
    let flags = [&kubeconfig[..], "--proxy-mode=nftables"];
    let (status, lines) = check(&flags);
    assert_eq!(status, 0, "{lines:#?}");
    let kinds = "Nodes, Services, EndpointSlices, ServiceCIDRs can be listed and watched";
    assert!(
        lines.iter().any(|line| line.starts_with("ok       Kubernetes API: ") && line.ends_with(kinds)),
        "{lines:#?}"
    );
    assert!(lines.contains(&"ok       clock: within 5 s of the API server's".to_owned()), "{lines:#?}");
    for path in [NODES, SERVICES, SLICES] {
        let (lists, query) = api.asked("list", path);
        assert!(lists == 1 && query.contains("limit=1"), "{path}: {query}");
        assert_eq!(api.asked("watch", path).0, 1, "{path}");
    }
    let world = std::sync::Arc::clone(&api.world);
    let posted: Vec<String> = world.lock().unwrap().posted.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(posted, [format!("{EVENTS}?dryRun=All")], "the server stores nothing");

    for (path, code, expected) in [
        (SERVICES, 403, (1, "problem  Kubernetes API: ", "does not let the proxy list and watch Services (403)")),
        (RANGES, 404, (3, "warning  Kubernetes API: ", "does not serve ServiceCIDRs (404)")),
        (EVENTS, 403, (3, "warning  Kubernetes API: ", "Events cannot be created: (403) on request")),
        ("", 401, (1, "problem  Kubernetes API: ", "does not accept the proxy's credentials (401)")),
    ] {
        world.lock().unwrap().refuse = Some((path, code));
        let (status, line) = complaint(&flags);
        assert_eq!(status, expected.0, "{line}");
        assert!(line.starts_with(expected.1) && line.contains(expected.2), "{line}");
    }
    world.lock().unwrap().refuse = None;

    // Waits until the API can be reached.
    api.down();
    let (status, line) = complaint(&flags);
    assert!(status == 1 && line.contains("nothing listens there (connection refused)"), "{line}");
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_svcproxy"));
    waiting.args(["check", "--wait"]).args(FINE).args(flags).stdout(Stdio::piped());
    let mut waiting = Ended(waiting.spawn().unwrap());
    let mut lines = BufReader::new(waiting.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said: Vec<String> = Vec::new();
    while !said.last().is_some_and(|line| line.starts_with("problem ")) {
        said.push(lines.next().unwrap());
    }
    assert!(waiting.0.try_wait().unwrap().is_none());
    runtime.block_on(api.up());
    let status = wait_for("the check to end", || waiting.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    said.extend(lines);
    let said = said.join("\n");
    assert_eq!(said.matches("problem ").count(), 1, "{said}");
    assert!(said.contains(kinds), "{said}");
}

#[test]
fn a_cluster_is_rendered_as_its_manifests_are() {
    if !inside!() {
        return;
    }
    let (runtime, directory, manifests) = (runtime(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let api = runtime.block_on(ScriptedApi::start(None));
    let cluster: Value = serde_json::from_str(&every_kind(1, &[1, 2])).unwrap();
    for object in cluster["items"].as_array().unwrap() {
        api.put(if object["kind"] == "Service" { SERVICES } else { SLICES }, object.clone());
    }
    api.put(NODES, serde_json::from_str(&node("node-a")).unwrap());
    std::fs::write(manifests.path().join("cluster.json"), cluster.to_string()).unwrap();
    std::fs::write(manifests.path().join("node.json"), node("node-a")).unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig(directory.path(), &api).display());
    let render = |flags: &[&str]| svcproxy(&[&["render", "--hostname-override=node-a"], flags].concat());
    for mode in ["--mode=iptables", "--mode=nftables", "--mode=ipvs"] {
        let of_api = render(&[mode, &kubeconfig]);
        let of_files = render(&[mode, "--manifests", manifests.path().to_str().unwrap()]);
        assert_eq!(String::from_utf8_lossy(&of_api.stderr), "", "{mode}");
        assert!(of_api.status.success() && of_api.stdout.len() > 1000, "{mode}");
        assert_eq!(of_api.stdout, of_files.stdout, "{mode}");
    }
    api.world.lock().unwrap().refuse = Some((SLICES, 403));
    let refused = render(&[&kubeconfig]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("does not let the proxy list and watch EndpointSlices (403)"), "{said}");
    assert_eq!(refused.stdout, b"");
}
