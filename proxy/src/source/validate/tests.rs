use serde_json::{Value, json};

use super::super::documents;

fn faults(object: &Value) -> Vec<String> {
    let read = documents::read("x.json", object.to_string().as_bytes());
    let faults: Vec<_> = read.problems.iter().map(ToString::to_string).collect();
    assert_eq!(faults.is_empty(), read.objects.len() == 1, "{faults:?}");
    faults
}

fn with(base: &Value, pointer: &str, value: Value) -> Value {
    let mut object = base.clone();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let parent = object.pointer_mut(parent).expect(pointer);
    match parent {
        Value::Array(items) => items[key.parse::<usize>().expect("an index")] = value,
        parent => parent[key] = value,
    }
    object
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {}}, "spec": {
        "type": "LoadBalancer", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
        "externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
        "loadBalancerSourceRanges": ["10.0.0.0/8"], "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}},
        "ports": [{"name": "http", "port": 80, "nodePort": 30080, "targetPort": "web"}, {"name": "dns", "protocol": "UDP", "port": 53}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9", "ipMode": "Proxy"}]}}})
}

fn slice() -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "http", "port": 8080}, {"port": 53, "protocol": "UDP"}],
        "endpoints": [{"addresses": ["10.0.1.2"], "nodeName": "n1", "zone": "a", "hints": {"forZones": [{"name": "a"}]}}]})
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24", "fd00:1::/64"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "172.18.0.2"}, {"type": "Hostname", "address": "Node-1"}]}})
}

fn service_cidr() -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]}})
}

/// Checks that each change of `base` causes exactly this fault, or after `~` this remark.
fn refuses(base: &Value, name: &str, table: &[(&str, Value, &str)]) {
    assert_eq!(faults(base), Vec::<String>::new());
    for (pointer, value, fault) in table {
        let (found, fault) = match fault.strip_prefix('~') {
            Some(fault) => (remarks(&with(base, pointer, value.clone())), format!("{fault}; ignored")),
            None => (faults(&with(base, pointer, value.clone())), (*fault).to_owned()),
        };
        let expected = match fault.strip_prefix('!') {
            Some(whole) => format!("x.json: document 1{whole}"),
            None => format!("x.json: document 1 ({name}): {fault}"),
        };
        assert!(found.contains(&expected), "{pointer} = {value}\nexpected {expected}\nfound {found:#?}");
    }
}

fn remarks(object: &Value) -> Vec<String> {
    let read = documents::read("x.json", object.to_string().as_bytes());
    assert!(read.problems.is_empty() && read.objects.len() == 1, "{object}: {:?}", read.problems);
    read.remarks.iter().map(ToString::to_string).collect()
}

