use serde_json::json;
use svclab_oracle::NodePortAddress;

use crate::test_cluster::{PORT, TestCluster, ip, net};

fn everything() -> TestCluster {
    TestCluster::new()
        .balanced(
            "web",
            "{type: LoadBalancer, clusterIP: 10.96.0.1, externalIPs: [198.51.100.7], ports: [{port: 80, nodePort: 30080}]}",
            json!([{"ip": "203.0.113.1"}, {"ip": "203.0.113.2", "ipMode": "VIP"}, {"ip": "203.0.113.3", "ipMode": "Proxy"},
                   {"hostname": "lb.example.org"}]),
        )
        .slice("web", PORT, &["web@node-a"])
}

#[test]
fn every_address_of_a_service_delivers() {
    everything().expect(
        "
        pod/caller-b           | 10.96.0.1:80         | web*1/1>client | cluster-ip
        pod/caller-b           | 198.51.100.7:80      | web*1/1>node-b | external-ip
        pod/caller-b           | 203.0.113.1:80       | web*1/1>node-b | load-balancer-ip
        pod/caller-b           | 203.0.113.2:80       | web*1/1>node-b | load-balancer-ip
        pod/caller-b           | 203.0.113.3:80       | untouched      | load-balancer-proxies
        pod/caller-b           | 172.18.0.3:30080     | web*1/1>node-b | node-port
        # Another node's address is no concern of this one.
        pod/caller-b           | 172.18.0.4:30080     | web*1/1>node-c | node-port
        # The bridge's address is the node's, too.
        pod/caller-b           | 10.244.2.1:30080     | web*1/1>node-b | node-port
        client/laptop@node-c   | 198.51.100.7:80      | web*1/1>node-c | external-ip
        client/laptop@node-c   | 203.0.113.1:80       | web*1/1>node-c | load-balancer-ip
        # Who sends to a node's address reaches that node, wherever else it would have entered.
        client/laptop@node-c   | 172.18.0.2:30080     | web*1/1>node-a | node-port
        # With ipMode Proxy the load balancer itself connects to the node port.
        lb@node-b              | 172.18.0.3:30080     | web*1/1>node-b | node-port
        # Nobody's.
        pod/caller-b           | 10.96.0.1:81         | untouched      | no-service
        pod/caller-b           | 10.96.0.1:80/UDP     | untouched      | protocols
        pod/caller-b           | 198.51.100.7:30080   | untouched
        pod/caller-b           | 172.18.0.3:80        | untouched
        pod/caller-b           | 10.244.1.5:80        | untouched
        node/node-a            | 172.18.0.3:22        | untouched
        client/laptop@node-a   | 192.0.2.1:80         | untouched
        pod/nobody             | 10.96.0.1:80         | untouched
        ",
    );
}

#[test]
fn services_of_other_proxies_are_untouched() {
    let label = |name: &str| json!({ name: "" });
    let ports = "ports: [{port: 80}]";
    let cluster = TestCluster::new()
        .labelled(
            "others",
            label("service.kubernetes.io/service-proxy-name"),
            &format!("{{clusterIP: 10.96.0.1, {ports}}}"),
            json!([]),
        )
        .service("alias", &format!("{{type: ExternalName, clusterIP: 10.96.0.3, externalName: example.org, {ports}}}"))
        .service("headless", &format!("{{clusterIP: None, externalIPs: [198.51.100.7], {ports}}}"))
        .slice("others", PORT, &["web@node-a"])
        .slice("alias", PORT, &["web@node-a"])
        .slice("headless", PORT, &["web@node-a"]);
    cluster.expect(
        "
        pod/caller-a | 10.96.0.1:80    | untouched | other-proxy
        pod/caller-a | 10.96.0.3:80    | untouched | external-name
        pod/caller-a | 198.51.100.7:80 | untouched
        ",
    );
}

#[test]
fn ports_match_by_name_and_protocol() {
    let cluster = TestCluster::new()
        .service("dns", "{clusterIP: 10.96.0.1, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}, {name: metrics, port: 9153}, {name: sctp, port: 9, protocol: SCTP}]}")
        .slice("dns", "[{name: dns, port: 5353, protocol: UDP}, {name: dns-tcp, port: 5354}]", &["dns-1@node-a"])
        .slice("dns", "[{name: metrics, port: 9153}, {name: elsewhere, port: 1}, {name: sctp, port: 9, protocol: SCTP}]", &["dns-2@node-b"]);
    cluster.expect(
        "
        pod/caller-a | 10.96.0.1:53/UDP  | dns-1*1/1>client
        pod/caller-a | 10.96.0.1:53      | dns-1*1/1>client
        pod/caller-a | 10.96.0.1:9153    | dns-2*1/1>client
        pod/caller-a | 10.96.0.1:9/SCTP  | dns-2*1/1>client
        pod/caller-a | 10.96.0.1:9       | untouched
        ",
    );
}

