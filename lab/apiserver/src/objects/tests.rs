#![allow(clippy::unwrap_used, reason = "tests")]
use svclab_spec::{PROXY_HEALTH_PORT, VipMode};

use super::*;

fn store(seed: u64) -> Store {
    crate::testing::store(true, seed)
}

fn apply(store: &mut Store, text: &str) -> Result<(), ObjectError> {
    parse_manifests(text).unwrap().into_iter().try_for_each(|document| store.apply(document.object).map(|_| ()))
}

fn pod(name: &str, node: &str, app: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {app}}}}}\nspec:\n  nodeName: {node}\n  \
         containers:\n  - {{name: c, ports: [{{name: http, containerPort: 8080}}]}}\n---\n"
    )
}

const WEB: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  selector: {app: web}\n  ports:\n  - {port: 80, targetPort: http}\n";

fn slices(store: &Store) -> Vec<serde_json::Value> {
    let list = store.list();
    list["items"].as_array().unwrap().iter().filter(|item| item["kind"] == "EndpointSlice").cloned().collect()
}

#[test]
fn the_same_manifest_and_seed_give_the_same_allocation() {
    let list = |seed| {
        let mut store = store(seed);
        apply(&mut store, WEB).unwrap();
        store.list()
    };
    assert_eq!(list(1), list(1));
    assert_ne!(list(1)["items"][2]["spec"]["clusterIP"], list(2)["items"][2]["spec"]["clusterIP"]);
}

#[test]
fn a_named_target_port_resolves_per_pod_and_conditions_follow_the_pod() {
    let mut store = store(0);
    apply(&mut store, &format!("{}{}{WEB}", pod("a", "node-a", "web"), pod("b", "node-b", "web"))).unwrap();
    store.set_ready(&ObjectKey::new(None, "a"), false).unwrap();
    store.set_terminating(&ObjectKey::new(None, "b")).unwrap();
    let slices = slices(&store);
    assert_eq!(slices.len(), 1, "single-stack by default: {slices:#?}");
    assert_eq!(slices[0]["ports"][0]["port"], 8080);
    assert_eq!(slices[0]["endpoints"][0]["addresses"][0], "10.244.2.2");
    assert_eq!(
        slices[0]["endpoints"][0]["conditions"],
        serde_json::json!({"ready": false, "serving": false, "terminating": false})
    );
    assert_eq!(
        slices[0]["endpoints"][1]["conditions"],
        serde_json::json!({"ready": false, "serving": true, "terminating": true})
    );
    assert_eq!(slices[0]["endpoints"][1]["zone"], "z2");
}

#[test]
fn pods_with_different_port_numbers_get_different_slices() {
    let mut store = store(0);
    let other = pod("b", "node-b", "web").replace("8080", "9090");
    apply(&mut store, &format!("{}{other}{WEB}", pod("a", "node-a", "web"))).unwrap();
    let ports: Vec<_> = slices(&store).iter().map(|slice| slice["ports"][0]["port"].clone()).collect();
    assert_eq!(ports, [8080, 9090]);
}

