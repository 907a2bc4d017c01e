use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::{Proxy, every_kind, http_get, inside, shell, svcproxy, wait_for, write_file};
use serde_json::{Value, json};

fn metrics() -> String {
    let reply = http_get("127.0.0.1:10249", "/metrics").unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    reply
}

fn value(text: &str, sample: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}

fn applied(version: u32) -> String {
    wait_for("the metric of the applied version", || {
        let text = metrics();
        let at = |family| {
            let sample = format!("svcproxy_applied_resource_version{{ip_family=\"{family}\",kind=\"manifests\"}}");
            value(&text, &sample) == Some(f64::from(version))
        };
        (at("IPv4") && at("IPv6")).then_some(())
    });
    // One scrape may mix metrics from before and after the sync.
    metrics()
}

#[test]
fn metrics_report_the_kernels_state() {
    if !inside!() {
        return;
    }
    shell("ip addr add 192.0.2.1/24 dev lo && ip route add default dev lo");
    for variant in ["nft", "legacy"] {
        let directory = tempfile::tempdir_in("/run").unwrap();
        write_file(directory.path(), "cluster.json", &every_kind(1, &[2, 3]));
        let proxy = Proxy::start(&[
            "--hostname-override=node-a",
            "--cluster-cidr=10.244.0.0/16",
            "--service-counters",
            "--iptables-min-sync-period=10ms",
            "--manifests",
            directory.path().to_str().unwrap(),
            "--iptables-variant",
            variant,
        ]);
        wait_for("the metrics server", || http_get("127.0.0.1:10249", "/healthz"));
        rules_are_counted(variant, &applied(1));

        let services = "svcproxy_service_connections_total";
        let connections = format!(
            "{services}{{ip_family=\"IPv4\",namespace=\"default\",port=\"a\",protocol=\"tcp\",service=\"svc-1\"}}"
        );
        let refused = "svcproxy_service_refused_packets_total{ip_family=\"IPv4\",namespace=\"default\",port=\"a\",\
                       protocol=\"tcp\",reason=\"no_endpoints\",service=\"svc-0\"}";
        assert_eq!((value(&metrics(), &connections), value(&metrics(), refused)), (Some(0.0), Some(0.0)));
        let connect = |address: &str| {
            let address: SocketAddr = address.parse().unwrap();
            TcpStream::connect_timeout(&address, Duration::from_millis(100)).unwrap_err()
        };
        for _ in 0..3 {
            connect("10.96.0.2:80");
        }
        connect("10.96.0.1:80");
        // A busy machine may retransmit a SYN, which counts again without a route.
        let counted = value(&metrics(), &connections);
        assert!(counted >= Some(3.0), "{counted:?}");
        assert!(value(&metrics(), refused) >= Some(1.0), "{}", metrics());
        assert_eq!(value(&metrics(), "kubeproxy_iptables_ct_state_invalid_dropped_packets_total"), Some(0.0));

        // A change of endpoints keeps the counts.
        write_file(directory.path(), "cluster.json", &every_kind(2, &[3, 4, 5]));
        let text = applied(2);
        rules_are_counted(variant, &text);
        assert_eq!(value(&text, &connections), counted);
        assert!(
            value(&text, "kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}") >= Some(1.0)
        );
        assert_eq!(
            value(&text, "kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=\"IPv4\"}"),
            Some(0.0)
        );
        drop(proxy);
        assert!(svcproxy(&["--cleanup", "--iptables-variant", variant]).status.success());
    }
}

fn rules_are_counted(variant: &str, metrics: &str) {
    for (family, command) in [("IPv4", "iptables"), ("IPv6", "ip6tables")] {
        for table in ["filter", "nat"] {
            let rules = shell(&format!("{command}-{variant}-save -t {table} | grep -c '^-A KUBE-'"));
            let sample =
                format!("kubeproxy_sync_proxy_rules_iptables_total{{ip_family=\"{family}\",table=\"{table}\"}}");
            assert_eq!(value(metrics, &sample), rules.trim().parse().ok(), "{family} {table}");
        }
    }
}

