use serde_json::json;

use crate::test_cluster::{PORT, TestCluster};

fn web() -> TestCluster {
    TestCluster::new().service("web", "{clusterIP: 10.96.0.1, ports: [{port: 80}]}")
}

fn with(endpoints: &[&str]) -> TestCluster {
    web().slice("web", PORT, endpoints)
}

/// Sources: API EndpointConditions and KEP-1669.
#[test]
fn ready_endpoints_come_before_terminating_ones() {
    let rows: [(&[&str], &str); 8] = [
        (&["x@node-a", "y@node-b"], "x*1/2>client, y*1/2>client"),
        (&["x@node-a", "y@node-b unready"], "x*1/1>client"),
        (&["x@node-a", "y@node-b terminating serving"], "x*1/1>client"),
        (&["x@node-a unready", "y@node-b terminating serving"], "y*1/1>client"),
        (&["x@node-a terminating serving", "y@node-b terminating serving"], "x*1/2>client, y*1/2>client"),
        (&["x@node-a terminating", "y@node-b terminating serving"], "y*1/1>client"),
        (&["x@node-a terminating", "y@node-b unready"], "reject"),
        (&[], "reject"),
    ];
    for (endpoints, promise) in rows {
        with(endpoints).expect(&format!("pod/caller-c | 10.96.0.1:80 | {promise}"));
    }
    with(&["x@node-a", "y@node-b unready"]).expect("pod/caller-c | 10.96.0.1:80 | x*1/1>client | ready");
}

#[test]
fn endpoints_have_target_ports_of_their_own() {
    with(&["x@node-a"])
        .slice("web", "[{port: 9090}]", &["y@node-b"])
        .expect("pod/caller-c | 10.96.0.1:80 | x*1/2>client, y*1/2>client | target-port");
}

#[test]
fn absent_conditions_are_ready_and_serving() {
    let cluster = |conditions: serde_json::Value| {
        let mut cluster = with(&["x@node-a"]);
        let slice = cluster.objects.slices.first_mut().unwrap();
        slice.endpoints.as_mut().unwrap()[0].conditions = serde_json::from_value(conditions).unwrap();
        cluster
    };
    let rows = [
        (json!(null), "x*1/1>client"),
        (json!({}), "x*1/1>client"),
        (json!({"serving": false}), "x*1/1>client"),
        (json!({"ready": false}), "reject"),
        (json!({"ready": false, "terminating": true}), "x*1/1>client"),
        (json!({"ready": false, "terminating": true, "serving": false}), "reject"),
        // With publishNotReadyAddresses the controller sets `ready` on every endpoint.
        (json!({"ready": true, "terminating": true, "serving": false}), "x*1/1>client"),
    ];
    for (conditions, promise) in rows {
        cluster(conditions).expect(&format!("pod/caller-c | 10.96.0.1:80 | {promise}"));
    }
}

#[test]
fn a_copy_in_several_slices_counts_once() {
    with(&["x@node-a", "y@node-b"])
        .slice("web", PORT, &["x@node-a", "z@node-c"])
        .slice("web", "[{port: 9090}]", &["x@node-a"])
        .slice("other", PORT, &["w@node-c"])
        .expect("pod/caller-c | 10.96.0.1:80 | x*1/4>client, x*1/4>client, y*1/4>client, z*1/4>client | merged");
}

/// kubernetes#135266, in any order and for any caller.
#[test]
fn a_new_pod_wins_over_a_terminating_one_with_its_address() {
    for old in ["x@node-a terminating", "x@node-a terminating serving"] {
        for (one, other) in [(old, "x@node-b"), ("x@node-b", old)] {
            let cluster = with(&[one]).slice("web", PORT, &[other]);
            cluster.expect("pod/caller-a | 10.96.0.1:80 | x*1/1>client | reused\npod/caller-b | 10.96.0.1:80 | x*1/1>client | reused");
        }
        with(&[old, "x@node-b unready"]).expect("pod/caller-a | 10.96.0.1:80 | reject | reused");
    }
}

#[test]
fn contradicting_copies_are_undefined() {
    for other in ["x@node-b unready", "x@node-b"] {
        with(&["x@node-a"])
            .slice("web", PORT, &[other])
            .expect("pod/caller-a | 10.96.0.1:80 | undefined | contradiction");
    }
    let cluster = with(&["x@node-a terminating"]).slice("web", PORT, &["x@node-a terminating serving"]);
    cluster.expect("pod/caller-a | 10.96.0.1:80 | undefined | contradiction");
}

#[test]
fn foreign_slices_are_ignored() {
    let marked = |label: &str| {
        let mut cluster = with(&["x@node-a"]);
        let labels = cluster.objects.slices[0].metadata.labels.as_mut().unwrap();
        labels.insert(label.to_owned(), String::new());
        cluster
    };
    for label in ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"] {
        marked(label).expect("pod/caller-a | 10.96.0.1:80 | reject");
    }
    let mut elsewhere = with(&["x@node-a"]);
    elsewhere.objects.slices[0].metadata.namespace = Some("other".to_owned());
    elsewhere.expect("pod/caller-a | 10.96.0.1:80 | reject");
}

#[test]
fn unmatched_slice_ports_reject() {
    for ports in ["[{name: other, port: 8080}]", "[{port: 8080, protocol: UDP}]", "[{name: ''}]", "[{port: 0}]", "[]"] {
        web().slice("web", ports, &["x@node-a"]).expect("pod/caller-a | 10.96.0.1:80 | reject");
    }
    web()
        .slice("web", "[{name: '', port: 8080, protocol: TCP}]", &["x@node-a"])
        .expect("pod/caller-a | 10.96.0.1:80 | x*1/1>client");
}

#[test]
fn an_endpoint_may_be_outside_the_cluster() {
    let mut cluster = with(&["x@node-a"]);
    cluster.objects.slices[0].endpoints.as_mut().unwrap()[0].addresses =
        vec!["192.0.2.7".to_owned(), "192.0.2.8".to_owned()];
    cluster.expect("pod/caller-a | 10.96.0.1:80 | 192.0.2.7:8080*1/1>client");
}
