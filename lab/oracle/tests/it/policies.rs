use serde_json::json;

use crate::test_cluster::{PORT, TestCluster};

#[test]
fn internal_local_reaches_the_nodes_endpoints() {
    TestCluster::web("internalTrafficPolicy: Local", &["x@node-a", "y@node-b", "z@node-b"]).expect(
        "
        pod/caller-a         | 10.96.0.1:80     | x*1/1>client
        pod/caller-b         | 10.96.0.1:80     | y*1/2>client, z*1/2>client
        pod/caller-c         | 10.96.0.1:80     | drop | no-local-endpoints
        node/node-b          | 10.96.0.1:80     | y*1/2>node-b, z*1/2>node-b
        client/laptop@node-a | 10.96.0.1:80     | x*1/1>node-a
        # It is about cluster IPs only.
        pod/caller-c         | 198.51.100.7:80  | x*1/3>node-c, y*1/3>node-c, z*1/3>node-c
        pod/caller-c         | 203.0.113.1:80   | x*1/3>node-c, y*1/3>node-c, z*1/3>node-c
        client/laptop@node-c | 172.18.0.4:30080 | x*1/3>node-c, y*1/3>node-c, z*1/3>node-c
        ",
    );
}

#[test]
fn external_local_restricts_outside_sources() {
    TestCluster::web("externalTrafficPolicy: Local", &["x@node-a", "y@node-b", "z@node-b"]).expect(
        "
        client/laptop@node-a | 203.0.113.1:80   | x*1/1>client
        client/laptop@node-b | 198.51.100.7:80  | y*1/2>client, z*1/2>client
        client/laptop@node-c | 203.0.113.1:80   | drop | no-local-endpoints
        client/laptop@node-c | 198.51.100.7:80  | drop
        client/laptop@node-c | 172.18.0.4:30080 | drop
        lb@node-a            | 172.18.0.2:30080 | x*1/1>client
        # From within the cluster these have policy Cluster.
        pod/caller-c         | 203.0.113.1:80   | x*1/3>client, y*1/3>client, z*1/3>client | short-circuit
        pod/caller-c         | 198.51.100.7:80  | x*1/3>client, y*1/3>client, z*1/3>client
        pod/caller-c         | 172.18.0.4:30080 | x*1/3>client, y*1/3>client, z*1/3>client
        node/node-c          | 203.0.113.1:80   | x*1/3>node-c, y*1/3>node-c, z*1/3>node-c
        loopback/node-c      | 127.0.0.1:30080  | x*1/3>node-c, y*1/3>node-c, z*1/3>node-c
        # A node calls its own addresses from themselves, and this one is in the pods' range.
        node/node-c          | 172.18.0.4:30080 | x*1/3>node-c, y*1/3>node-c, z*1/3>node-c
        node/node-c          | 10.244.3.1:30080 | x*1/3>client, y*1/3>client, z*1/3>client
        # A node is a stranger to another's node port.
        node/node-c          | 172.18.0.2:30080 | x*1/1>client
        # It is not about cluster IPs.
        pod/caller-c         | 10.96.0.1:80     | x*1/3>client, y*1/3>client, z*1/3>client
        client/laptop@node-c | 10.96.0.1:80     | x*1/3>node-c, y*1/3>node-c, z*1/3>node-c
        ",
    );
}

/// The packet keeps its source address, so the reply goes to the pod directly.
#[test]
fn a_pods_call_of_another_nodes_port_may_go_astray() {
    TestCluster::web("externalTrafficPolicy: Local", &["x@node-a", "y@node-b"])
        .expect("pod/caller-c | 172.18.0.2:30080 | x*1/2>client, y*1/2>astray | astray");
}

#[test]
fn both_local_policies_combine() {
    let both = "internalTrafficPolicy: Local, externalTrafficPolicy: Local";
    TestCluster::web(both, &["x@node-a", "y@node-b"]).expect(
        "
        pod/caller-a         | 10.96.0.1:80   | x*1/1>client
        pod/caller-c         | 10.96.0.1:80   | drop
        client/laptop@node-c | 203.0.113.1:80 | drop
        pod/caller-c         | 203.0.113.1:80 | x*1/2>client, y*1/2>client
        ",
    );
}

#[test]
fn without_endpoints_every_address_rejects() {
    for policies in ["", "internalTrafficPolicy: Local", "externalTrafficPolicy: Local"] {
        TestCluster::web(policies, &["x@node-a unready", "y@node-b terminating"]).expect(
            "
            pod/caller-a         | 10.96.0.1:80     | reject | no-endpoints
            node/node-b          | 10.96.0.1:80     | reject
            client/laptop@node-c | 172.18.0.4:30080 | reject
            client/laptop@node-c | 203.0.113.1:80   | reject
            client/laptop@node-c | 198.51.100.7:80  | reject
            ",
        );
    }
}

/// Each node falls back to its own terminating endpoints.
#[test]
fn under_local_terminating_local_endpoints_serve() {
    let cluster = TestCluster::web(
        "externalTrafficPolicy: Local, internalTrafficPolicy: Local",
        &["x@node-a terminating serving", "y@node-b"],
    );
    cluster.expect(
        "
        client/laptop@node-a | 203.0.113.1:80 | x*1/1>client | terminating
        client/laptop@node-b | 203.0.113.1:80 | y*1/1>client
        pod/caller-a         | 10.96.0.1:80   | x*1/1>client
        pod/caller-a         | 203.0.113.1:80 | y*1/1>client
        ",
    );
}

