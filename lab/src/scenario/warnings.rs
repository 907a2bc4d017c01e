use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use svclab_apiserver::objects::{Object, ObjectKey, Store};

use super::error::FileError;
use super::file::Action;
use super::{PlacedDocument, Scenario, dry_run};

type PortIndex = (ObjectKey, usize);

#[derive(Default)]
struct ServedPorts {
    /// Services whose selector matched a pod.
    selecting: BTreeSet<ObjectKey>,
    /// Service ports whose target port a selected pod had.
    served: BTreeSet<PortIndex>,
}

/// Reports selectors without pods, and target ports without a pod. Scenarios may have these on purpose.
#[must_use]
pub fn warnings(scenario: &Scenario) -> Vec<FileError> {
    let Ok(mut store) = scenario.initial_objects() else { return Vec::new() };
    let mut served_ports = ServedPorts::default();
    served_ports.note(&store);
    for step in &scenario.steps {
        if matches!(step.action, Action::Apply(_) | Action::Delete(_) | Action::Scale(_)) {
            let _ = dry_run::change(&mut store, step);
            served_ports.note(&store);
        }
    }
    let mut last: BTreeMap<ObjectKey, &PlacedDocument> = BTreeMap::new();
    for placed in scenario.manifests.iter().chain(scenario.steps.iter().flat_map(|step| &step.documents)) {
        if let Object::Service(service) = &placed.document.object
            && let Some(name) = &service.metadata.name
        {
            last.insert(ObjectKey::new(service.metadata.namespace.as_deref(), name), placed);
        }
    }
    last.into_iter().flat_map(|(key, placed)| served_ports.missing(&key, placed)).collect()
}

impl ServedPorts {
    fn note(&mut self, store: &Store) {
        let spec = store.cluster_spec();
        let list = store.list();
        let slices = list["items"].as_array().into_iter().flatten().filter(|item| item["kind"] == "EndpointSlice");
        for slice in slices {
            let Some(name) = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str() else { continue };
            let key = ObjectKey::new(slice["metadata"]["namespace"].as_str(), name);
            let pods = slice["endpoints"].as_array().into_iter().flatten();
            let pods: BTreeSet<&str> = pods.filter_map(|one| one["targetRef"]["name"].as_str()).collect();
            if pods.is_empty() {
                continue;
            }
            self.selecting.insert(key.clone());
            let listening = |port: &Value| {
                let own =
                    spec.pods.iter().filter(|pod| pod.namespace == key.namespace && pods.contains(pod.name.as_str()));
                own.flat_map(|pod| &pod.ports).any(|own| {
                    port["port"] == own.port && port["protocol"].as_str().unwrap_or("TCP") == own.protocol.to_string()
                })
            };
            let ports = slice["ports"].as_array().into_iter().flatten();
            let ports: BTreeSet<&str> =
                ports.filter(|port| listening(port)).map(|port| port["name"].as_str().unwrap_or("")).collect();
            let Ok(service) = store.service(&key) else { continue };
            let own = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).enumerate();
            let own = own.filter(|(_, port)| ports.contains(port.name.as_deref().unwrap_or("")));
            self.served.extend(own.map(|(index, _)| (key.clone(), index)));
        }
    }

    fn missing(&self, key: &ObjectKey, placed: &PlacedDocument) -> Vec<FileError> {
        let Object::Service(service) = &placed.document.object else { return Vec::new() };
        let Some(spec) = service.spec.as_ref() else { return Vec::new() };
        let Some(selector) = spec.selector.as_ref().filter(|selector| !selector.is_empty()) else { return Vec::new() };
        let warning = |field: &str, message: String| {
            let (line, column) = placed.field_position(Some(field));
            FileError { file: placed.file.clone(), line, column, message: format!("warning: service {key}: {message}") }
        };
        if !self.selecting.contains(key) {
            let labels: Vec<String> = selector.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let message = format!("its selector {} selects no pod, whatever the steps do", labels.join(","));
            return vec![warning("spec.selector", message)];
        }
        let ports = spec.ports.iter().flatten().enumerate();
        let unserved = ports.filter(|(index, _)| !self.served.contains(&(key.clone(), *index)));
        unserved
            .map(|(index, port)| {
                let target = port.target_port.as_ref().map_or_else(
                    || port.port.to_string(),
                    |target| match target {
                        IntOrString::Int(number) => number.to_string(),
                        IntOrString::String(name) => name.clone(),
                    },
                );
                let protocol = port.protocol.as_deref().unwrap_or("TCP");
                let message = format!("no pod that it selects has the target port {target}/{protocol}");
                warning(&format!("spec.ports[{index}].targetPort"), message)
            })
            .collect()
    }
}
