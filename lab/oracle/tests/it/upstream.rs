//! kube-proxy's packet-flow tests (FEATURES 4.1). `node-a` decides; `caller-a` is its pod.

use serde_json::json;
use svclab_oracle::{DetectLocalMode, NodePortAddress};

use crate::test_cluster::{PORT, TestCluster, ip, net};

fn three() -> TestCluster {
    let add = |cluster: TestCluster, number: u8, policy: &str| {
        let name = format!("svc{number}");
        let spec = format!(
            "{{type: LoadBalancer, clusterIP: 10.96.0.{number}, ports: [{{port: 80, nodePort: 3000{number}}}], {policy}}}"
        );
        let cluster = cluster.balanced(&name, &spec, json!([{ "ip": format!("203.0.113.{number}") }]));
        cluster.slice(&name, PORT, &[&format!("here{number}@node-a"), &format!("there{number}@node-b")])
    };
    let cluster = add(TestCluster::new(), 1, "");
    let cluster = add(cluster, 2, "externalTrafficPolicy: Local");
    add(cluster, 3, "internalTrafficPolicy: Local")
}

/// A cell names the answering endpoints (`both`, or `here` on node-a) and their source (`+` the node's, `-` the
/// client's).
#[test]
fn internal_external_masquerade() {
    // Columns: source, address, service | default | no pod detection | masqueradeAll | both settings
    let table = "
        pod       ClusterIP    1 | both- | both- | both+ | both+
        pod       NodePort     1 | both+ | both+ | both+ | both+
        pod       LoadBalancer 1 | both+ | both+ | both+ | both+
        node      ClusterIP    1 | both+ | both- | both+ | both+
        node      NodePort     1 | both+ | both+ | both+ | both+
        localhost NodePort     1 | both+ | both+ | both+ | both+
        node      LoadBalancer 1 | both+ | both+ | both+ | both+
        external  ClusterIP    1 | both+ | both- | both+ | both+
        external  NodePort     1 | both+ | both+ | both+ | both+
        external  LoadBalancer 1 | both+ | both+ | both+ | both+

        pod       ClusterIP    2 | both- | both- | both+ | both+
        pod       NodePort     2 | both- | here- | both- | here-
        pod       LoadBalancer 2 | both- | here- | both- | here-
        node      ClusterIP    2 | both+ | both- | both+ | both+
        node      NodePort     2 | both+ | both+ | both+ | both+
        localhost NodePort     2 | both+ | both+ | both+ | both+
        node      LoadBalancer 2 | both+ | both+ | both+ | both+
        external  ClusterIP    2 | both+ | both- | both+ | both+
        external  NodePort     2 | here- | here- | here- | here-
        external  LoadBalancer 2 | here- | here- | here- | here-

        pod       ClusterIP    3 | here- | here- | here+ | here+
        pod       NodePort     3 | both+ | both+ | both+ | both+
        pod       LoadBalancer 3 | both+ | both+ | both+ | both+
        node      ClusterIP    3 | here+ | here- | here+ | here+
        node      NodePort     3 | both+ | both+ | both+ | both+
        localhost NodePort     3 | both+ | both+ | both+ | both+
        node      LoadBalancer 3 | both+ | both+ | both+ | both+
        external  ClusterIP    3 | here+ | here- | here+ | here+
        external  NodePort     3 | both+ | both+ | both+ | both+
        external  LoadBalancer 3 | both+ | both+ | both+ | both+
    ";
    let settings = [(true, false), (false, false), (true, true), (false, true)];
    let mut flows = 0;
    for row in table.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [from, kind, number] = cells[0].split_whitespace().collect::<Vec<_>>()[..] else { panic!("{row}") };
        for (cell, (told, all)) in cells[1..].iter().zip(settings) {
            let cluster = three().with(|world| {
                world.proxy.masquerade_all = all;
                if !told {
                    world.proxy.detect_local = DetectLocalMode::Off;
                }
            });
            cluster.expect(&flow(from, kind, number, cell));
            flows += 1;
        }
    }
    assert_eq!(flows, 30 * 4);
}

