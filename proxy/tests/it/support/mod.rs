//! Each test runs in its own network namespace, without root: it executes itself again inside.

pub mod changes;
#[allow(dead_code, reason = "the unit tests of the decoder use it, too")]
pub mod protobuf;
pub mod published;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use svcproxy::config::{Config, DetectLocal, MasqueradeSource, NodePortAddresses, Variant, WriterChoice};
use svcproxy::model::{Change, FlowFate};
use svcproxy::source::read_directory;

/// The environment variable set inside the namespaces.
const INSIDE: &str = "SVCPROXY_TEST_INSIDE";

/// Runs the calling test again in new user, network and mount namespaces, with its own `/run` (which has iptables'
/// lock) and `/sys`. Returns true inside, and false outside after success inside.
///
/// Without namespaces the test fails if `CI` is set, else is skipped.
macro_rules! inside {
    () => {{
        fn here() {}
        let here = std::any::type_name_of_val(&here);
        $crate::support::run_inside(here.trim_start_matches("it::").trim_end_matches("::here"))
    }};
}
pub(crate) use inside;

pub fn run_inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        shell("mount -t tmpfs none /run && mount -t sysfs none /sys && ip link set lo up");
        return true;
    }
    let refused = |why: &str| {
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("NOT RUN: {why}");
        false
    };
    for (probe, why) in [
        (
            "unshare -Urnm ip link add name t0 type veth peer name t1",
            "this machine refuses user and network namespaces",
        ),
        ("command -v iptables-nft-save && command -v iptables-legacy-save", "the package iptables is not installed"),
    ] {
        if !Command::new("sh").args(["-c", probe]).output().is_ok_and(|o| o.status.success()) {
            return refused(why);
        }
    }
    let test = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["-Urnmpf", "--kill-child", "--mount-proc"]).arg(test).args(["--exact", name, "--nocapture"]);
    let status = command.env(INSIDE, "1").status().unwrap();
    assert!(status.success(), "{name} failed inside its namespaces");
    false
}

pub fn shell(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A debug build of the proxy takes over a minute to write thousands of Services on a busy machine. Less than the test
/// runner's limit, which would not say what was waited for.
const PATIENCE: Duration = Duration::from_secs(240);

pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub struct Proxy(pub Child);

impl Proxy {
    /// Starts a proxy, the only program on the health port.
    pub fn start(arguments: &[&str]) -> Proxy {
        Proxy::start_with(&[arguments, &["--healthz-bind-address", "127.0.0.1:10256"]].concat())
    }

    /// Starts a proxy with only these arguments.
    pub fn start_with(arguments: &[&str]) -> Proxy {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svcproxy"));
        Proxy(command.args(arguments).stderr(Stdio::null()).spawn().unwrap())
    }

    pub fn with_path(path: &str, arguments: &[&str]) -> Proxy {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svcproxy"));
        command.args(arguments).args(["--healthz-bind-address", "127.0.0.1:10256"]).env("PATH", path);
        Proxy(command.stderr(Stdio::null()).spawn().unwrap())
    }

    pub fn limited(limit: &str, arguments: &[&str]) -> Proxy {
        let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_svcproxy")]).args(arguments);
        command.args(["--healthz-bind-address", "127.0.0.1:10256"]);
        Proxy(command.stderr(Stdio::null()).spawn().unwrap())
    }

    /// Waits until everything, or this resource version, is in the kernel.
    pub fn synced(&self, version: Option<&str>) {
        wait_for("the proxy to sync", || {
            let body = http_get("127.0.0.1:10256", "/healthz")?;
            let applied = version.is_none_or(|v| body.contains(&format!("\"appliedResourceVersion\":\"{v}\"")));
            (body.starts_with("HTTP/1.1 200") && applied).then_some(())
        });
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn svcproxy(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_svcproxy")).args(arguments).output().unwrap()
}

pub fn http_get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Replaces the file atomically.
pub fn write_file(directory: &Path, name: &str, text: &str) {
    let partial = directory.join(".partial");
    std::fs::write(&partial, text).unwrap();
    std::fs::rename(partial, directory.join(name)).unwrap();
}

pub fn serve(address: &str, answer: fn(&TcpStream) -> String) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let text = answer(&stream);
            let _ = stream.write_all(text.as_bytes());
        }
    });
}

pub fn ask(address: impl ToSocketAddrs) -> std::io::Result<String> {
    let mut text = String::new();
    TcpStream::connect(address)?.read_to_string(&mut text)?;
    Ok(text)
}

pub const WRITERS: [(Variant, WriterChoice); 3] = [
    (Variant::Nft, WriterChoice::Netlink),
    (Variant::Nft, WriterChoice::Commands),
    (Variant::Legacy, WriterChoice::Commands),
];

pub fn cluster_cidrs() -> DetectLocal {
    DetectLocal::ClusterCidr(pod_ranges())
}

fn pod_ranges() -> Vec<IpNet> {
    vec!["10.244.0.0/16".parse().unwrap(), "fd00:244::/64".parse().unwrap()]
}

pub fn masquerade_sources() -> MasqueradeSource {
    MasqueradeSource::Addresses(vec!["172.18.0.2".parse().unwrap(), "fd00:18::2".parse().unwrap()])
}