#[test]
fn services() {
    let label = "a DNS label (1-63 lower-case letters, digits and '-', beginning and ending with a letter or digit)";
    refuses(
        &service(),
        "Service default/web",
        &[
            (
                "/metadata/name",
                json!("web\" -j ACCEPT\n"),
                &format!(
                    "! (Service \"web\\\" -j ACCEPT\\n\"): metadata.name: \"web\\\" -j ACCEPT\\n\" is not {label}"
                ),
            ),
            ("/metadata/name", json!(null), "! (Service): metadata.name: is missing"),
            ("/metadata/name", json!(7), "! (Service): metadata.name: invalid type: integer `7`, expected a string"),
            (
                "/metadata/namespace",
                json!("a b"),
                &format!("! (Service/web): metadata.namespace: \"a b\" is not {label}"),
            ),
            ("/metadata/labels/a b", json!("x"), "~metadata.labels: \"a b\" is not a qualified name ([DNS name/]name)"),
            (
                "/metadata/annotations",
                json!({"svcproxy/flow-fate": "rest"}),
                "~metadata.annotations[svcproxy/flow-fate]: \"rest\" is none of keep, reset and drain=TIME, with a TIME such as 30s, \
                 5m or 24h, the longest",
            ),
            (
                "/metadata/annotations",
                json!({"svcproxy/x": "1", "other/x": "1"}),
                "~metadata.annotations[svcproxy/x]: \"x\" is no annotation of svcproxy, which has affinity-across-ports, flow-fate, local-fallback, load-balancing, source-ranges",
            ),
            ("/spec", json!(null), "spec: is missing"),
            (
                "/spec/type",
                json!("Router"),
                "~spec.type: \"Router\" is not one of ClusterIP, NodePort, LoadBalancer, ExternalName",
            ),
            ("/spec/clusterIP", json!("10.96.0.2"), "spec.clusterIPs[0]: differs from spec.clusterIP"),
            (
                "/spec/clusterIPs/0",
                json!("10.96.0.1 -j ACCEPT"),
                "spec.clusterIPs[0]: \"10.96.0.1 -j ACCEPT\" is not an IP address",
            ),
            ("/spec/clusterIPs/1", json!("10.96.0.9"), "spec.clusterIPs: takes one address, or one of each family"),
            ("/spec/clusterIPs/1", json!("None"), "spec.clusterIPs[1]: \"None\" is not an IP address"),
            ("/spec/ipFamilies", json!(["IPv6", "IPv4"]), "~spec.ipFamilies[0]: is not IPv4 as spec.clusterIPs[0] is"),
            ("/spec/externalIPs/0", json!("127.0.0.1"), "~spec.externalIPs[0]: 127.0.0.1 is a loopback address"),
            (
                "/spec/loadBalancerSourceRanges/0",
                json!("10.0.0.0/40"),
                "spec.loadBalancerSourceRanges[0]: \"10.0.0.0/40\" is not a network (address/length)",
            ),
            (
                "/spec/externalTrafficPolicy",
                json!("Far"),
                "~spec.externalTrafficPolicy: \"Far\" is not one of Cluster, Local",
            ),
            (
                "/spec/internalTrafficPolicy",
                json!("Far"),
                "~spec.internalTrafficPolicy: \"Far\" is not one of Cluster, Local",
            ),
            (
                "/spec/externalTrafficPolicy",
                json!("Cluster"),
                "~spec.healthCheckNodePort: is only for the type LoadBalancer with externalTrafficPolicy Local",
            ),
            ("/spec/healthCheckNodePort", json!(30080), "~spec.healthCheckNodePort: 30080 is the node port of port 80"),
            (
                "/spec/sessionAffinity",
                json!("None"),
                "~spec.sessionAffinityConfig: is only for the session affinity ClientIP",
            ),
            (
                "/spec/sessionAffinityConfig/clientIP/timeoutSeconds",
                json!(86401),
                "~spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86401 is not within 1-86400 seconds",
            ),
            ("/spec/ports", json!([]), "spec.ports: has no port"),
            ("/spec/ports", json!([{"port": 70000}]), "spec.ports[0].port: 70000 is not a port (1-65535)"),
            ("/spec/ports", json!([{"port": "x"}]), "spec.ports[0].port: invalid type: string \"x\", expected i32"),
            ("/spec/ports", json!({}), "spec.ports: invalid type: map, expected a sequence"),
            ("/spec/ports/0/port", json!(70000), "~spec.ports[0].port: 70000 is not a port (1-65535)"),
            ("/spec/ports/0/port", json!("80"), "~spec.ports[0].port: invalid type: string \"80\", expected i32"),
            (
                "/spec/ports/0/port",
                json!(99999999999i64),
                "~spec.ports[0].port: invalid value: integer `99999999999`, expected i32",
            ),
            ("/spec/ports/0/nodePort", json!(-1), "~spec.ports[0].nodePort: -1 is not a port (1-65535)"),
            ("/spec/ports/0/protocol", json!("tcp"), "~spec.ports[0].protocol: \"tcp\" is not one of TCP, UDP, SCTP"),
            ("/spec/ports/1/name", json!(""), "~spec.ports[1].name: is missing: each of several ports needs a name"),
            ("/spec/ports/1/name", json!("http"), "~spec.ports[1].name: the name \"http\" is taken by an earlier port"),
            (
                "/spec/ports/1",
                json!({"name": "b", "port": 80}),
                "~spec.ports[1].port: 80 TCP is taken by an earlier port",
            ),
            (
                "/spec/ports/1",
                json!({"name": "b", "port": 81, "nodePort": 30080}),
                "~spec.ports[1].nodePort: 30080 TCP is taken by an earlier port",
            ),
            (
                "/status/loadBalancer/ingress/0/ip",
                json!("x"),
                "~status.loadBalancer.ingress[0].ip: \"x\" is not an IP address",
            ),
            ("/spec/type", json!("NodePort"), "~spec.loadBalancerSourceRanges: is only for the type LoadBalancer"),
            (
                "/spec/type",
                json!("ClusterIP"),
                "~spec.ports[0].nodePort: is only for the types NodePort and LoadBalancer",
            ),
            ("/spec/type", json!("ExternalName"), "~spec.clusterIP: is not for the type ExternalName"),
        ],
    );
}