#[test]
fn slices_hold_at_most_the_configured_number_of_endpoints() {
    let mut store = store(0);
    store.apply(parse_manifests(WEB).unwrap().remove(0).object).unwrap();
    for number in 0..230 {
        apply(&mut store, &pod(&format!("p{number}"), "node-a", "web")).unwrap();
    }
    let sizes: Vec<_> = slices(&store).iter().map(|slice| slice["endpoints"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [100, 100, 30]);
}

#[test]
fn dual_stack_services_get_an_address_and_slices_per_family() {
    let mut store = store(0);
    let dual = WEB.replace("spec:\n", "spec:\n  ipFamilyPolicy: RequireDualStack\n");
    apply(&mut store, &format!("{}{dual}", pod("a", "node-a", "web"))).unwrap();
    let service = store.service(&ObjectKey::new(None, "web")).unwrap();
    let spec = service.spec.clone().unwrap();
    assert_eq!(spec.ip_families.unwrap(), ["IPv4", "IPv6"]);
    assert_eq!(spec.cluster_ips.unwrap().len(), 2);
    let types: Vec<_> = slices(&store).iter().map(|slice| slice["addressType"].clone()).collect();
    assert_eq!(types, ["IPv4", "IPv6"]);
}

#[test]
fn a_traffic_distribution_sets_hints_of_ready_endpoints() {
    let mut store = store(0);
    let near = WEB.replace("spec:\n", "spec:\n  trafficDistribution: PreferSameNode\n");
    apply(&mut store, &format!("{}{near}", pod("a", "node-a", "web"))).unwrap();
    let hints = slices(&store)[0]["endpoints"][0]["hints"].clone();
    assert_eq!(hints, serde_json::json!({"forNodes": [{"name": "node-a"}], "forZones": [{"name": "z1"}]}));
    store.set_ready(&ObjectKey::new(None, "a"), false).unwrap();
    assert_eq!(slices(&store)[0]["endpoints"][0]["hints"], serde_json::Value::Null, "for nobody yet");
    let unknown = WEB.replace("spec:\n", "spec:\n  trafficDistribution: PreferSamePlanet\n");
    apply(&mut store, &unknown).unwrap();
    assert_eq!(slices(&store)[0]["endpoints"][0]["hints"], serde_json::Value::Null);
}

#[test]
fn a_service_that_loses_its_selector_keeps_its_slices() {
    let mut store = store(0);
    apply(&mut store, &format!("{}{WEB}", pod("a", "node-a", "web"))).unwrap();
    let before = slices(&store);
    apply(&mut store, &WEB.replace("  selector: {app: web}\n", "")).unwrap();
    store.set_ready(&ObjectKey::new(None, "a"), false).unwrap();
    assert_eq!(slices(&store), before);
    let slice = before[0]["metadata"]["name"].as_str().unwrap();
    store.delete("endpointslice", &ObjectKey::new(None, slice)).unwrap();
    assert!(slices(&store).is_empty(), "nobody makes it again");
    apply(&mut store, WEB).unwrap();
    assert_eq!(slices(&store)[0]["endpoints"][0]["conditions"]["ready"], false, "it is looked after again");
    store.delete("service", &ObjectKey::new(None, "web")).unwrap();
    assert!(slices(&store).is_empty());
}

fn endpoint_names(store: &Store) -> Vec<String> {
    let slices = slices(store);
    let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().unwrap());
    endpoints.map(|endpoint| endpoint["targetRef"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn pods_of_a_missing_node_leave_the_slices_at_the_next_sync_and_return_with_the_node() {
    let mut store = store(0);
    let published =
        WEB.replace("name: web", "name: all").replace("spec:\n", "spec:\n  publishNotReadyAddresses: true\n");
    apply(&mut store, &format!("{}{}{WEB}", pod("a", "node-a", "web"), pod("b", "node-b", "web"))).unwrap();
    store.remove(ObjectKind::Node, &ObjectKey::unscoped("node-a")).unwrap();
    assert_eq!(endpoint_names(&store), ["a", "b"], "nothing syncs the Service");
    store.set_ready(&ObjectKey::new(None, "b"), false).unwrap();
    assert_eq!(endpoint_names(&store), ["b"]);
    store.remove(ObjectKind::Node, &ObjectKey::unscoped("node-b")).unwrap();
    assert!(endpoint_names(&store).is_empty(), "a Service that selects such a pod is synced again and again");
    apply(&mut store, &published).unwrap();
    let all: Vec<_> = slices(&store).into_iter().filter(|slice| slice["metadata"]["name"] == "all-ipv4-0").collect();
    assert_eq!(all[0]["endpoints"].as_array().unwrap().len(), 2, "publishNotReadyAddresses asks for all pods");
    assert_eq!(all[0]["endpoints"][0]["zone"], serde_json::Value::Null);
    store.delete("service", &ObjectKey::new(None, "all")).unwrap();
    apply(&mut store, "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\n").unwrap();
    assert_eq!(endpoint_names(&store), ["a"]);
    assert_eq!(slices(&store)[0]["endpoints"][0]["zone"], "z1");
}

#[test]
fn a_slice_with_endpoints_keeps_its_headless_label_until_something_else_changes() {
    let mut store = store(0);
    let headless = WEB.replace("spec:\n", "spec:\n  clusterIP: None\n");
    let external =
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: ExternalName, externalName: a.b}\n";
    let is_headless = |store: &Store| {
        let slices = slices(store);
        assert_eq!(slices.len(), 1, "{slices:#?}");
        slices[0]["metadata"]["labels"].get("service.kubernetes.io/headless").is_some()
    };
    apply(&mut store, &headless).unwrap();
    apply(&mut store, external).unwrap();
    apply(&mut store, WEB).unwrap();
    assert!(!is_headless(&store), "the label of an empty slice is mended");
    apply(&mut store, external).unwrap();
    apply(&mut store, &format!("{}{headless}", pod("a", "node-a", "web"))).unwrap();
    apply(&mut store, external).unwrap();
    apply(&mut store, WEB).unwrap();
    assert!(is_headless(&store));
    apply(&mut store, &pod("b", "node-b", "web")).unwrap();
    assert!(!is_headless(&store));
}

#[test]
fn a_headless_service_without_selector_gets_both_families() {
    let mut store = store(0);
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: None, ports: [{port: 80}]}\n";
    apply(&mut store, text).unwrap();
    let spec = store.service(&ObjectKey::new(None, "web")).unwrap().spec.clone().unwrap();
    assert_eq!(spec.ip_families.unwrap(), ["IPv4", "IPv6"]);
    assert_eq!(spec.ip_family_policy.unwrap(), "RequireDualStack");
    assert_eq!(spec.cluster_ips.unwrap(), ["None"]);
}

#[test]
fn a_load_balancer_gets_ports_address_and_health_check() {
    let mut store = store(0);
    let text = WEB.replace("spec:\n", "spec:\n  type: LoadBalancer\n  externalTrafficPolicy: Local\n");
    apply(&mut store, &text).unwrap();
    let vips = store.vips();
    assert_eq!(vips.len(), 1);
    assert_eq!((vips[0].address.to_string().as_str(), vips[0].mode), ("203.0.113.1", VipMode::Vip));
    assert!((30_000..=32_767).contains(&vips[0].ports[0].2));
    let check = vips[0].health_check_port;
    assert!((30_000..=32_767).contains(&check) && check != vips[0].ports[0].2, "{check}");
    let proxied = format!("{text}status: {{loadBalancer: {{ingress: [{{ipMode: Proxy}}]}}}}\n");
    apply(&mut store, &proxied).unwrap();
    assert_eq!(store.vips()[0].mode, VipMode::Proxy);
    apply(&mut store, &text.replace("externalTrafficPolicy: Local", "externalTrafficPolicy: Cluster")).unwrap();
    assert_eq!(store.vips()[0].health_check_port, PROXY_HEALTH_PORT);
}

#[test]
fn a_replaced_service_keeps_its_allocations() {
    let mut store = store(7);
    let node_port = WEB.replace("spec:\n", "spec:\n  type: NodePort\n");
    apply(&mut store, &node_port).unwrap();
    let key = ObjectKey::new(None, "web");
    let before = store.service(&key).unwrap().clone();
    let version = store.version();
    apply(&mut store, &node_port).unwrap();
    assert_eq!(store.service(&key).unwrap(), &before);
    assert_eq!(store.version(), version, "nothing changed");
}

#[test]
fn conflicting_and_foreign_values_are_rejected() {
    let explicit = |name: &str, ip: &str, port: u16| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{type: NodePort, clusterIP: {ip}, ports: [{{port: 80, nodePort: {port}}}]}}\n"
        )
    };
    let second = |text: String| {
        let mut store = store(0);
        apply(&mut store, &explicit("a", "10.96.0.9", 30_001)).unwrap();
        apply(&mut store, &text).unwrap_err().to_string()
    };
    insta::assert_snapshot!(
        [
            second(explicit("b", "10.96.0.9", 30_002)),
            second(explicit("b", "10.97.0.9", 30_002)),
            second(explicit("b", "10.96.0.8", 30_001)),
            second(explicit("b", "10.96.0.8", 80)),
            second(pod("p", "node-x", "web")),
            second(pod("p", "node-a", "web").replace("spec:\n", "status: {podIP: 10.1.1.1}\nspec:\n")),
            second("apiVersion: v1\nkind: Node\nmetadata: {name: node-z}\n".into()),
        ]
        .join("\n")
    );
}