#[test]
fn the_proxy_serves_its_mode_and_configuration_and_the_deletion_of_its_node() {
    if !inside!() {
        return;
    }
    let directory = tempfile::tempdir_in("/run").unwrap();
    let node = |taints: Value| {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-a" }, "spec": { "taints": taints },
        });
        node.to_string()
    };
    write_file(directory.path(), "cluster.json", &every_kind(1, &[2, 3]));
    write_file(directory.path(), "node.json", &node(json!([])));
    let manifests = directory.path().to_str().unwrap();
    let flags = ["--hostname-override=node-a", "--manifests", manifests, "--nodeport-addresses=127.0.0.0/8,::1/128"];
    let proxy = Proxy::start(&[&flags[..], &["--metrics-bind-address=127.0.0.1:9099"]].concat());
    proxy.synced(None);
    let get = |path: &str| http_get("127.0.0.1:9099", path).unwrap();
    assert!(get("/proxyMode").ends_with("\r\n\r\niptables"), "{}", get("/proxyMode"));
    let configuration = get("/configz");
    let configuration: Value = serde_json::from_str(configuration.split_once("\r\n\r\n").unwrap().1).unwrap();
    let configuration = &configuration["kubeproxy.config.k8s.io"];
    assert_eq!(configuration["apiVersion"], "kubeproxy.config.k8s.io/v1alpha1");
    assert_eq!(configuration["kind"], "KubeProxyConfiguration");
    assert_eq!(configuration["metricsBindAddress"], "127.0.0.1:9099");
    assert_eq!(get("/healthz").lines().last(), Some("ok"));
    assert!(
        get("/metrics/slis")
            .contains("\nkubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} 1\n")
    );
    assert!(get("/flagz").contains("\nhostname-override=node-a\n"), "{}", get("/flagz"));
    assert!(get("/statusz").contains("\nPaths: /configz /flagz /healthz /metrics /proxyMode\n"), "{}", get("/statusz"));

    // The health check of svc-4 listens only on node port addresses, of which IPv6 has none on loopback here.
    wait_for("the health check", || http_get("127.0.0.1:32004", "/"));
    let listeners = shell("cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == \"0A\" && $2 ~ /:7D04$/ {print $2}'");
    let listeners: Vec<&str> = listeners.lines().collect();
    assert_eq!(listeners, ["0100007F:7D04"]);

    write_file(
        directory.path(),
        "node.json",
        &node(json!([{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }])),
    );
    let health = || http_get("127.0.0.1:10256", "/healthz").unwrap();
    wait_for("the node's end", || health().contains("\"nodeEligible\":false").then_some(()));
    assert!(health().starts_with("HTTP/1.1 503 "), "{}", health());
    assert!(http_get("127.0.0.1:10256", "/livez").unwrap().starts_with("HTTP/1.1 200 "));
    assert!(http_get("127.0.0.1:32004", "/").unwrap().starts_with("HTTP/1.1 200 "), "local endpoints serve on");
    write_file(directory.path(), "node.json", &node(json!([])));
    wait_for("the node's staying", || health().starts_with("HTTP/1.1 200 ").then_some(()));
}

#[test]
fn a_running_proxy_has_no_more_rights_than_it_needs() {
    if !inside!() {
        return;
    }
    let directory = tempfile::tempdir_in("/run").unwrap();
    write_file(directory.path(), "cluster.json", &every_kind(1, &[2, 3]));
    let manifests = directory.path().to_str().unwrap();
    for (metrics, rights) in [("127.0.0.1:10249", "0000000000003000"), ("127.0.0.1:1", "0000000000003400")] {
        let proxy =
            Proxy::start(&["--hostname-override=node-a", "--manifests", manifests, "--metrics-bind-address", metrics]);
        proxy.synced(Some("1"));
        // A thread may end before its status is read.
        let threads = std::fs::read_dir(format!("/proc/{}/task", proxy.0.id())).unwrap();
        let status: String =
            threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("status")).ok()).collect();
        for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
            let of_threads: Vec<&str> =
                status.lines().filter_map(|line| line.strip_prefix(set)).map(str::trim).collect();
            // The log's thread starts first and needs no capability.
            let (log, others): (Vec<&str>, Vec<&str>) =
                of_threads.iter().partition(|caps| **caps == "0000000000000000");
            assert!(others.len() > 1 && others.iter().all(|caps| *caps == rights), "{set} {of_threads:?}");
            assert_eq!(log.len(), 1, "{set} {of_threads:?}");
        }
    }
}
