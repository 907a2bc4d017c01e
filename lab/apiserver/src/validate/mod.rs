//! Validates objects that API clients write. [`Store::apply`](crate::objects::Store::apply) bypasses the validation: a
//! proxy must survive objects that no API server would accept.

mod range;
mod service;
mod slice;
#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::error::Cause;
use super::selector::{is_dns_label, is_label_value, is_qualified, is_subdomain};
use crate::objects::{Object, ObjectKind};

/// A field that kube-apiserver refuses in a new object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedField {
    /// As in `spec.ports[0].port`.
    pub path: String,
    /// What is wrong, in kube-apiserver's words.
    pub problem: String,
}

/// Returns the fields for which kube-apiserver would refuse to create the object (source: `pkg/apis/*/validation`).
pub fn refused_fields(object: &Object) -> Vec<RefusedField> {
    check(object, None).into_iter().map(|cause| RefusedField { path: cause.field, problem: cause.message }).collect()
}

pub(super) fn check(object: &Object, before: Option<&Object>) -> Vec<Cause> {
    let (kind, head) = object.head();
    let mut causes = metadata(kind, head);
    match (object, before) {
        (Object::Service(service), Some(Object::Service(before))) => {
            causes.extend(service::check(service, Some(before)));
        }
        (Object::Service(service), _) => causes.extend(service::check(service, None)),
        (Object::EndpointSlice(slice), Some(Object::EndpointSlice(before))) => {
            causes.extend(slice::check(slice, Some(before)));
        }
        (Object::EndpointSlice(slice), _) => causes.extend(slice::check(slice, None)),
        (Object::ServiceCidr(cidr), Some(Object::ServiceCidr(before))) => {
            causes.extend(range::check(cidr, Some(before)));
        }
        (Object::ServiceCidr(cidr), _) => causes.extend(range::check(cidr, None)),
        (Object::Pod(pod), Some(Object::Pod(before))) => {
            let (old, new) = (immutable_pod_spec(json!(before.spec)), immutable_pod_spec(json!(pod.spec)));
            if old != new {
                let detail = "a pod's spec stays as it is but for images, tolerations, activeDeadlineSeconds and \
                              terminationGracePeriodSeconds";
                causes.push(Cause::forbidden("spec", detail));
            }
        }
        (Object::Pod(pod), None) if pod.spec.as_ref().is_none_or(|spec| spec.containers.is_empty()) => {
            causes.push(Cause::required("spec.containers", ""));
        }
        (Object::Node(node), Some(Object::Node(before))) => {
            let ranges =
                |node: &k8s_openapi::api::core::v1::Node| node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone());
            if ranges(before).is_some() && ranges(before) != ranges(node) {
                causes.push(Cause::forbidden("spec.podCIDRs", "a node's pod ranges stay as they are"));
            }
        }
        _ => {}
    }
    causes
}

fn immutable_pod_spec(mut spec: Value) -> Value {
    if let Value::Object(fields) = &mut spec {
        for field in ["tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds"] {
            fields.remove(field);
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            container["image"] = Value::Null;
        }
    }
    spec
}

fn metadata(kind: ObjectKind, metadata: &ObjectMeta) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = metadata.name.as_deref().unwrap_or_default();
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(problem) = name_problem(kind, name) {
        causes.push(Cause::invalid("metadata.name", &json!(name), problem));
    }
    for (label, value) in metadata.labels.iter().flatten() {
        if !is_qualified(label) {
            causes.push(Cause::invalid(
                "metadata.labels",
                &json!(label),
                "expected a name, or a DNS domain, / and a name",
            ));
        }
        if !is_label_value(value) {
            let detail =
                "a label value has at most 63 letters, digits, '-', '_' and '.', and a letter or digit at both ends";
            causes.push(Cause::invalid("metadata.labels", &json!(value), detail));
        }
    }
    for annotation in metadata.annotations.iter().flatten().map(|(name, _)| name) {
        if !is_qualified(&annotation.to_lowercase()) {
            let detail = "expected a name, or a DNS domain, / and a name";
            causes.push(Cause::invalid("metadata.annotations", &json!(annotation), detail));
        }
    }
    causes
}

fn name_problem(kind: ObjectKind, name: &str) -> Option<&'static str> {
    match kind {
        ObjectKind::Service if !is_dns_label(name, 63) || name.starts_with(|first: char| first.is_ascii_digit()) => {
            Some(
                "expected a DNS-1035 label: at most 63 lower-case letters, digits and '-', a letter first, no '-' last",
            )
        }
        ObjectKind::Namespace if !is_dns_label(name, 63) => {
            Some("expected a DNS-1123 label: at most 63 lower-case letters, digits and '-', no '-' at either end")
        }
        _ if !is_subdomain(name) => Some(
            "expected a DNS-1123 subdomain: lower-case letters, digits, '-' and '.', a letter or digit at both ends",
        ),
        _ => None,
    }
}