#[test]
fn manifest_errors_name_line_and_field() {
    let errors =
        |text: &str| parse_manifests(text).unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(
        [
            errors("apiVersion: apps/v1\nkind: Deployment\n"),
            errors(&format!("{WEB}---\n{}", WEB.replace("port: 80", "port: eighty"))),
            errors(&WEB.replace("selector:", "selektor:")),
            errors("kind: Pod\n"),
            errors("a: [\n"),
        ]
        .join("\n")
    );
}

fn placed(store: &Store) -> Vec<(String, Vec<String>, u64)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let one = |slice: serde_json::Value| {
        let endpoints = slice["endpoints"].as_array().unwrap();
        let pods = endpoints.iter().map(|endpoint| text(&endpoint["targetRef"]["name"])).collect();
        (text(&slice["metadata"]["name"]), pods, slice["metadata"]["generation"].as_u64().unwrap())
    };
    slices(store).into_iter().map(one).collect()
}

#[test]
fn a_change_modifies_as_few_slices_as_possible() {
    let mut store = store(0);
    store.options.max_endpoints_per_slice = 2;
    apply(&mut store, WEB).unwrap();
    assert_eq!(placed(&store), [("web-ipv4-0".into(), vec![], 1)], "a service without endpoints has an empty slice");
    for name in ["a", "b", "c", "d", "e"] {
        apply(&mut store, &pod(name, "node-a", "web")).unwrap();
    }
    let names = |pods: &[&str]| pods.iter().map(|pod| (*pod).to_owned()).collect::<Vec<_>>();
    let expected = [
        ("web-ipv4-0".to_owned(), names(&["a", "b"]), 3),
        ("web-ipv4-1".to_owned(), names(&["c", "d"]), 2),
        ("web-ipv4-2".to_owned(), names(&["e"]), 1),
    ];
    assert_eq!(placed(&store), expected);
    store.record_changes();
    store.delete("pod", &ObjectKey::new(None, "a")).unwrap();
    let changed: Vec<String> = store.take_changes().iter().map(|change| change.record.key.name.clone()).collect();
    assert_eq!(changed, ["a", "web-ipv4-0"], "everybody else stays where they are");
    apply(&mut store, &pod("f", "node-a", "web")).unwrap();
    assert_eq!(placed(&store)[0].1, names(&["b", "f"]), "room is filled first");
    apply(&mut store, &WEB.replace("targetPort: http", "targetPort: 9090")).unwrap();
    let again: Vec<String> = placed(&store).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(again, ["web-ipv4-0", "web-ipv4-1", "web-ipv4-2"], "slices are used again");
    store.delete("service", &ObjectKey::new(None, "web")).unwrap();
    assert_eq!(placed(&store), []);
}