#[test]
fn slices() {
    refuses(
        &slice(),
        "EndpointSlice shop/web-1",
        &[
            (
                "/metadata/name",
                json!("Web_1"),
                "! (EndpointSlice \"Web_1\"): metadata.name: \"Web_1\" is not a DNS name (1-253 lower-case letters, digits, '-' and '.', each part beginning and ending with a letter or digit)",
            ),
            ("/addressType", json!("IPv5"), "~addressType: \"IPv5\" is not one of IPv4, IPv6, FQDN"),
            (
                "/addressType",
                json!("IPv6"),
                "~endpoints[0].addresses[0]: 10.0.1.2 is no IPv6 address, as addressType says",
            ),
            ("/endpoints/0/addresses", json!([]), "~endpoints[0].addresses: has no address"),
            (
                "/endpoints/0/addresses/0",
                json!("10.0.1"),
                "~endpoints[0].addresses[0]: \"10.0.1\" is not an IP address",
            ),
            (
                "/endpoints/0/addresses/0",
                json!("169.254.0.1"),
                "~endpoints[0].addresses[0]: 169.254.0.1 is a link-local address",
            ),
            (
                "/endpoints/0/conditions",
                json!({"ready": "yes"}),
                "~endpoints[0].conditions.ready: invalid type: string \"yes\", expected a boolean",
            ),
            ("/endpoints/0/hints/forZones/0/name", json!(""), "~endpoints[0].hints.forZones[0].name: is empty"),
            ("/ports/0/port", json!(0), "~ports[0].port: 0 is not a port (1-65535)"),
            ("/ports/1/name", json!("http"), "~ports[1].name: the name \"http\" is taken by an earlier port"),
            ("/ports/0/name", json!(""), "~ports[1].name: is missing: only one port may go without a name"),
            ("/ports/0/protocol", json!("X"), "~ports[0].protocol: \"X\" is not one of TCP, UDP, SCTP"),
        ],
    );
    let mut unfit = slice();
    unfit["metadata"]["labels"]["kubernetes.io/service-name"] = json!("a.b");
    let reported = faults(&unfit);
    assert!(
        reported[0].contains("metadata.labels[kubernetes.io/service-name]: \"a.b\" is not a DNS label"),
        "{reported:?}"
    );
}

#[test]
fn nodes() {
    refuses(
        &node(),
        "Node n1",
        &[
            ("/spec/podCIDRs/0", json!("10.0.1.0"), "spec.podCIDRs[0]: \"10.0.1.0\" is not a network (address/length)"),
            ("/spec/podCIDRs/1", json!("10.0.2.0/24"), "spec.podCIDRs: takes one network, or one of each family"),
            ("/spec/podCIDR", json!("10.0.2.0/24"), "spec.podCIDRs[0]: differs from spec.podCIDR"),
            (
                "/status/addresses/0/address",
                json!("here"),
                "~status.addresses[0].address: \"here\" is not an IP address",
            ),
        ],
    );
}

#[test]
fn service_cidrs() {
    refuses(
        &service_cidr(),
        "ServiceCIDR kubernetes",
        &[
            ("/metadata/name", json!(""), "! (ServiceCIDR \"\"): metadata.name: is missing"),
            ("/spec/cidrs", json!([]), "spec.cidrs: has no network"),
            ("/spec/cidrs", json!(null), "spec.cidrs: has no network"),
            ("/spec", json!(null), "spec.cidrs: has no network"),
            (
                "/spec/cidrs",
                json!("10.96.0.0/16"),
                "spec.cidrs: invalid type: string \"10.96.0.0/16\", expected a sequence",
            ),
            ("/spec/cidrs/0", json!("10.96.0.0"), "~spec.cidrs[0]: \"10.96.0.0\" is not a network (address/length)"),
            (
                "/spec/cidrs/0",
                json!("10.96.0.0/33"),
                "~spec.cidrs[0]: \"10.96.0.0/33\" is not a network (address/length)",
            ),
            (
                "/spec/cidrs/1",
                json!("10.97.0.0/16"),
                "~spec.cidrs[1]: 10.97.0.0/16 is a second network of IPv4: a ServiceCIDR has at most one of each family",
            ),
            ("/spec/cidrs/1", json!("::/0"), "~spec.cidrs[1]: ::/0 is every address, and not a range of cluster IPs"),
        ],
    );
    let bad = with(&service_cidr(), "/spec/cidrs", json!(["10.96.0.9/16", "10.97.0.0/16", "x"]));
    let read = documents::read("x.json", bad.to_string().as_bytes());
    let super::super::object::Object::ServiceCidr(cidr) = &read.objects[0].1 else { panic!("a ServiceCIDR") };
    let ranges = cidr.spec.as_ref().and_then(|spec| spec.cidrs.clone());
    assert_eq!(ranges, Some(vec!["10.96.0.0/16".to_owned()]), "in canonical form, and what is wrong costs itself");
}