fn flow(from: &str, kind: &str, number: &str, cell: &str) -> String {
    let source = match from {
        "pod" => "pod/caller-a",
        "node" => "node/node-a",
        "localhost" => "loopback/node-a",
        _ => "client/laptop@node-a",
    };
    let to = match (kind, from) {
        ("ClusterIP", _) => format!("10.96.0.{number}:80"),
        ("NodePort", "localhost") => format!("127.0.0.1:3000{number}"),
        ("NodePort", _) => format!("172.18.0.2:3000{number}"),
        _ => format!("203.0.113.{number}:80"),
    };
    let (who, sign) = cell.split_at(4);
    let seen = if sign == "+" { "node-a" } else { "client" };
    // The reply takes another path; kube-proxy's tests check the request only.
    let there = if from == "external" && seen == "client" { "astray" } else { seen };
    let promise = match who {
        "both" => format!("here{number}*1/2>{seen}, there{number}*1/2>{there}"),
        _ => format!("here{number}*1/1>{seen}"),
    };
    format!("{source} | {to} | {promise}")
}

#[test]
fn no_endpoints_reject() {
    let spec = "{type: LoadBalancer, clusterIP: 10.96.0.1, ports: [{port: 80, nodePort: 30001}]}";
    TestCluster::new().balanced("svc", spec, json!([{"ip": "203.0.113.1"}])).expect(
        "
        pod/caller-a         | 10.96.0.1:80     | reject
        pod/caller-a         | 172.18.0.2:30001 | reject
        client/laptop@node-a | 172.18.0.2:30001 | reject
        pod/caller-a         | 203.0.113.1:80   | reject
        client/laptop@node-a | 203.0.113.1:80   | reject
        ",
    );
}

#[test]
fn cluster_ip_general() {
    TestCluster::new()
        .service("svc1", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}")
        .slice("svc1", "[{name: http, port: 80}]", &["one@node-a"])
        .service("svc2", "{clusterIP: 10.96.0.2, ports: [{name: http, port: 80}, {name: https, port: 443}, {name: dns-udp, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}, {name: dns-sctp, port: 53, protocol: SCTP}]}")
        .slice("svc2", "[{name: http, port: 8080}, {name: https, port: 8443}, {name: dns-udp, port: 5353, protocol: UDP}, {name: dns-tcp, port: 53}, {name: dns-sctp, port: 53, protocol: SCTP}]", &["two@node-a", "three@node-b"])
        .expect(
            "
            pod/caller-a | 10.96.0.1:80      | one*1/1>client
            pod/one      | 10.96.0.1:80      | one*1/1>node-a
            pod/caller-a | 10.96.0.2:80      | three*1/2>client, two*1/2>client
            pod/two      | 10.96.0.2:443     | three*1/2>client, two*1/2>node-a
            pod/caller-a | 10.96.0.2:53/UDP  | three*1/2>client, two*1/2>client
            pod/caller-a | 10.96.0.2:53      | three*1/2>client, two*1/2>client
            pod/caller-a | 10.96.0.2:53/SCTP | three*1/2>client, two*1/2>client
            pod/caller-a | 10.96.0.2:80/UDP  | untouched
            pod/caller-a | 10.96.0.1:443     | untouched
            ",
        );
}

