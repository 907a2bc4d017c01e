//! Compares every member with published IPVS lists, sets and chains.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use svcproxy::cli::render::render_to_string;

use crate::support::published::{self, nginx_cluster, node, service, slice};

fn rendered(objects: &[Value], node: &str, more: &[&str]) -> String {
    published::rendered("ipvs", objects, node, more)
}

fn members(text: &str, set: &str) -> BTreeSet<String> {
    let prefix = format!("add {set} ");
    text.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
}

fn of(members: &[&str]) -> BTreeSet<String> {
    members.iter().map(|member| (*member).to_owned()).collect()
}

#[test]
fn the_nginx_clusters_sets_have_the_published_members() {
    let text = rendered(&nginx_cluster(), "kube01", &["--cluster-cidr=192.167.0.0/16"]);
    for (set, published) in [
        ("KUBE-CLUSTER-IP", &["10.96.98.173,tcp:80", "10.97.229.148,tcp:80", "10.103.1.234,tcp:80"][..]),
        (
            "KUBE-LOOP-BACK",
            &[
                "192.167.2.231,tcp:80,192.167.2.231",
                "192.167.1.123,tcp:80,192.167.1.123",
                "192.167.2.206,tcp:80,192.167.2.206",
            ],
        ),
        ("KUBE-NODE-PORT-TCP", &["30781", "30915"]),
        ("KUBE-LOAD-BALANCER", &["172.35.0.200,tcp:80"]),
        // Sets newer than the publication, or empty and not shown.
        ("KUBE-EXTERNAL-IP", &[]),
        ("KUBE-LOAD-BALANCER-FW", &[]),
        ("KUBE-IPVS-IPS", &["10.96.98.173", "10.97.229.148", "10.103.1.234", "172.35.0.200"]),
    ] {
        assert_eq!(members(&text, set), of(published), "{set}\n{text}");
    }
    for header in [
        "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536",
        "create KUBE-LOOP-BACK hash:ip,port,ip family inet hashsize 1024 maxelem 65536",
        "create KUBE-NODE-PORT-TCP bitmap:port range 0-65535",
        "create KUBE-LOAD-BALANCER hash:ip,port family inet hashsize 1024 maxelem 65536",
    ] {
        assert!(text.lines().any(|line| line == header), "{header}\n{text}");
    }
}

#[test]
fn the_nginx_clusters_virtual_servers_equal_the_published_ones() {
    let text = rendered(&nginx_cluster(), "kube01", &["--cluster-cidr=192.167.0.0/16"]);
    let published = [
        "172.35.0.100:30781",
        "172.35.0.100:30915",
        "172.35.0.200:80",
        "10.96.98.173:80",
        "10.97.229.148:80",
        "10.103.1.234:80",
    ];
    let mut expected = BTreeSet::new();
    for server in published {
        expected.insert(format!("-A -t {server} -s rr"));
        for pod in ["192.167.1.123:80", "192.167.2.206:80", "192.167.2.231:80"] {
            expected.insert(format!("-a -t {server} -r {pod} -m -w 1"));
        }
    }
    let lines = text.lines().filter(|line| line.starts_with("-A -t ") || line.starts_with("-a -t "));
    assert_eq!(lines.map(str::to_owned).collect::<BTreeSet<_>>(), expected);
}

#[test]
fn node_ports_are_on_every_given_local_address() {
    let further = ["--cluster-cidr=192.167.0.0/16", "--local-address=172.36.0.100", "--local-address=172.35.0.100"];
    let text = rendered(&nginx_cluster(), "kube01", &further);
    let of_port = |port: &str| text.lines().filter(|line| line.starts_with("-A ") && line.contains(port)).count();
    assert_eq!(of_port(":30781 "), 2, "{text}");
    assert!(text.contains("-A -t 172.36.0.100:30781 -s rr"), "{text}");
    let objects = tempfile::tempdir().unwrap();
    let flags = [format!("--manifests={}", objects.path().display()), "--local-address=192.0.2.1".to_owned()];
    let refused = render_to_string(flags).unwrap_err().to_string();
    assert!(refused.contains("--local-address") && refused.contains("iptables"), "{refused}");
}

#[test]
fn the_nginx_clusters_chains_have_the_published_rules() {
    let text = rendered(&nginx_cluster(), "kube01", &["--cluster-cidr=192.167.0.0/16"]);
    for rule in [
        "-A KUBE-SERVICES -m comment --comment \"Kubernetes service lb portal\" -m set --match-set KUBE-LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER",
        "-A KUBE-SERVICES ! -s 192.167.0.0/16 -m comment --comment \"Kubernetes service cluster ip + port for masquerade purpose\" -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ",
        "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT",
        "-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT",
        "-A KUBE-SERVICES -m set --match-set KUBE-LOAD-BALANCER dst,dst -j ACCEPT",
        "-A KUBE-NODE-PORT -p tcp -m comment --comment \"Kubernetes nodeport TCP port for masquerade purpose\" -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ",
        "-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ",
        "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
    ] {
        assert!(text.lines().any(|line| line == rule), "{rule}\n{text}");
    }
    let hairpin = "-A KUBE-POSTROUTING -m comment --comment \"Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose\" -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE";
    assert!(text.contains(hairpin), "{text}");
}