#[test]
fn ignored_values_are_removed_and_remarked_on() {
    let left_out = |base: &Value, pointer: &str, value: Value, reported: &[&str]| {
        let read = documents::read("x.json", with(base, pointer, value).to_string().as_bytes());
        assert!(read.problems.is_empty() && read.objects.len() == 1, "{:?}", read.problems);
        let remarks: Vec<String> = read.remarks.iter().map(ToString::to_string).collect();
        assert_eq!(remarks.len(), reported.len(), "{remarks:?}");
        for (remark, reported) in remarks.iter().zip(reported) {
            assert!(
                remark.starts_with("x.json: document 1 (") && remark.contains(&format!("): {reported}")),
                "{remark}"
            );
            assert!(remark.ends_with("; ignored"), "{remark}");
        }
        let (_, object, _) = &read.objects[0];
        match object {
            super::super::object::Object::Service(service) => serde_json::to_value(service.as_ref()),
            super::super::object::Object::EndpointSlice(slice) => serde_json::to_value(slice.as_ref()),
            super::super::object::Object::Node(node) => serde_json::to_value(node.as_ref()),
            super::super::object::Object::ServiceCidr(cidr) => serde_json::to_value(cidr.as_ref()),
        }
        .expect("JSON")
    };
    for (pointer, reported) in [
        ("/spec/trafficDistribution", "spec.trafficDistribution: \"a\\nb\" is not one of PreferClose, "),
        ("/spec/loadBalancerClass", "spec.loadBalancerClass: "),
        ("/spec/ipFamilyPolicy", "spec.ipFamilyPolicy: \"a\\nb\" is not one of SingleStack, "),
        ("/spec/externalName", "spec.externalName: "),
        ("/spec/loadBalancerIP", "spec.loadBalancerIP: "),
        ("/spec/ports/0/appProtocol", "spec.ports[0].appProtocol: "),
        ("/status/loadBalancer/ingress/0/hostname", "status.loadBalancer.ingress[0].hostname: "),
    ] {
        let object = left_out(&service(), pointer, json!("a\nb"), &[reported]);
        assert_eq!(object.pointer(pointer), None, "{pointer}");
    }
    let object = left_out(&service(), "/spec/ports/0/targetPort", json!("a b"), &["spec.ports[0].targetPort: "]);
    assert_eq!(object["spec"]["ports"][0]["targetPort"], 80);
    let vip = "/status/loadBalancer/ingress/0";
    let object = left_out(
        &service(),
        vip,
        json!({"ip": "192.0.2.9", "ipMode": "Far"}),
        &["status.loadBalancer.ingress[0].ipMode: \"Far\" is not one of VIP, Proxy"],
    );
    assert_eq!(object["status"]["loadBalancer"]["ingress"], json!([{}]), "what is not known to be a VIP is none");
    left_out(
        &service(),
        vip,
        json!({"hostname": "a.b", "ipMode": "VIP"}),
        &["status.loadBalancer.ingress[0].ipMode: is only for an ingress with an ip"],
    );
    let plain = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}, "status": {}});
    let object = left_out(
        &plain,
        "/status/loadBalancer",
        json!({"ingress": [{"ip": "192.0.2.9"}]}),
        &["status.loadBalancer.ingress: is only for the type LoadBalancer"],
    );
    assert_eq!(object["status"]["loadBalancer"]["ingress"], json!([]));
    for field in ["zone", "hostname"] {
        let pointer = format!("/endpoints/0/{field}");
        let object = left_out(&slice(), &pointer, json!("a\nb"), &[&format!("endpoints[0].{field}: ")]);
        assert_eq!(object.pointer(&pointer), None);
    }
    let object = left_out(
        &node(),
        "/status/addresses/1/address",
        json!("n 1"),
        &["status.addresses[1].address: \"n 1\" is not a DNS name"],
    );
    assert_eq!(object["status"]["addresses"].as_array().map(Vec::len), Some(1));
}

