//! The Endpoints controller, for proxies older than EndpointSlices. It runs only after a client has asked for Endpoints:
//! most proxies do not, and each object is one more version.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::kind::ObjectKind;
use super::object::ObjectKey;
use super::slices;
use super::store::Store;

const MANAGED_BY_LABEL: &str = "endpoints.kubernetes.io/managed-by";
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

impl Store {
    /// Makes Endpoints for every Service with a selector, from now on.
    pub fn serve_endpoints(&mut self) {
        if std::mem::replace(&mut self.endpoints.has_endpoints, true) {
            return;
        }
        for key in self.services.keys().cloned().collect::<Vec<_>>() {
            let slices = self.endpoints.slices_of(&key).to_vec();
            self.sync_endpoints(&key, &slices);
        }
    }

    /// Writes a Service's Endpoints if a client reads Endpoints. `slices`: the Service's slices.
    pub(super) fn sync_endpoints(&mut self, key: &ObjectKey, slices: &[EndpointSlice]) {
        if !self.endpoints.has_endpoints {
            return;
        }
        match self.services.get(key) {
            Some(service) if slices::is_managed(service) => {
                let mut endpoints = endpoints_of(service, slices);
                self.put(key, &mut endpoints);
            }
            // The controller ignores a Service that has lost its selector.
            Some(_) => {}
            None => {
                self.versions.remove(ObjectKind::Endpoints, key);
            }
        }
    }
}

/// Returns the endpoints of the Service's first family. Endpoints have no other.
fn endpoints_of(service: &Service, slices: &[EndpointSlice]) -> Endpoints {
    let spec = service.spec.clone().unwrap_or_default();
    let family = spec.ip_families.iter().flatten().next().map_or("IPv4", String::as_str);
    let mut subsets: BTreeMap<Vec<PortWords>, EndpointSubset> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.address_type == family) {
        for endpoint in slice.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            let is_ready = conditions.ready != Some(false);
            // Pods that terminate are in slices only, unless the Service publishes every address.
            if conditions.terminating == Some(true) && !is_ready {
                continue;
            }
            let subset = subsets.entry(ports(slice)).or_insert_with_key(|ports| subset_of(ports));
            let addresses = if is_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
            addresses.get_or_insert_default().extend(address(endpoint));
        }
    }
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(MANAGED_BY_LABEL.to_owned(), "endpoint-controller".to_owned());
    labels.remove(HEADLESS_LABEL);
    if spec.cluster_ip.as_deref() == Some("None") {
        labels.insert(HEADLESS_LABEL.to_owned(), String::new());
    }
    Endpoints {
        metadata: ObjectMeta { labels: Some(labels), ..ObjectMeta::default() },
        subsets: (!subsets.is_empty()).then(|| subsets.into_values().collect()),
    }
}

/// Name, number and protocol.
type PortWords = (String, i32, String);

fn ports(slice: &EndpointSlice) -> Vec<PortWords> {
    let words = slice.ports.iter().flatten().map(|port| {
        let name = port.name.clone().unwrap_or_default();
        (name, port.port.unwrap_or_default(), port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()))
    });
    words.collect()
}

fn subset_of(ports: &[PortWords]) -> EndpointSubset {
    let port = |(name, number, protocol): &PortWords| EndpointPort {
        name: Some(name.clone()).filter(|name| !name.is_empty()),
        port: *number,
        protocol: Some(protocol.clone()),
        app_protocol: None,
    };
    let ports: Vec<EndpointPort> = ports.iter().map(port).collect();
    EndpointSubset { ports: Some(ports).filter(|ports| !ports.is_empty()), ..EndpointSubset::default() }
}

fn address(endpoint: &Endpoint) -> Option<EndpointAddress> {
    Some(EndpointAddress {
        ip: endpoint.addresses.first()?.clone(),
        hostname: endpoint.hostname.clone(),
        node_name: endpoint.node_name.clone(),
        target_ref: endpoint.target_ref.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::filled_store;

    fn endpoints(store: &Store, name: &str) -> Option<Value> {
        Some(store.record(ObjectKind::Endpoints, &ObjectKey::new(None, name))?.value())
    }

    #[test]
    fn endpoints_follow_the_pods_once_a_client_reads_them() {
        let mut store = filled_store();
        let version = store.version();
        assert_eq!(endpoints(&store, "web"), None);
        store.serve_endpoints();
        assert!(store.version() > version);
        let web = endpoints(&store, "web").unwrap();
        let addresses = |value: &Value, of: &str| -> Vec<String> {
            let all = value["subsets"][0][of].as_array().into_iter().flatten();
            all.map(|one| one["targetRef"]["name"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let ready = addresses(&web, "addresses");
        assert!(!ready.is_empty(), "{web}");
        assert_eq!(web["metadata"]["labels"][MANAGED_BY_LABEL], "endpoint-controller");
        let first = ObjectKey::new(None, &ready[0]);
        store.set_ready(&first, false).unwrap();
        let web = endpoints(&store, "web").unwrap();
        assert!(addresses(&web, "notReadyAddresses").contains(&ready[0]), "{web}");
        assert!(!addresses(&web, "addresses").contains(&ready[0]), "{web}");
        store.set_ready(&first, true).unwrap();
        store.set_terminating(&first).unwrap();
        let web = endpoints(&store, "web").unwrap();
        assert!(
            !web.to_string().contains(&format!("\"{}\"", ready[0])),
            "a pod that terminates is in slices only: {web}"
        );
        let version = store.version();
        store.serve_endpoints();
        assert_eq!(store.version(), version);
        store.delete("service", &ObjectKey::new(None, "web")).unwrap();
        assert_eq!(endpoints(&store, "web"), None);
    }

    #[test]
    fn a_subset_has_the_endpoints_of_the_same_ports_and_the_first_family() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "s", "labels": {"a": "b"}},
            "spec": {"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"], "selector": {"a": "b"}},
        }))
        .unwrap();
        let slice = |family: &str, address: &str, port: u16| -> EndpointSlice {
            serde_json::from_value(json!({
                "addressType": family,
                "metadata": {},
                "endpoints": [{"addresses": [address], "nodeName": "n"}],
                "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
            }))
            .unwrap()
        };
        let slices = [
            slice("IPv4", "10.0.0.1", 80),
            slice("IPv4", "10.0.0.2", 81),
            slice("IPv4", "10.0.0.3", 80),
            slice("IPv6", "fd00::1", 80),
        ];
        let made = serde_json::to_value(endpoints_of(&service, &slices)).unwrap();
        let subset = |addresses: &[&str], port: u16| {
            let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip, "nodeName": "n"})).collect();
            json!({"addresses": addresses, "ports": [{"name": "http", "port": port, "protocol": "TCP"}]})
        };
        assert_eq!(made["subsets"], json!([subset(&["10.0.0.1", "10.0.0.3"], 80), subset(&["10.0.0.2"], 81)]));
        let labels = json!({"a": "b", MANAGED_BY_LABEL: "endpoint-controller", HEADLESS_LABEL: ""});
        assert_eq!(made["metadata"]["labels"], labels);
    }
}
