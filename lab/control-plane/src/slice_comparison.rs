//! Compares EndpointSlices of two controllers, whose names and distribution of endpoints may differ.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use svclab_apiserver::objects::ObjectKey;

const SERVICE: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpointslice-controller.k8s.io";

/// By Service; one text per endpoint, with family and ports.
pub(crate) type ServiceEndpoints = BTreeMap<ObjectKey, BTreeSet<String>>;

pub(crate) fn is_controllers(slice: &Value) -> bool {
    slice["metadata"]["labels"][MANAGED_BY] == CONTROLLER
}

/// Leaves out endpoints on Nodes that do not exist: kube-controller-manager removes such an endpoint whenever it syncs the
/// Service, and it may sync it at any time.
pub(crate) fn service_endpoints<'a>(
    slices: impl Iterator<Item = &'a Value>,
    is_node: impl Fn(&str) -> bool,
) -> ServiceEndpoints {
    let mut endpoints = ServiceEndpoints::new();
    for slice in slices {
        let namespace = slice["metadata"]["namespace"].as_str();
        let service = slice["metadata"]["labels"][SERVICE].as_str().unwrap_or_default();
        let texts = endpoints.entry(ObjectKey::new(namespace, service)).or_default();
        let mut ports: Vec<String> = slice["ports"].as_array().into_iter().flatten().map(port).collect();
        ports.sort();
        let family = slice["addressType"].as_str().unwrap_or_default();
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        for endpoint in endpoints.filter(|endpoint| endpoint["nodeName"].as_str().is_none_or(&is_node)) {
            texts.insert(format!("{family} [{}] {}", ports.join(", "), self::endpoint(endpoint)));
        }
    }
    endpoints
}

fn port(port: &Value) -> String {
    let text = |field: &str| port[field].as_str().unwrap_or_default();
    format!("{} {}/{}", text("name"), port["port"], text("protocol"))
}

fn endpoint(endpoint: &Value) -> Value {
    let conditions = &endpoint["conditions"];
    let is = |field: &str| conditions[field].as_bool();
    json!({
        "addresses": endpoint["addresses"],
        "ready": is("ready"),
        "serving": is("serving"),
        "terminating": is("terminating").unwrap_or(false),
        "node": endpoint["nodeName"],
        "zone": endpoint["zone"],
        "hints": endpoint["hints"],
        "pod": endpoint["targetRef"]["name"],
    })
}

/// Describes the first Service whose endpoints differ. A missing Service has no endpoints.
pub(crate) fn difference(wanted: &ServiceEndpoints, seen: &ServiceEndpoints) -> Option<String> {
    let nothing = BTreeSet::new();
    let services: BTreeSet<&ObjectKey> = wanted.keys().chain(seen.keys()).collect();
    services.into_iter().find_map(|service| {
        let (wanted, seen) = (wanted.get(service).unwrap_or(&nothing), seen.get(service).unwrap_or(&nothing));
        let list = |set: Vec<&String>| set.into_iter().cloned().collect::<Vec<_>>().join("; ");
        let (missing, more) = (list(wanted.difference(seen).collect()), list(seen.difference(wanted).collect()));
        let words = |what: &str, list: &str| if list.is_empty() { String::new() } else { format!(", {what} {list}") };
        (wanted != seen).then(|| {
            let (missing, more) = (words("without", &missing), words("with", &more));
            format!("the endpoints that kube-controller-manager makes of {service} are not the lab's{missing}{more}")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_over_slices_makes_no_difference() {
        let slice = |name: &str, addresses: &[&str], ready: bool| {
            let endpoints: Vec<Value> = addresses
                .iter()
                .map(|address| json!({"addresses": [address], "conditions": {"ready": ready}}))
                .collect();
            json!({
                "metadata": {"name": name, "namespace": "default", "labels": {SERVICE: "web"}},
                "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
            })
        };
        let endpoints = |slices: &[Value]| service_endpoints(slices.iter(), |_| true);
        let one = [slice("web-1", &["10.0.0.1", "10.0.0.2"], true)];
        let two = [slice("web-a", &["10.0.0.2"], true), slice("web-b", &["10.0.0.1"], true)];
        assert_eq!(difference(&endpoints(&one), &endpoints(&two)), None);
        let other = [slice("web-a", &["10.0.0.2"], true), slice("web-b", &["10.0.0.1"], false)];
        let difference_text = difference(&endpoints(&one), &endpoints(&other)).unwrap();
        assert!(
            difference_text.contains("default/web are not the lab's, without IPv4")
                && difference_text.contains(", with IPv4"),
            "{difference_text}"
        );
        assert_eq!(difference(&endpoints(&[]), &endpoints(&[slice("web-1", &[], true)])), None);
    }

    #[test]
    fn endpoints_on_missing_nodes_make_no_difference() {
        let slice = |nodes: &[&str]| {
            let endpoint = |node: &&str| json!({"addresses": ["10.0.0.1"], "nodeName": node});
            let endpoints: Vec<Value> = nodes.iter().map(endpoint).collect();
            let metadata = json!({"namespace": "default", "labels": {SERVICE: "web"}});
            [json!({"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints})]
        };
        let endpoints = |nodes: &[&str]| service_endpoints(slice(nodes).iter(), |node| node != "gone");
        assert_eq!(difference(&endpoints(&["a", "gone"]), &endpoints(&["a"])), None);
        assert!(difference(&endpoints(&["a", "b"]), &endpoints(&["a"])).is_some());
    }
}
