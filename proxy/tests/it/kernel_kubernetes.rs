//! The proxy with an API server: outages, kernel limits, and memory.

use std::process::{Child, Command};

use crate::kubernetes_source::api::{NODES, SERVICES, SLICES, ScriptedApi};
use crate::support::{Proxy, dump, http_get, inside, shell, svcproxy, wait_for};
use serde_json::{Value, json};

/// Most resident KiB with 5,000 Services of 10 endpoints, without the program's file: a debug build's is large.
const MOST_MEMORY: u64 = 32 << 10;

fn service(index: usize) -> Value {
    let address = format!("10.{}.{}.{}", 96 + index / 65_536, index / 256 % 256, index % 256);
    json!({
        "metadata": {
            "name": format!("web-{index}"), "namespace": "default",
            "annotations": {"note": "x".repeat(200)}, "managedFields": [{"manager": "x".repeat(300)}],
        },
        "spec": {"clusterIP": address, "ports": [{"name": "http", "port": 80}]},
    })
}

fn slice(index: usize, endpoints: usize) -> Value {
    let endpoint = |e: usize| {
        let n = index * endpoints + e;
        json!({
            "addresses": [format!("10.{}.{}.{}", 128 + n / 65_536, n / 256 % 256, n % 256)],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{}", n % 100), "zone": "a",
            "targetRef": {"kind": "Pod", "namespace": "default", "name": format!("web-{index}-{e}")},
        })
    };
    json!({
        "metadata": {
            "name": format!("web-{index}-x"), "namespace": "default",
            "labels": {"kubernetes.io/service-name": format!("web-{index}")},
            "managedFields": [{"manager": "x".repeat(300)}],
        },
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
        "endpoints": (0..endpoints).map(endpoint).collect::<Vec<_>>(),
    })
}

fn applied(version: u64) {
    wait_for("the proxy to apply the slices", || {
        let reply = http_get("127.0.0.1:10256", "/healthz")?;
        let body: Value = serde_json::from_str(reply.split_once("\r\n\r\n")?.1).ok()?;
        let at: u64 = body["appliedResourceVersions"]["endpointslices"].as_str()?.parse().ok()?;
        (reply.starts_with("HTTP/1.1 200") && at >= version).then_some(())
    });
}

fn kilobytes(child: &Child, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn rules_follow_the_api_and_outlive_its_outages() {
    if !inside!() {
        return;
    }
    let runtime = runtime();
    let mut api = runtime.block_on(ScriptedApi::start(None));
    api.put(SERVICES, service(1));
    let version = api.put(SLICES, slice(1, 1));
    let config = tempfile::tempdir_in("/run").unwrap();
    let kubeconfig = config.path().join("kubeconfig");
    let server = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", api.address)}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(&kubeconfig, server.to_string()).unwrap();
    let file = config.path().join("config.yaml");
    let text = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "hostnameOverride": "n1",
        "clientConnection": {"kubeconfig": kubeconfig}, "iptables": {"minSyncPeriod": "10ms"},
        "healthzBindAddress": "127.0.0.1",
    });
    std::fs::write(&file, text.to_string()).unwrap();
    let proxy = Proxy::start_with(&["--config", file.to_str().unwrap(), "--iptables-variant", "nft"]);
    let world = std::sync::Arc::clone(&api.world);
    let starting = || world.lock().unwrap().posted.iter().find(|(_, event)| event["reason"] == "Starting").cloned();
    let (path, event) = wait_for("the Event Starting", starting);
    assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/default/events");
    assert_eq!((&event["type"], &event["action"]), (&"Normal".into(), &"StartKubeProxy".into()));
    let node = (&event["regarding"]["kind"], &event["regarding"]["name"]);
    assert_eq!(node, (&"Node".into(), &"n1".into()));
    applied(version);
    let before = dump("nft");
    assert!(before.contains("10.96.0.1/32") && before.contains("--to-destination 10.128.0.1:8080"), "{before}");
    api.down();
    api.delete(SLICES, "web-1-x");
    shell(
        "iptables-nft -t nat -F KUBE-SERVICES && iptables-nft -t nat -F KUBE-PROXY-CANARY && iptables-nft -t nat -X KUBE-PROXY-CANARY",
    );
    wait_for("the rules to come back", || (dump("nft") == before).then_some(()));
    let version = api.put(SLICES, slice(1, 2));
    api.compact();
    runtime.block_on(api.up());
    applied(version);
    assert!(dump("nft").contains("--to-destination 10.128.0.3:8080"), "{}", dump("nft"));
    drop(proxy);
}

#[test]
fn nothing_is_written_before_the_node_has_a_pod_range() {
    if !inside!() {
        return;
    }
    let runtime = runtime();
    let api = runtime.block_on(ScriptedApi::start(None));
    api.put(SERVICES, service(1));
    let version = api.put(SLICES, slice(1, 1));
    api.put(NODES, json!({"metadata": {"name": "n1"}, "spec": {}}));
    let directory = tempfile::tempdir_in("/run").unwrap();
    let log = directory.path().join("log");
    let flags = format!(
        "--master=http://{} --hostname-override=n1 --detect-local-mode=NodeCIDR --healthz-bind-address=127.0.0.1:10256",
        api.address
    );
    let proxy = Command::new(env!("CARGO_BIN_EXE_svcproxy"))
        .args(flags.split(' '))
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let proxy = Proxy(proxy);
    wait_for("the proxy to say that it waits", || {
        std::fs::read_to_string(&log).unwrap().contains("Node n1 has no podCIDR yet").then_some(())
    });
    let status = |path| http_get("127.0.0.1:10256", path).map(|reply| reply[9..12].to_owned());
    assert_eq!((status("/healthz"), status("/livez")), (Some("503".into()), Some("200".into())));
    assert!(!dump("nft").contains("KUBE-SERVICES"), "{}", dump("nft"));
    api.put(NODES, json!({"metadata": {"name": "n1"}, "spec": {"podCIDRs": ["10.128.0.0/24"]}}));
    applied(version);
    assert!(dump("nft").contains("! -s 10.128.0.0/24"), "{}", dump("nft"));
    let said = std::fs::read_to_string(&log).unwrap().matches("has no podCIDR yet").count();
    assert_eq!(said, 1);
    drop(proxy);
}

