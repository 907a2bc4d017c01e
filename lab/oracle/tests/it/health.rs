use serde_json::json;
use svclab_oracle::{Family, health_checks};

use crate::test_cluster::TestCluster;

fn with(kind: &str, policy: &str, endpoints: &[&str]) -> TestCluster {
    let spec = format!(
        "{{type: {kind}, clusterIP: 10.96.0.1, externalTrafficPolicy: {policy}, healthCheckNodePort: 32000,
          ports: [{{name: a, port: 80}}, {{name: b, port: 81}}]}}"
    );
    let ports = "[{name: a, port: 8080}, {name: b, port: 8081}]";
    TestCluster::new().balanced("web", &spec, json!([])).slice("web", ports, endpoints)
}

fn answers(cluster: &TestCluster) -> Vec<(Family, u16, Option<u16>, Option<usize>)> {
    let checks = health_checks(&cluster.objects, "node-a").into_iter();
    checks.map(|check| (check.family, check.port, check.status(), check.local_endpoints)).collect()
}

/// The health check counts addresses, not ports, and ready endpoints only.
#[test]
fn ready_local_endpoints_count() {
    let rows: [(&[&str], u16, usize); 6] = [
        (&["x@node-a", "y@node-a", "z@node-b"], 200, 2),
        (&["x@node-a", "y@node-a terminating serving"], 200, 1),
        (&["x@node-a terminating serving"], 503, 0),
        (&["x@node-a unready", "z@node-b"], 503, 0),
        // The pod on node-a has ended; node-b reuses its address.
        (&["x@node-a terminating", "x@node-b"], 503, 0),
        (&[], 503, 0),
    ];
    for (endpoints, status, count) in rows {
        let cluster = with("LoadBalancer", "Local", endpoints);
        assert_eq!(answers(&cluster), [(Family::V4, 32000, Some(status), Some(count))], "{endpoints:?}");
        cluster.expect("client/laptop@node-a | 172.18.0.2:32000 | untouched | health-check");
    }
    let contradicting = with("LoadBalancer", "Local", &["x@node-a", "x@node-a unready"]);
    assert_eq!(answers(&contradicting), [(Family::V4, 32000, None, None)]);
}

#[test]
fn pods_of_all_ports_count_once() {
    let spec = "{type: LoadBalancer, clusterIP: 10.96.0.1, externalTrafficPolicy: Local, healthCheckNodePort: 32000,
        ports: [{name: a, port: 80}, {name: b, port: 81}]}";
    let cluster = TestCluster::new()
        .balanced("web", spec, json!([]))
        .slice("web", "[{name: a, port: 8080}]", &["x@node-a", "both@node-a"])
        .slice("web", "[{name: b, port: 8081}]", &["y@node-a", "both@node-a"]);
    assert_eq!(answers(&cluster), [(Family::V4, 32000, Some(200), Some(3))]);
}

#[test]
fn each_family_answers_for_itself() {
    let spec = "{type: LoadBalancer, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00:96::1'],
        externalTrafficPolicy: Local, healthCheckNodePort: 32000, ports: [{port: 80}]}";
    let cluster = TestCluster::new().balanced("web", spec, json!([])).slice("web", "[{port: 8080}]", &["x@node-a"]);
    let v6 = |status, count| (Family::V6, 32000, Some(status), Some(count));
    assert_eq!(answers(&cluster), [(Family::V4, 32000, Some(200), Some(1)), v6(503, 0)]);
    let both = cluster.family_slice("IPv6", "web", "[{port: 8080}]", &["x@node-a", "y@node-a"]);
    assert_eq!(answers(&both)[1], v6(200, 2));
}

#[test]
fn other_services_have_no_check() {
    for (kind, policy) in [("LoadBalancer", "Cluster"), ("NodePort", "Local")] {
        let cluster = with(kind, policy, &["x@node-a"]);
        assert!(health_checks(&cluster.objects, "node-a").is_empty(), "{kind} {policy}");
    }
}

#[test]
fn a_disputed_port_goes_to_the_oldest_service() {
    let spec = |ip: &str| {
        format!(
            "{{type: LoadBalancer, clusterIP: {ip}, externalTrafficPolicy: Local, healthCheckNodePort: 32000,
            ports: [{{port: 80}}]}}"
        )
    };
    let cluster = TestCluster::new().service("younger", &spec("10.96.0.1")).made("00:00:05");
    let cluster = cluster.service("older", &spec("10.96.0.2")).made("00:00:01").service("other", &spec("fd00:96::3"));
    let checks = health_checks(&cluster.objects, "node-a").into_iter();
    let checks: Vec<_> = checks.map(|check| (check.service, check.family)).collect();
    assert_eq!(checks, [("older".to_owned(), Family::V4), ("other".to_owned(), Family::V6)]);
}