#[test]
fn a_family_delivers_to_its_own_endpoints() {
    let cluster = TestCluster::new()
        .service("both", "{type: NodePort, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00:96::1'], ports: [{port: 80, nodePort: 30080}]}")
        .family_slice("IPv4", "both", PORT, &["web-4@node-a"])
        .family_slice("IPv6", "both", PORT, &["web-6@node-b"])
        .service("six", "{type: NodePort, clusterIP: 'fd00:96::2', externalIPs: [198.51.100.7], ports: [{port: 80, nodePort: 30081}]}")
        .family_slice("IPv6", "six", PORT, &["web-6@node-b"])
        .service("empty", "{clusterIP: 'fd00:96::3', ports: [{port: 80}]}")
        .family_slice("IPv4", "empty", PORT, &["web-4@node-a"])
        .family_slice("FQDN", "empty", PORT, &[]);
    cluster.expect(
        "
        pod/caller-a         | 10.96.0.1:80       | web-4*1/1>client
        pod/caller-a         | [fd00:96::1]:80    | web-6*1/1>client
        client/laptop@node-c | 172.18.0.4:30080   | web-4*1/1>node-c
        client/laptop@node-c | [fd00:18::4]:30080 | web-6*1/1>node-c
        pod/caller-a         | [fd00:96::2]:80    | web-6*1/1>client
        # A service without an IPv4 cluster IP has nothing over IPv4.
        client/laptop@node-c | 172.18.0.4:30081   | untouched
        client/laptop@node-c | 198.51.100.7:80    | untouched
        pod/caller-a         | [fd00:96::3]:80    | reject | no-endpoints
        ",
    );
}

#[test]
fn services_share_an_address_by_port() {
    let shared = |cluster: TestCluster, name: &str, number: u8, port: u16| {
        let spec = format!(
            "{{type: LoadBalancer, clusterIP: 10.96.0.{number}, ports: [{{port: {port}, nodePort: {}}}]}}",
            30000 + port
        );
        cluster.balanced(name, &spec, json!([{"ip": "203.0.113.1"}]))
    };
    let cluster = shared(shared(shared(TestCluster::new(), "web", 1, 80), "mail", 2, 25), "rival", 3, 25);
    let cluster = cluster
        .slice("web", PORT, &["web@node-a"])
        .slice("mail", PORT, &["mail@node-a"])
        .slice("rival", PORT, &["rival@node-a"])
        .balanced(
            "twice",
            "{type: LoadBalancer, clusterIP: 10.96.0.4, externalIPs: [203.0.113.4], ports: [{port: 80}]}",
            json!([{"ip": "203.0.113.4"}]),
        )
        .slice("twice", PORT, &["web@node-a"]);
    cluster.expect(
        "
        client/laptop@node-b | 203.0.113.1:80  | web*1/1>node-b
        client/laptop@node-b | 203.0.113.1:25  | mail*1/1>node-b | shared
        client/laptop@node-b | 203.0.113.4:80  | web*1/1>node-b
        ",
    );
}

#[test]
fn a_disputed_address_goes_to_the_cluster_ip_or_the_oldest_service() {
    TestCluster::new()
        // This service claims addresses of the others.
        .service(
            "evil",
            "{type: NodePort, clusterIP: 10.96.0.66, externalIPs: [10.96.0.10, 198.51.100.7, 198.51.100.66],
              ports: [{port: 80, nodePort: 30080}]}",
        )
        .made("00:00:01")
        .service("kube", "{clusterIP: 10.96.0.10, ports: [{port: 80}]}")
        .made("00:00:05")
        .service(
            "old",
            "{type: NodePort, clusterIP: 10.96.0.1, externalIPs: [198.51.100.7], ports: [{port: 80, nodePort: 30080}]}",
        )
        .made("00:00:00")
        .service("undated", "{clusterIP: 10.96.0.2, externalIPs: [198.51.100.7, 198.51.100.8], ports: [{port: 80}]}")
        .service("other", "{clusterIP: 10.96.0.3, externalIPs: [198.51.100.8], ports: [{port: 80}]}")
        // An external IP that is a node's address, with the number of a node port.
        .service("node", "{clusterIP: 10.96.0.4, externalIPs: [172.18.0.3], ports: [{port: 30080}]}")
        .slice("evil", PORT, &["evil@node-a"])
        .slice("kube", PORT, &["kube@node-a"])
        .slice("old", PORT, &["old@node-a"])
        .slice("undated", PORT, &["undated@node-a"])
        .slice("other", PORT, &["other@node-a"])
        .slice("node", PORT, &["node@node-a"])
        .expect(
            "
            pod/caller-a         | 10.96.0.10:80     | kube*1/1>client  | shared
            pod/caller-a         | 10.96.0.66:80     | evil*1/1>client
            client/laptop@node-b | 198.51.100.66:80  | evil*1/1>node-b
            client/laptop@node-b | 198.51.100.7:80   | old*1/1>node-b   | shared
            client/laptop@node-b | 198.51.100.8:80   | other*1/1>node-b | shared
            client/laptop@node-a | 172.18.0.2:30080  | old*1/1>node-a   | shared
            client/laptop@node-b | 172.18.0.3:30080  | undefined        | undecided
            ",
        );
}