#[test]
fn limits_are_set_and_zero_leaves_them() {
    if !inside!() {
        return;
    }
    let read = |name: &str| shell(&format!("cat /proc/sys/net/netfilter/nf_conntrack_{name}")).trim().to_owned();
    let udp = read("udp_timeout");
    let flags = ["--init-only", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=2h"];
    let output = svcproxy(&[&flags[..], &["--conntrack-tcp-be-liberal"]].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(read("tcp_timeout_established"), "7200");
    assert_eq!(read("tcp_timeout_close_wait"), "3600", "the default");
    assert_eq!((read("udp_timeout"), read("tcp_be_liberal")), (udp, "1".to_owned()));
    assert_eq!(shell("cat /proc/sys/net/ipv4/conf/all/route_localnet").trim(), "1");
    // Only the initial network namespace may set the limit: the proxy logs one line and continues.
    let output = svcproxy(&["--init-only", "--conntrack-max-per-core=1", "--conntrack-min=100000000"]);
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{reported}");
    assert_eq!(reported.lines().count(), 1, "{reported}");
    assert!(reported.contains("cannot write the kernel setting net.netfilter.nf_conntrack_max"), "{reported}");
}

#[test]
fn the_conntrack_limit_depends_on_the_nodes_processors() {
    if !inside!() {
        return;
    }
    // Files replace the kernel's settings, which all namespaces share.
    let directory = tempfile::tempdir_in("/run").unwrap();
    let (max, files) = (directory.path().join("max"), directory.path().display());
    shell(&format!(
        "cd {files} && echo 0-5,8,10-11 >online && echo 65536 >max && echo 16384 >buckets
         mount --bind online /sys/devices/system/cpu/online
         mount --bind max /proc/sys/net/netfilter/nf_conntrack_max
         mount --bind buckets /sys/module/nf_conntrack/parameters/hashsize"
    ));
    for (flags, expected) in [
        (["--conntrack-max-per-core=50000", "--conntrack-min=0"], "450000"),
        (["--conntrack-max-per-core=50000", "--conntrack-min=500000"], "500000"),
        (["--conntrack-max-per-core=1048576", "--conntrack-min=0"], "1048576"),
        // The limit is never lowered.
        (["--conntrack-max-per-core=50000", "--conntrack-min=0"], "1048576"),
    ] {
        let output = svcproxy(&[&["--init-only"][..], &flags].concat());
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(std::fs::read_to_string(&max).unwrap().trim(), expected, "{flags:?}");
    }
    assert_eq!(shell("cat /sys/module/nf_conntrack/parameters/hashsize").trim(), "262144");
}

#[test]
fn a_large_cluster_takes_little_memory() {
    if !inside!() {
        return;
    }
    let runtime = runtime();
    let api = runtime.block_on(ScriptedApi::start(None));
    let mut version = 0;
    for index in 0..5_000 {
        api.put(SERVICES, service(index));
        version = api.put(SLICES, slice(index, 10));
    }
    // Drops old events, which a client that lists does not need.
    api.compact();
    let master = format!("http://{}", api.address);
    // Memory is given back after full syncs, and once per sync period.
    let proxy = Proxy::start(&[
        "--master",
        &master,
        "--hostname-override=n1",
        "--iptables-variant=legacy",
        "--iptables-sync-period=5s",
    ]);
    applied(version);
    let is_given_back = || (kilobytes(&proxy.0, "RssAnon:") <= MOST_MEMORY).then_some(());
    wait_for("memory to be given back", is_given_back);
    // Later changes do not increase the memory.
    let mut version = 0;
    for index in 0..50 {
        version = api.put(SLICES, slice(index, 9));
    }
    applied(version);
    wait_for("memory to be given back after changes", is_given_back);
}

#[test]
fn a_sleeping_plugin_delays_nothing() {
    if !inside!() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (kubeconfig, pid) = (directory.path().join("kubeconfig"), directory.path().join("pid"));
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never",
        "args": ["-c", format!("echo $$ > {}; exec sleep 1000", pid.display())]});
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": exec}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    let kubeconfig = kubeconfig.to_string_lossy().into_owned();
    let mut proxy = Proxy::start(&["--kubeconfig", &kubeconfig, "--hostname-override", "node-a"]);
    let pid = wait_for("the plugin", || std::fs::read_to_string(&pid).ok().filter(|pid| pid.ends_with('\n')));
    for _ in 0..5 {
        wait_for("an answer", || http_get("127.0.0.1:10256", "/healthz"));
    }
    shell(&format!("kill -TERM {}", proxy.0.id()));
    let status = wait_for("the end", || proxy.0.try_wait().unwrap());
    assert!(status.success(), "{status}");
    let plugin = format!("/proc/{}/stat", pid.trim());
    let over = |stat: String| stat.is_empty() || stat.contains(") Z ");
    wait_for("the plugin's end", || over(std::fs::read_to_string(&plugin).unwrap_or_default()).then_some(()));
}
