//! `healthCheckNodePort`.

use serde_json::json;
use svclab_oracle::health_checks;

use crate::lab::Lab;

fn with(kind: &str, policy: &str, endpoints: &[&str]) -> Lab {
    let spec = format!(
        "{{type: {kind}, clusterIP: 10.96.0.1, externalTrafficPolicy: {policy}, healthCheckNodePort: 32000,
          ports: [{{name: a, port: 80}}, {{name: b, port: 81}}]}}"
    );
    let ports = "[{name: a, port: 8080}, {name: b, port: 8081}]";
    Lab::new().balanced("web", &spec, json!([])).slice("web", ports, endpoints)
}

/// Ready endpoints of the node count, once for all ports; those that terminate do not, though they serve.
#[test]
fn who_counts() {
    let rows: [(&[&str], u16, usize); 5] = [
        (&["x@node-a", "y@node-a", "z@node-b"], 200, 2),
        (&["x@node-a", "y@node-a terminating serving"], 200, 1),
        (&["x@node-a terminating serving"], 503, 0),
        (&["x@node-a unready", "z@node-b"], 503, 0),
        (&[], 503, 0),
    ];
    for (endpoints, status, count) in rows {
        let lab = with("LoadBalancer", "Local", endpoints);
        let checks = health_checks(&lab.objects, "node-a");
        let [check] = checks.as_slice() else { panic!("{checks:?}") };
        assert_eq!((check.port, check.status(), check.local_endpoints), (32000, status, count), "{endpoints:?}");
        lab.expect("client/laptop@node-a | 172.18.0.2:32000 | untouched | health-check");
    }
}

#[test]
fn who_has_none() {
    for (kind, policy) in [("LoadBalancer", "Cluster"), ("NodePort", "Local")] {
        let lab = with(kind, policy, &["x@node-a"]);
        assert!(health_checks(&lab.objects, "node-a").is_empty(), "{kind} {policy}");
    }
}