#[test]
fn the_feature_gate_closes_external_ips_only() {
    everything().with(|world| world.proxy.external_ips = false).expect(
        "
        pod/caller-b         | 198.51.100.7:80  | untouched | external-ips-shut
        client/laptop@node-c | 198.51.100.7:80  | untouched | external-ips-shut
        pod/caller-b         | 198.51.100.8:80  | untouched | no-service
        client/laptop@node-c | 203.0.113.1:80   | web*1/1>node-c
        client/laptop@node-c | 172.18.0.4:30080 | web*1/1>node-c
        ",
    );
}

#[test]
fn an_external_ip_may_be_a_nodes_address() {
    TestCluster::new()
        .service("web", "{clusterIP: 10.96.0.1, externalIPs: [172.18.0.3], ports: [{port: 80}]}")
        .slice("web", PORT, &["web@node-a"])
        .expect(
            "
            client/laptop@node-a | 172.18.0.3:80 | web*1/1>node-b
            pod/caller-c         | 172.18.0.3:80 | web*1/1>node-c
            pod/caller-c         | 172.18.0.3:81 | untouched
            ",
        );
}

#[test]
fn odd_spellings_of_addresses_are_parsed() {
    TestCluster::new()
        .service("web", "{clusterIP: 010.096.000.001, externalIPs: ['::ffff:198.51.100.7'], ports: [{port: 80}]}")
        .slice("web", PORT, &["web@node-a"])
        .expect(
            "
            pod/caller-a | 10.96.0.1:80    | web*1/1>client
            pod/caller-a | 198.51.100.7:80 | web*1/1>node-a
            ",
        );
}

#[test]
fn node_ports_answer_on_node_port_addresses() {
    let cluster = |entries: Vec<NodePortAddress>| {
        everything().with(|world| {
            world.nodes[0].addresses.push(ip("172.18.0.50"));
            world.proxy.node_port_addresses = entries;
        })
    };
    let range = |text: &str| NodePortAddress::Range(net(text));
    cluster(vec![]).expect(
        "
        client/laptop@node-a | 172.18.0.2:30080   | web*1/1>node-a
        client/laptop@node-a | 172.18.0.50:30080  | web*1/1>node-a
        loopback/node-a      | 127.0.0.1:30080    | web*1/1>node-a | localhost-node-ports
        node/node-a          | 127.0.0.1:30080    | web*1/1>node-a
        node/node-a          | [::1]:30080        | untouched
        pod/caller-a         | 127.0.0.1:30080    | untouched
        client/laptop@node-a | 127.0.0.1:30080    | drop           | martian
        ",
    );
    cluster(vec![range("172.18.0.2/31"), range("10.0.0.0/8")]).expect(
        "
        client/laptop@node-a | 172.18.0.2:30080   | web*1/1>node-a
        client/laptop@node-a | 172.18.0.50:30080  | untouched | node-port-addresses
        pod/caller-a         | 10.244.1.1:30080   | web*1/1>node-a
        loopback/node-a      | 127.0.0.1:30080    | untouched
        ",
    );
    cluster(vec![NodePortAddress::Primary]).expect(
        "
        client/laptop@node-a | 172.18.0.2:30080   | web*1/1>node-a
        client/laptop@node-a | 172.18.0.50:30080  | untouched
        pod/caller-a         | 10.244.1.1:30080   | untouched
        ",
    );
    cluster(vec![NodePortAddress::Primary, NodePortAddress::Localhost]).expect(
        "
        client/laptop@node-a | 172.18.0.50:30080  | untouched
        loopback/node-a      | 127.0.0.1:30080    | web*1/1>node-a
        ",
    );
    // The documentation closes IPv4, kube-proxy opens it.
    cluster(vec![range("fd00::/8")])
        .expect("client/laptop@node-a | 172.18.0.2:30080 | undefined | node-port-addresses-other-family");
    let closed = cluster(vec![]).with(|world| world.proxy.localhost_node_ports = false);
    closed.expect(
        "
        loopback/node-a      | 127.0.0.1:30080    | untouched
        client/laptop@node-a | 172.18.0.2:30080   | web*1/1>node-a
        ",
    );
}

#[test]
fn node_ports_need_a_type_that_has_them() {
    TestCluster::new()
        .service("web", "{clusterIP: 10.96.0.1, ports: [{port: 80, nodePort: 30080}]}")
        .service("bare", "{type: LoadBalancer, clusterIP: 10.96.0.2, allocateLoadBalancerNodePorts: false, ports: [{port: 80, nodePort: 0}]}")
        .slice("web", PORT, &["web@node-a"])
        .expect("client/laptop@node-a | 172.18.0.2:30080 | untouched");
}