#[test]
fn load_balancer() {
    let spec = "{type: LoadBalancer, clusterIP: 10.96.0.1, loadBalancerSourceRanges: ['172.18.0.2/32', ' 172.18.0.100/32'], ports: [{port: 80, nodePort: 30001}]}";
    let ingress = json!([{"ip": "203.0.113.1"}, {"ip": "203.0.113.2"}]);
    let cluster = TestCluster::new().balanced("svc", spec, ingress).slice("svc", PORT, &["here@node-a"]);
    cluster.expect(
        "
        pod/caller-a           | 10.96.0.1:80     | here*1/1>client
        client/laptop@node-a   | 172.18.0.2:30001 | here*1/1>node-a
        client/stranger@node-a | 172.18.0.2:30001 | here*1/1>node-a
        client/laptop@node-a   | 203.0.113.1:80   | here*1/1>node-a
        client/laptop@node-a   | 203.0.113.2:80   | here*1/1>node-a
        client/stranger@node-a | 203.0.113.1:80   | drop
        client/stranger@node-a | 203.0.113.2:80   | drop
        pod/caller-a           | 203.0.113.1:80   | drop
        pod/caller-a           | 203.0.113.2:80   | drop
        node/node-a            | 203.0.113.1:80   | here*1/1>node-a
        node/node-a            | 203.0.113.2:80   | here*1/1>node-a
        client/laptop@node-a=203.0.113.1 | 203.0.113.1:80 | here*1/1>node-a
        client/laptop@node-a=203.0.113.2 | 203.0.113.2:80 | here*1/1>node-a
        ",
    );
}

#[test]
fn node_ports() {
    let cluster = |entries: &[&str], localhost: bool| {
        TestCluster::new()
            .service(
                "svc",
                "{type: NodePort, clusterIPs: [10.96.0.1, 'fd00:96::1'], ports: [{port: 80, nodePort: 30001}]}",
            )
            .family_slice("IPv4", "svc", PORT, &["here@node-a", "there@node-b"])
            .family_slice("IPv6", "svc", PORT, &["here@node-a", "there@node-b"])
            .with(|world| {
                world.nodes[0].addresses.extend([ip("192.168.1.2"), ip("fd00:19::2")]);
                world.proxy.localhost_node_ports = localhost;
                world.proxy.node_port_addresses =
                    entries.iter().map(|text| NodePortAddress::Range(net(text))).collect();
            })
    };
    let both = |seen: &str| format!("here*1/2>{seen}, there*1/2>{seen}");
    // Columns: nodePortAddresses, localhostNodePorts; whether the second IPv4 address, 127.0.0.1 and the second IPv6
    // address answer
    let rows: [(&[&str], bool, bool, bool, bool); 6] = [
        (&[], true, true, true, true),
        (&[], false, true, false, true),
        (&["172.18.0.0/24", "fd00:18::/64"], true, false, false, false),
        (&["172.18.0.0/24", "192.168.1.0/24", "fd00:18::/64", "fd00:19::2/128"], true, true, false, true),
        (&["172.18.0.0/24", "127.0.0.0/8", "fd00:18::/64"], true, false, true, false),
        (&["172.18.0.0/24", "127.0.0.0/8", "fd00:18::/64"], false, false, false, false),
    ];
    for (entries, localhost, second4, loopback, second6) in rows {
        let answer = |answers: bool| if answers { both("node-a") } else { "untouched".to_owned() };
        cluster(entries, localhost).expect(&format!(
            "pod/caller-a         | 10.96.0.1:80         | {}
             pod/caller-a         | [fd00:96::1]:80      | {}
             client/laptop@node-a | 172.18.0.2:30001     | {}
             node/node-a          | 172.18.0.2:30001     | {}
             client/laptop@node-a | 192.168.1.2:30001    | {}
             loopback/node-a      | 127.0.0.1:30001      | {}
             client/laptop@node-a | [fd00:18::2]:30001   | {}
             client/laptop@node-a | [fd00:19::2]:30001   | {}
             loopback/node-a      | [::1]:30001          | untouched",
            both("client"),
            both("client"),
            both("node-a"),
            both("node-a"),
            answer(second4),
            answer(loopback),
            both("node-a"),
            answer(second6),
        ));
    }
}