/// The other published cluster cannot detect pods: only the node's own traffic to cluster IPs is masqueraded.
#[test]
fn the_other_published_cluster_has_the_published_servers_and_masquerade() {
    let pods = [("192.168.42.134", "kube"), ("192.168.42.145", "kube")];
    let objects = [
        service("appsvc2", "10.102.67.19", json!({ "ports": [{ "port": 80 }] })),
        slice("appsvc2", &pods, "TCP"),
        service(
            "nginx-ingress-latest",
            "10.105.76.172",
            json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30001 }] }),
        ),
        slice("nginx-ingress-latest", &[("10.0.2.15", "kube")], "TCP"),
        node("kube", "172.17.8.111"),
    ];
    let text = rendered(&objects, "kube", &[]);
    for line in [
        "-A -t 10.102.67.19:80 -s rr",
        "-a -t 10.102.67.19:80 -r 192.168.42.134:80 -m -w 1",
        "-a -t 10.102.67.19:80 -r 192.168.42.145:80 -m -w 1",
        "-A -t 172.17.8.111:30001 -s rr",
        "-a -t 172.17.8.111:30001 -r 10.0.2.15:80 -m -w 1",
        "-A KUBE-SERVICES -m comment --comment \"Kubernetes service cluster ip + port for masquerade purpose\" -m set --match-set KUBE-CLUSTER-IP src,dst -j KUBE-MARK-MASQ",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn the_number_of_rules_does_not_depend_on_the_services() {
    let rules =
        |text: &str| text.lines().filter(|line| line.starts_with("-A KUBE-") || line.starts_with("-I ")).count();
    let all = rendered(&nginx_cluster(), "kube01", &["--cluster-cidr=192.167.0.0/16"]);
    let none = rendered(&[node("kube01", "172.35.0.100")], "kube01", &["--cluster-cidr=192.167.0.0/16"]);
    assert_eq!(rules(&all), rules(&none));
    assert!(rules(&all) < 60, "{}", rules(&all));
}

#[test]
fn a_service_with_every_field_renders_in_both_families() {
    let text = |family: &str| {
        let balanced = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "default" },
            "spec": {
                "type": "LoadBalancer", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00:96::1"],
                "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack",
                "ports": [{ "name": "a", "port": 80, "nodePort": 30080 },
                          { "name": "b", "port": 53, "protocol": "UDP", "nodePort": 30053 },
                          { "name": "c", "port": 99, "protocol": "SCTP", "nodePort": 30099 }],
                "externalTrafficPolicy": "Local", "healthCheckNodePort": 32001, "sessionAffinity": "ClientIP",
                "externalIPs": ["203.0.113.4", "fd00:e::4"],
                "loadBalancerSourceRanges": ["192.0.2.0/24", "0.0.0.0/0", "fd00:c::/64"],
            },
            "status": { "loadBalancer": { "ingress": [{ "ip": "198.51.100.4" }, { "ip": "fd00:5::4" }] } },
        });
        let slices = [("IPv4", "10.244.0.1", "10.244.1.1"), ("IPv6", "fd00:244::1", "fd00:244:1::1")];
        let mut objects = vec![balanced];
        for (family, here, there) in slices {
            objects.push(json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
                "metadata": { "name": format!("web-{}", family.to_lowercase()), "namespace": "default",
                              "labels": { "kubernetes.io/service-name": "web" } },
                "endpoints": [{ "addresses": [here], "nodeName": "node-a" }, { "addresses": [there], "nodeName": "node-b" }],
                "ports": [{ "name": "a", "port": 8080 }, { "name": "b", "port": 5353, "protocol": "UDP" },
                          { "name": "c", "port": 9, "protocol": "SCTP" }],
            }));
        }
        objects.push(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-a" },
            "status": { "addresses": [{ "type": "InternalIP", "address": "172.18.0.2" },
                                      { "type": "InternalIP", "address": "fd00:18::2" }] },
        }));
        let flags = ["--cluster-cidr=10.244.0.0/16,fd00:244::/32", "--ipvs-scheduler=mh"];
        let family = format!("--ip-family={family}");
        rendered(&objects, "node-a", &[flags[0], flags[1], &family])
    };
    insta::assert_snapshot!("ipvs_everything_v4", text("ipv4"));
    insta::assert_snapshot!("ipvs_everything_v6", text("ipv6"));
}
