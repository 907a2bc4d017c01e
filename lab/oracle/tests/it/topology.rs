use crate::test_cluster::{PORT, TestCluster};

const ALL: &str = "x*1/3>client, y*1/3>client, z*1/3>client";

fn with(endpoints: &[&str]) -> TestCluster {
    TestCluster::new().service("web", "{clusterIP: 10.96.0.1, ports: [{port: 80}]}").slice("web", PORT, endpoints)
}

/// The calling pod is on node-a, in zone a.
#[test]
fn hints_apply_if_every_endpoint_has_one() {
    let rows: [(&str, [&str; 3], &str, &str); 10] = [
        ("no hints at all", ["x@node-a", "y@node-b", "z@node-c"], ALL, "cluster-policy"),
        ("zones", ["x@node-a zone=a", "y@node-b zone=b", "z@node-c zone=c"], "x*1/1>client", "zone-hints"),
        (
            "several zones each",
            ["x@node-a zone=a zone=b", "y@node-b zone=a", "z@node-c zone=c"],
            "x*1/2>client, y*1/2>client",
            "zone-hints",
        ),
        ("one without", ["x@node-a zone=a", "y@node-b zone=b", "z@node-c"], ALL, "no-hints"),
        ("none for here", ["x@node-a zone=b", "y@node-b zone=b", "z@node-c zone=c"], ALL, "no-hints"),
        (
            "nodes",
            ["x@node-a for=node-a", "y@node-b for=node-b", "z@node-c for=node-a"],
            "x*1/2>client, z*1/2>client",
            "node-hints",
        ),
        (
            "nodes go before zones",
            ["x@node-a for=node-b zone=a", "y@node-b for=node-a zone=b", "z@node-c for=node-c zone=a"],
            "y*1/1>client",
            "node-hints",
        ),
        (
            "no node for here: zones",
            ["x@node-a for=node-b zone=a", "y@node-b for=node-b zone=b", "z@node-c for=node-c zone=b"],
            "x*1/1>client",
            "zone-hints",
        ),
        (
            "one without a node: zones",
            ["x@node-a for=node-a zone=b", "y@node-b zone=a", "z@node-c for=node-c zone=b"],
            "y*1/1>client",
            "zone-hints",
        ),
        (
            "who is not ready has no say",
            ["x@node-a zone=a", "y@node-b unready", "z@node-c zone=c"],
            "x*1/1>client",
            "zone-hints",
        ),
    ];
    for (name, endpoints, promise, rule) in rows {
        eprintln!("{name}");
        with(&endpoints).expect(&format!("pod/caller-a | 10.96.0.1:80 | {promise} | {rule}"));
    }
}

#[test]
fn a_node_without_a_zone_ignores_zone_hints() {
    let mut cluster = with(&["x@node-a zone=a", "y@node-b zone=b", "z@node-c zone=c"]);
    cluster.objects.nodes[0].metadata.labels = None;
    cluster.expect(&format!("pod/caller-a | 10.96.0.1:80 | {ALL} | no-hints"));
}

#[test]
fn the_fallback_ignores_hints() {
    let cluster = with(&[
        "x@node-a terminating serving zone=a",
        "y@node-b terminating serving zone=b",
        "z@node-c unready zone=a",
    ]);
    cluster.expect("pod/caller-a | 10.96.0.1:80 | x*1/2>client, y*1/2>client | terminating");
}

#[test]
fn policy_local_ignores_hints() {
    let spec = "{clusterIP: 10.96.0.1, internalTrafficPolicy: Local, externalTrafficPolicy: Local, externalIPs: [198.51.100.7], ports: [{port: 80}]}";
    let cluster = TestCluster::new().service("web", spec).slice(
        "web",
        PORT,
        &["x@node-a zone=b", "y@node-b zone=a", "z@node-c zone=c"],
    );
    cluster.expect(
        "
        pod/caller-a         | 10.96.0.1:80    | x*1/1>client | internal-local
        pod/caller-a         | 198.51.100.7:80 | y*1/1>client | zone-hints
        client/laptop@node-a | 198.51.100.7:80 | x*1/1>client | local-before-hints
        ",
    );
}