pub fn configs_of_every_rule() -> [Config; 7] {
    let base = Config { detect_local: cluster_cidrs(), ..Config::for_node("node-a") };
    let loopback = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    [
        base.clone(),
        Config { detect_local: DetectLocal::BridgeInterface("cni0".into()), masquerade_bit: 0, ..base.clone() },
        Config { detect_local: DetectLocal::InterfaceNamePrefix("veth".into()), tcp_be_liberal: true, ..base.clone() },
        Config { masquerade_all: true, localhost_node_ports: false, ..base.clone() },
        Config { flow_fate: FlowFate::Reset, ..base.clone() },
        Config { masquerade_source: masquerade_sources(), no_masquerade: pod_ranges(), ..base.clone() },
        Config { node_port_addresses: NodePortAddresses::Ranges(loopback), count_localhost_node_ports: true, ..base },
    ]
}

pub fn changes_of_every_kind(hosts: &[u8]) -> Vec<Change> {
    let directory = tempfile::tempdir().unwrap();
    write_file(directory.path(), "cluster.json", &every_kind(1, hosts));
    let reading = read_directory(directory.path()).unwrap();
    assert!(reading.problems.is_empty(), "{:?}", reading.problems);
    reading.batch.changes
}

/// Returns a dump of both families without counters and times.
pub fn dump(variant: &str) -> String {
    ["iptables", "ip6tables"]
        .map(|family| shell(&format!("{family}-{variant}-save | grep -v '^#' | sed 's/ \\[[0-9]*:[0-9]*\\]$//'")))
        .concat()
}

/// Returns the sorted lines of a dump without the loopback guard, which outlives iptables mode.
pub fn without_guard(dump: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = dump.lines().filter(|line| !line.contains("KUBE-FIREWALL")).collect();
    lines.sort_unstable();
    lines
}

/// Returns dual-stack objects as one List at this resource version; `hosts` are the last bytes of the endpoints'
/// addresses.
pub fn every_kind(version: u32, hosts: &[u8]) -> String {
    let mut items = Vec::new();
    let mut add = |index: usize, mut spec: serde_json::Value, ingress: serde_json::Value| {
        let name = format!("svc-{index}");
        let merge = spec.as_object_mut().unwrap();
        let [v4, v6] = [format!("10.96.0.{}", index + 1), format!("fd00:96::{}", index + 1)];
        merge.insert("clusterIP".into(), serde_json::json!(v4));
        merge.insert("clusterIPs".into(), serde_json::json!([v4, v6]));
        items.push(serde_json::json!({ "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": "default" }, "spec": spec,
            "status": { "loadBalancer": { "ingress": ingress } } }));
        if index == 0 {
            return; // the one without endpoints
        }
        for (family, prefix) in [("IPv4", "10.244.1."), ("IPv6", "fd00:244::")] {
            let endpoints: Vec<_> = hosts
                .iter()
                .map(|host| {
                    let node = if host % 2 == 0 { "node-a" } else { "node-b" };
                    serde_json::json!({ "addresses": [format!("{prefix}{host}")], "nodeName": node })
                })
                .collect();
            items.push(serde_json::json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": { "name": format!("{name}-{}", family.to_lowercase()), "namespace": "default",
                              "labels": { "kubernetes.io/service-name": name } },
                "addressType": family, "endpoints": endpoints,
                "ports": [{ "name": "a", "port": 8080 }, { "name": "b", "port": 5353, "protocol": "UDP" },
                          { "name": "c", "port": 9, "protocol": "SCTP" }] }));
        }
    };
    let ports = |n: usize| {
        serde_json::json!([{ "name": "a", "port": 80, "nodePort": 30000 + n },
            { "name": "b", "port": 53, "protocol": "UDP", "nodePort": 30100 + n },
            { "name": "c", "port": 99, "protocol": "SCTP", "nodePort": 30200 + n }])
    };
    let cluster_ports = || serde_json::json!([{ "name": "a", "port": 80 }]);
    let none = || serde_json::json!([]);
    let vips = |n: usize| serde_json::json!([{ "ip": format!("198.51.100.{n}") }, { "ip": format!("fd00:5::{n}") }]);
    add(0, serde_json::json!({ "type": "NodePort", "ports": ports(0) }), none());
    add(1, serde_json::json!({ "ports": cluster_ports() }), none());
    add(
        2,
        serde_json::json!({ "ports": cluster_ports(), "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Local" }),
        none(),
    );
    add(3, serde_json::json!({ "type": "NodePort", "ports": ports(3), "externalTrafficPolicy": "Local" }), none());
    add(
        4,
        serde_json::json!({ "type": "LoadBalancer", "ports": ports(4), "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 32004, "loadBalancerSourceRanges": ["192.0.2.0/24", "fd00:c::/64", "10.0.0.0/8"],
            "externalIPs": ["203.0.113.4", "fd00:e::4"] }),
        vips(4),
    );
    add(
        5,
        serde_json::json!({ "type": "LoadBalancer", "ports": ports(5), "loadBalancerSourceRanges": ["0.0.0.0/0", "::/0"] }),
        vips(5),
    );
    serde_json::json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": version.to_string() }, "items": items })
        .to_string()
}