#[test]
fn only_a_change_gets_a_new_version() {
    let mut store = store(0);
    store.record_changes();
    apply(&mut store, &format!("{}{WEB}", pod("a", "node-a", "web"))).unwrap();
    let changes = store.take_changes();
    let told: Vec<String> =
        changes.iter().map(|change| format!("{} {}", change.record.kind, change.record.key)).collect();
    assert_eq!(told, ["pod default/a", "service default/web", "endpointslice default/web-ipv4-0"]);
    let versions: Vec<u64> = changes.iter().map(|change| change.record.version).collect();
    assert!(versions.is_sorted_by(|left, right| left < right), "{versions:?}");
    assert_eq!(versions.last(), Some(&store.version()));
    let pod_key = ObjectKey::new(None, "a");
    store.set_ready(&pod_key, true).unwrap();
    apply(&mut store, WEB).unwrap();
    assert_eq!(store.take_changes(), [], "nothing is new");
    store.set_terminating(&pod_key).unwrap();
    let told: Vec<String> = store.take_changes().iter().map(|change| change.record.kind.to_string()).collect();
    assert_eq!(told, ["pod", "endpointslice"]);
    let (born, again) = (store.record(ObjectKind::Pod, &pod_key).unwrap().uid.clone(), pod("a", "node-a", "web"));
    store.delete("pod", &pod_key).unwrap();
    apply(&mut store, &again).unwrap();
    assert_ne!(store.record(ObjectKind::Pod, &pod_key).unwrap().uid, born, "another object of the same name");
}

#[test]
fn a_rejected_object_leaves_no_allocation() {
    let mut store = store(0);
    let with_port = |port: u32| {
        WEB.replace("spec:\n", "spec:\n  type: NodePort\n").replace("port: 80", &format!("port: 80, nodePort: {port}"))
    };
    apply(&mut store, &with_port(30_001)).unwrap();
    let version = store.version();
    apply(&mut store, &with_port(80)).unwrap_err();
    assert_eq!(store.version(), version);
    let other = with_port(30_001).replace("name: web", "name: other");
    apply(&mut store, &other).unwrap_err();
    store.delete("service", &ObjectKey::new(None, "web")).unwrap();
    apply(&mut store, &other).unwrap();
}

#[test]
fn a_cluster_ip_may_come_from_any_service_cidr() {
    let mut store = store(0);
    let service = WEB.replace("spec:\n", "spec:\n  clusterIP: 10.97.0.10\n");
    let refused = apply(&mut store, &service).unwrap_err().to_string();
    assert!(refused.contains("10.97.0.10 is not in the cluster's service range 10.96.0.0/16, nor in"), "{refused}");
    let range = "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: second}\nspec: {cidrs: [10.97.0.0/24]}\n";
    apply(&mut store, &format!("{range}---\n{service}")).unwrap();
}