#[test]
fn external_traffic_policy() {
    let cluster = |policy: &str| {
        let spec = format!(
            "{{type: LoadBalancer, clusterIP: 10.96.0.1, externalIPs: [198.51.100.7], externalTrafficPolicy: {policy}, ports: [{{port: 80, nodePort: 30001}}]}}"
        );
        TestCluster::new().balanced("svc", &spec, json!([{"ip": "203.0.113.1"}])).slice(
            "svc",
            PORT,
            &["here@node-a", "there@node-b without_node"],
        )
    };
    cluster("Local").expect(
        "
        pod/caller-a         | 10.96.0.1:80     | here*1/2>client, there*1/2>client
        pod/caller-a         | 198.51.100.7:80  | here*1/2>client, there*1/2>client
        client/laptop@node-a | 198.51.100.7:80  | here*1/1>client
        pod/caller-a         | 203.0.113.1:80   | here*1/2>client, there*1/2>client
        client/laptop@node-a | 203.0.113.1:80   | here*1/1>client
        pod/caller-a         | 172.18.0.2:30001 | here*1/2>client, there*1/2>client
        client/laptop@node-a | 172.18.0.2:30001 | here*1/1>client
        ",
    );
    cluster("Cluster").expect(
        "
        pod/caller-a         | 10.96.0.1:80     | here*1/2>client, there*1/2>client
        pod/caller-a         | 198.51.100.7:80  | here*1/2>node-a, there*1/2>node-a
        client/laptop@node-a | 198.51.100.7:80  | here*1/2>node-a, there*1/2>node-a
        pod/caller-a         | 203.0.113.1:80   | here*1/2>node-a, there*1/2>node-a
        client/laptop@node-a | 203.0.113.1:80   | here*1/2>node-a, there*1/2>node-a
        pod/caller-a         | 172.18.0.2:30001 | here*1/2>node-a, there*1/2>node-a
        client/laptop@node-a | 172.18.0.2:30001 | here*1/2>node-a, there*1/2>node-a
        ",
    );
}

/// Each row has the endpoints, then the ones that answer a pod at the cluster IP, then the ones that answer an outside
/// host at the load-balancer address under policy Local.
#[test]
fn terminating_endpoints() {
    let rows: [(&[&str], &str, &str); 6] = [
        (&["a@node-a", "b@node-a", "c@node-a terminating serving", "e@node-b"], "a b e", "a b"),
        (&["c@node-a terminating serving", "d@node-a terminating", "e@node-b"], "e", "c"),
        (&["c@node-a terminating serving", "d@node-a terminating", "e@node-b terminating serving"], "c e", "c"),
        (&["e@node-b terminating serving"], "e", "drop"),
        (&["e@node-b"], "e", "drop"),
        (&["a@node-a unready", "d@node-a terminating", "e@node-b unready"], "reject", "reject"),
    ];
    for (endpoints, all, local) in rows {
        for (policy, seen, outside) in [("Cluster", "node-a", all), ("Local", "client", local)] {
            let spec = format!(
                "{{type: LoadBalancer, clusterIP: 10.96.0.1, externalTrafficPolicy: {policy}, ports: [{{port: 80, nodePort: 30001}}]}}"
            );
            let cluster =
                TestCluster::new().balanced("svc", &spec, json!([{"ip": "203.0.113.1"}])).slice("svc", PORT, endpoints);
            cluster.expect(&format!("pod/caller-a | 10.96.0.1:80 | {}", shares(all, "client")));
            cluster.expect(&format!("client/laptop@node-a | 203.0.113.1:80 | {}", shares(outside, seen)));
        }
    }
}

fn shares(names: &str, seen: &str) -> String {
    if matches!(names, "drop" | "reject") {
        return names.to_owned();
    }
    let names: Vec<&str> = names.split(' ').collect();
    let share = |name: &&str| format!("{name}*1/{}>{seen}", names.len());
    names.iter().map(share).collect::<Vec<_>>().join(", ")
}

#[test]
fn load_balancer_modes() {
    for (mode, promise) in
        [(json!(null), "here*1/1>node-a"), (json!("VIP"), "here*1/1>node-a"), (json!("Proxy"), "untouched")]
    {
        TestCluster::new()
            .balanced(
                "svc",
                "{type: LoadBalancer, clusterIP: 10.96.0.1, ports: [{port: 80}]}",
                json!([{"ip": "203.0.113.1", "ipMode": mode}]),
            )
            .slice("svc", PORT, &["here@node-a"])
            .expect(&format!("client/laptop@node-a | 203.0.113.1:80 | {promise}"));
    }
}