#[test]
fn defaults_of_the_api_are_added() {
    let bare = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"clusterIP": "010.96.0.01", "ports": [{"port": 80}], "sessionAffinity": "ClientIP"}});
    let read = documents::read("x.json", bare.to_string().as_bytes());
    let (id, object, _) = &read.objects[0];
    assert_eq!(id.to_string(), "Service default/web");
    let super::super::object::Object::Service(service) = object else { panic!("a Service") };
    let service = serde_json::to_value(service.as_ref()).expect("JSON");
    assert_eq!(service["metadata"]["namespace"], "default");
    assert_eq!(
        service["spec"],
        json!({"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
        "ipFamilies": ["IPv4"], "internalTrafficPolicy": "Cluster", "loadBalancerSourceRanges": [],
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
    );
}

#[test]
fn services_without_rules_are_valid() {
    for spec in [
        json!({"clusterIP": "None"}),
        json!({"type": "ExternalName", "externalName": "db.example.com."}),
        json!({"type": "NodePort", "ports": [{"port": 80}]}),
        json!({"clusterIP": "", "ports": [{"port": 80}]}),
        json!({"clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}),
    ] {
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec});
        assert_eq!(faults(&object), Vec::<String>::new(), "{object}");
    }
}

#[test]
fn many_faults_are_counted() {
    let mut many = slice();
    let bad = json!({"addresses": ["x"]});
    many["endpoints"] = Value::Array(vec![bad; 900]);
    let found = remarks(&many);
    assert_eq!(found.len(), 9);
    let last = "x.json: document 1 (EndpointSlice shop/web-1): 892 more values in this object; ignored";
    assert_eq!(found[8], last);
    let mut bad = service();
    let ranges: Vec<Value> = (0..900).map(|_| json!("x")).collect();
    bad["spec"]["loadBalancerSourceRanges"] = Value::Array(ranges);
    let found = faults(&bad);
    assert_eq!(found.len(), 9);
    assert_eq!(found[8], "x.json: document 1 (Service default/web): 892 more faults in this object");
}

#[test]
fn invalid_items_do_not_affect_valid_ones() {
    let read = |object: Value| {
        let read = documents::read("x.json", object.to_string().as_bytes());
        assert!(read.problems.is_empty() && read.objects.len() == 1, "{:?}", read.problems);
        let object = match &read.objects[0].1 {
            super::super::object::Object::Service(service) => serde_json::to_value(service.as_ref()),
            super::super::object::Object::EndpointSlice(slice) => serde_json::to_value(slice.as_ref()),
            super::super::object::Object::Node(node) => serde_json::to_value(node.as_ref()),
            super::super::object::Object::ServiceCidr(cidr) => serde_json::to_value(cidr.as_ref()),
        };
        (object.expect("JSON"), read.remarks.len())
    };
    let mut mixed = slice();
    mixed["endpoints"] = json!([{"addresses": ["10.0.1.1"]}, {"addresses": ["10.0.1.2", "x"]}, {"addresses": []}, 7,
        {"addresses": ["fd00::1"]}, {"addresses": ["10.0.1.3"], "nodeName": "a b", "conditions": {"ready": 1}},
        {"addresses": ["10.0.1.4"], "nodeName": "a b", "hints": {"forZones": [{"name": "a b"}, {"name": "a"}]}}]);
    let (object, remarked) = read(mixed);
    let addresses: Vec<&Value> =
        object["endpoints"].as_array().into_iter().flatten().map(|e| &e["addresses"]).collect();
    assert_eq!(addresses, [&json!(["10.0.1.1"]), &json!(["10.0.1.2"]), &json!(["10.0.1.4"])]);
    assert_eq!(object["endpoints"][2]["nodeName"], Value::Null);
    assert_eq!(object["endpoints"][2]["hints"]["forZones"], json!([{"name": ""}, {"name": "a"}]));
    assert_eq!(remarked, 7);
    let mut ports = service();
    ports["spec"]["ports"] = json!([{"name": "a", "port": 80}, {"name": "b", "port": 70000}, {"name": "c", "port": 81, "protocol": "QUIC"},
        {"name": "d", "port": 82, "nodePort": 99999}, {"name": "e", "port": "x"}]);
    let (object, remarked) = read(ports);
    let named: Vec<&Value> =
        object["spec"]["ports"].as_array().into_iter().flatten().map(|port| &port["name"]).collect();
    assert_eq!(named, ["a", "d"]);
    assert_eq!(remarked, 4);
    let mut closed = service();
    closed["spec"]["type"] = json!("ClusterIP");
    let (object, _) = read(closed);
    assert_eq!(object["spec"]["ports"][0]["nodePort"], Value::Null);
    assert_eq!(object["status"]["loadBalancer"]["ingress"], json!([]));
    assert_eq!(object["spec"]["clusterIP"], "10.96.0.1");
}