#[test]
fn a_tainted_or_deleted_node_is_leaving() {
    let mut store = store(0);
    let node = |name: &str, more: &str| format!("---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}{more}\n");
    let taint = "}\nspec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}";
    apply(&mut store, &node("node-a", "}\nspec: {unschedulable: true}")).unwrap();
    assert!(store.leaving_nodes().is_empty());
    apply(&mut store, &node("node-a", taint)).unwrap();
    apply(&mut store, &node("node-b", ", deletionTimestamp: '2026-01-01T00:00:00Z'}")).unwrap();
    assert_eq!(store.leaving_nodes().into_iter().collect::<Vec<_>>(), ["node-a", "node-b"]);
}

#[test]
fn a_finished_pod_has_no_endpoint() {
    let mut store = store(0);
    let done = pod("a", "node-a", "web").replace("spec:\n", "status: {phase: Succeeded}\nspec:\n");
    apply(&mut store, &format!("{done}{WEB}")).unwrap();
    assert_eq!(placed(&store), [("web-ipv4-0".into(), vec![], 1)]);
}

#[test]
fn a_free_node_port_differs_from_requested_ones() {
    let service = |ports: &str, more: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{type: LoadBalancer, {more} ports: [{ports}]}}\n"
        )
    };
    let number = |store: &Store, nth: usize| {
        let service = store.service(&ObjectKey::new(None, "web")).unwrap().spec.clone().unwrap();
        service.ports.unwrap()[nth].node_port.unwrap()
    };
    // The node port that the store allocates for port 80.
    let mut fresh = store(3);
    apply(&mut fresh, &service("{name: a, port: 80}", "")).unwrap();
    let first_choice = number(&fresh, 0);

    let mut kept = store(3);
    apply(&mut kept, &service(&format!("{{name: b, port: 82, nodePort: {first_choice}}}"), "")).unwrap();
    apply(&mut kept, &service("{name: a, port: 80}, {name: b, port: 82}", "")).unwrap();
    assert_eq!(number(&kept, 1), first_choice);
    assert_ne!(number(&kept, 0), first_choice);

    let mut checked = store(3);
    let local = format!("externalTrafficPolicy: Local, healthCheckNodePort: {first_choice},");
    apply(&mut checked, &service("{name: a, port: 80}", &local)).unwrap();
    assert_ne!(number(&checked, 0), first_choice);
}

#[test]
fn a_requested_node_port_is_kept_without_automatic_allocation() {
    let mut store = store(0);
    let balanced = "apiVersion: v1\nkind: Service\nmetadata: {name: lb}\nspec:\n  type: LoadBalancer\n  allocateLoadBalancerNodePorts: false\n  \
                    selector: {app: web}\n  ports: [{name: a, port: 80, nodePort: 30123}, {name: b, port: 81}]\n";
    apply(&mut store, balanced).unwrap();
    let spec = store.service(&ObjectKey::new(None, "lb")).unwrap().spec.clone().unwrap();
    let ports: Vec<Option<i32>> = spec.ports.unwrap().iter().map(|port| port.node_port).collect();
    assert_eq!(ports, [Some(30123), None]);
    apply(&mut store, &format!("{WEB}  externalIPs: []\n")).unwrap();
    let spec = store.service(&ObjectKey::new(None, "web")).unwrap().spec.clone().unwrap();
    assert_eq!(spec.external_traffic_policy, None);
}

#[test]
fn a_custom_slice_gets_port_defaults_and_a_generation() {
    let mut store = store(0);
    let mut generations = Vec::new();
    for (label, ready) in [("a", true), ("b", true), ("b", false)] {
        let text = format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: own, labels: {{own: {label}}}}}\naddressType: IPv4\n\
             endpoints: [{{addresses: [10.1.1.1], conditions: {{ready: {ready}}}}}]\n\
             ports: [{{port: 80}}, {{name: dns, port: 53, protocol: UDP}}]\n"
        );
        apply(&mut store, &text).unwrap();
        let slice = slices(&store).remove(0);
        assert_eq!(slice["ports"][0], serde_json::json!({"name": "", "port": 80, "protocol": "TCP"}));
        assert_eq!(slice["ports"][1], serde_json::json!({"name": "dns", "port": 53, "protocol": "UDP"}));
        generations.push(slice["metadata"]["generation"].clone());
    }
    assert_eq!(generations, [1, 1, 2]);
}
