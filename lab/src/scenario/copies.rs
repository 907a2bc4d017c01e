//! Copies of a pod or of a Service, named `-2`, `-3` and so on.

use serde_json::{Value, json};
use svclab_apiserver::objects::{Object, ObjectError, ObjectKey, ObjectKind, Store};

use super::file::ScaleFile;

/// What the API server chooses for each copy of a Service, and an address that only one Service can have.
const OWN_FIELDS: [&str; 5] = ["clusterIP", "clusterIPs", "healthCheckNodePort", "loadBalancerIP", "externalIPs"];

pub(super) fn scale(store: &mut Store, file: &ScaleFile) -> Result<(), ObjectError> {
    let pods = file.pod.iter().map(|pod| (ObjectKind::Pod, &pod.value.0));
    let services = file.service.iter().map(|service| (ObjectKind::Service, &service.value.0));
    pods.chain(services).try_for_each(|(kind, original)| scale_to(store, kind, original, file.to))
}

/// Scales pods on the nodes in turn.
fn scale_to(store: &mut Store, kind: ObjectKind, original: &ObjectKey, count: usize) -> Result<(), ObjectError> {
    let word = if kind == ObjectKind::Pod { "pod" } else { "service" };
    match kind {
        ObjectKind::Pod => drop(store.pod(original)?),
        _ => drop(store.service(original)?),
    }
    let json = store.record(kind, original).map(|record| record.json.clone()).unwrap_or_default();
    let copy = |number: usize| ObjectKey { name: format!("{}-{number}", original.name), ..original.clone() };
    for number in 2..=count {
        if store.record(kind, &copy(number)).is_some() {
            continue;
        }
        let mut value: Value = serde_json::from_slice(&json).unwrap_or_default();
        let (labels, name) = (value["metadata"]["labels"].take(), copy(number).name);
        value["metadata"] = json!({ "name": name, "namespace": original.namespace, "labels": labels });
        match kind {
            ObjectKind::Pod => anonymous_pod(&mut value),
            _ => anonymous_service(&mut value),
        }
        let object = Object::from_value(kind, &value);
        let (object, _) =
            object.map_err(|wrong| ObjectError::field(format!("{word}/{original}"), wrong.field, wrong.expected))?;
        store.apply(object)?;
    }
    let mut surplus = count.max(1) + 1;
    while store.record(kind, &copy(surplus)).is_some() {
        store.delete(word, &copy(surplus))?;
        surplus += 1;
    }
    Ok(())
}

fn anonymous_pod(pod: &mut Value) {
    for (part, field) in [("spec", "nodeName"), ("status", "podIP"), ("status", "podIPs")] {
        if let Some(part) = pod[part].as_object_mut() {
            part.remove(field);
        }
    }
}

fn anonymous_service(service: &mut Value) {
    if let Some(service) = service.as_object_mut() {
        service.remove("status");
    }
    if let Some(spec) = service["spec"].as_object_mut() {
        OWN_FIELDS.iter().for_each(|field| drop(spec.remove(*field)));
    }
    for port in service["spec"]["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
}