#[test]
fn an_endpoint_without_a_node_is_never_local() {
    TestCluster::web("externalTrafficPolicy: Local", &["x@node-a without_node"]).expect(
        "
        client/laptop@node-a | 203.0.113.1:80 | drop | without-node
        pod/caller-a         | 203.0.113.1:80 | x*1/1>client
        ",
    );
}

#[test]
fn the_external_policy_does_not_apply_to_cluster_ips() {
    TestCluster::new()
        .service("web", "{clusterIP: 10.96.0.1, externalTrafficPolicy: Local, ports: [{port: 80}]}")
        .slice("web", PORT, &["x@node-a"])
        .expect("client/laptop@node-c | 10.96.0.1:80 | x*1/1>node-c");
}

#[test]
fn source_ranges_restrict_load_balancer_addresses() {
    let ranges = "loadBalancerSourceRanges: [' 172.18.0.100/32 ', 172.18.0.2/32, 10.244.2.0/24]";
    TestCluster::web(ranges, &["x@node-a"]).expect(
        "
        client/laptop@node-b           | 203.0.113.1:80   | x*1/1>node-b | source-ranges
        client/stranger@node-b         | 203.0.113.1:80   | drop         | source-ranges
        pod/caller-a                   | 203.0.113.1:80   | drop
        pod/caller-b                   | 203.0.113.1:80   | x*1/1>node-b
        node/node-a                    | 203.0.113.1:80   | x*1/1>node-a
        node/node-b                    | 203.0.113.1:80   | drop
        # What comes back from the load balancer with its own address, on a node that is listed.
        client/stranger@node-a=203.0.113.1 | 203.0.113.1:80 | x*1/1>node-a | source-ranges-own-node
        client/stranger@node-b=203.0.113.1 | 203.0.113.1:80 | drop
        # All other addresses are open.
        client/stranger@node-b         | 172.18.0.3:30080 | x*1/1>node-b
        client/stranger@node-b         | 198.51.100.7:80  | x*1/1>node-b
        pod/caller-a                   | 10.96.0.1:80     | x*1/1>client
        ",
    );
    TestCluster::web(&format!("{ranges}, externalTrafficPolicy: Local"), &["x@node-a"]).expect(
        "
        pod/caller-b           | 203.0.113.1:80 | x*1/1>client
        pod/caller-c           | 203.0.113.1:80 | drop
        client/stranger@node-c | 203.0.113.1:80 | drop
        client/laptop@node-c   | 203.0.113.1:80 | drop
        ",
    );
    TestCluster::web(ranges, &[]).expect(
        "
        client/laptop@node-b   | 203.0.113.1:80 | reject
        client/stranger@node-b | 203.0.113.1:80 | refuse
        ",
    );
}

#[test]
fn annotated_ranges_restrict_node_ports_and_external_ips() {
    let annotated = |ranges: &str| {
        let mut cluster = TestCluster::web("internalTrafficPolicy: Cluster", &["x@node-a"]);
        let annotations = cluster.objects.services[0].metadata.annotations.get_or_insert_default();
        annotations.insert("svcproxy/source-ranges".to_owned(), ranges.to_owned());
        cluster
    };
    let ranges = "172.18.0.100/32, 172.18.0.2/32, 10.244.2.0/24";
    annotated(ranges).expect(
        "
        client/laptop@node-b   | 172.18.0.3:30080 | x*1/1>node-b | annotated-source-ranges
        client/laptop@node-b   | 198.51.100.7:80  | x*1/1>node-b | annotated-source-ranges
        client/stranger@node-b | 172.18.0.3:30080 | drop         | annotated-source-ranges
        client/stranger@node-b | 198.51.100.7:80  | drop         | annotated-source-ranges
        pod/caller-a           | 172.18.0.3:30080 | drop
        pod/caller-b           | 172.18.0.2:30080 | x*1/1>node-a
        node/node-a            | 172.18.0.2:30080 | x*1/1>node-a
        node/node-b            | 172.18.0.3:30080 | drop
        # All other addresses are open.
        client/stranger@node-b | 203.0.113.1:80   | x*1/1>node-b
        pod/caller-a           | 10.96.0.1:80     | x*1/1>client
        ",
    );
    annotated("2001:db8::/32").expect("client/laptop@node-b | 172.18.0.3:30080 | drop | annotated-source-ranges");
    annotated("172.18.0.2").expect("client/stranger@node-b | 172.18.0.3:30080 | x*1/1>node-b | node-port");
}

#[test]
fn ranges_of_one_family_leave_the_other_open() {
    let spec = "{type: LoadBalancer, clusterIPs: [10.96.0.1, 'fd00:96::1'], loadBalancerSourceRanges: [192.0.2.0/24], ports: [{port: 80}]}";
    TestCluster::new()
        .balanced("web", spec, json!([{"ip": "203.0.113.1"}, {"ip": "2001:db8::1"}]))
        .family_slice("IPv4", "web", PORT, &["x@node-a"])
        .family_slice("IPv6", "web", PORT, &["x@node-a"])
        .expect(
            "
            client/laptop@node-a | 203.0.113.1:80   | drop
            client/laptop@node-a | [2001:db8::1]:80 | x*1/1>node-a | source-ranges-family
            ",
        );
}
