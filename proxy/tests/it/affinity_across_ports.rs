//! The annotation `svcproxy/affinity-across-ports` in the rules of every mode, and in the lines about relays.

use std::collections::BTreeSet;

use svcproxy::cli::render::render_to_string;

const WEB: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web, annotations: {x: y}}
spec:
  type: NodePort
  clusterIP: 10.96.0.1
  sessionAffinity: ClientIP
  externalTrafficPolicy: Local
  ports: [{name: http, port: 80, nodePort: 30080}, {name: dns, port: 53, protocol: UDP, nodePort: 30053}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.244.0.2], nodeName: node-a}, {addresses: [10.244.1.3], nodeName: node-b}]
ports: [{name: http, port: 8080}, {name: dns, port: 5353, protocol: UDP}]
"#;

fn rendered(mode: &str, annotation: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("web.yaml"), WEB.replace("x: y", annotation)).unwrap();
    let manifests = format!("--manifests={}", directory.path().display());
    let mode = format!("--mode={mode}");
    let fixed = ["--hostname-override=node-a", "--cluster-cidr=10.244.0.0/16", "--ip-family=ipv4", &manifests, &mode];
    let local = ["ipvs", "nftables"].iter().any(|one| mode.ends_with(one)).then_some("--local-address=172.18.0.2");
    render_to_string(fixed.into_iter().chain(local).map(str::to_owned)).unwrap()
}

const ALL: &str = "svcproxy/affinity-across-ports: all";

#[test]
fn without_the_annotation_or_with_none_rules_are_the_same() {
    for mode in ["iptables", "ipvs", "userspace", "nftables"] {
        let without = rendered(mode, "x: y");
        assert_eq!(rendered(mode, "svcproxy/affinity-across-ports: none"), without, "{mode}");
        assert_eq!(rendered(mode, "svcproxy/affinity-across-ports: yes-please"), without, "{mode}");
        assert_eq!(rendered(mode, ALL) == without, mode == "ipvs", "{mode}");
    }
}

#[test]
fn iptables_lists_are_of_an_address_and_a_service() {
    let lists = |annotation: &str| -> Vec<String> {
        let text = rendered("iptables", annotation);
        let lists = text.lines().filter_map(|line| line.split_once("--name ")?.1.split(' ').next());
        lists.map(str::to_owned).collect()
    };
    // Each port checks its endpoints for policy Cluster and the local one for policy Local, and sets both.
    let (alone, together) = (lists("x: y"), lists(ALL));
    assert_eq!((alone.len(), together.len()), (10, 10));
    let distinct = |lists: &[String]| lists.iter().cloned().collect::<BTreeSet<_>>().len();
    assert_eq!((distinct(&alone), distinct(&together)), (4, 2));
    assert!(together.iter().all(|list| list.starts_with("KUBE-CLIENTS-")), "{together:?}");
    let other = rendered("iptables", ALL).replace("--name KUBE-CLIENTS-", "");
    assert_eq!(other.matches("KUBE-CLIENTS").count(), 0, "no chain has such a name");
}

#[test]
fn lines_about_relays_name_the_service_whose_ports_share_clients() {
    let relays = |annotation: &str| {
        let text = rendered("userspace", annotation);
        text.lines().filter(|line| line.starts_with("# relay ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let (alone, together) = (relays("x: y"), relays(ALL));
    assert_eq!(together.len(), 4);
    for (alone, together) in alone.iter().zip(&together) {
        assert_eq!(*together, alone.replace(" affinity 10800", " affinity 10800 clients default/web"));
        assert_ne!(alone, together);
    }
}
