use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;

use super::validate::{self, Findings};
use super::{Change, ObjectKey};
use crate::model::LABEL_SERVICE_NAME;

/// Validates a Service; the error lists the invalid fields.
pub fn admit_service(mut service: Service) -> Result<Change, String> {
    refused(validate::service(&mut service))?;
    Ok(Change::Service(ObjectKey::of(&service.metadata), Some(Arc::new(service))))
}

pub fn admit_endpoint_slice(mut slice: EndpointSlice) -> Result<Option<Change>, String> {
    refused(validate::slice(&mut slice))?;
    let labels = slice.metadata.labels.as_ref();
    let ours = labels.is_some_and(|labels| labels.contains_key(LABEL_SERVICE_NAME));
    Ok(ours.then(|| Change::EndpointSlice(ObjectKey::of(&slice.metadata), Some(Arc::new(slice)))))
}

pub fn admit_node(mut node: Node) -> Result<Change, String> {
    refused(validate::node(&mut node))?;
    Ok(Change::Node(ObjectKey::of(&node.metadata).name.into(), Some(Arc::new(node))))
}

pub fn admit_service_cidr(mut cidr: ServiceCIDR) -> Result<Change, String> {
    refused(validate::service_cidr(&mut cidr))?;
    Ok(Change::ServiceCidr(ObjectKey::of(&cidr.metadata).name.into(), Some(Arc::new(cidr))))
}

fn refused(findings: Findings) -> Result<(), String> {
    let reported = findings.into_vec().into_iter().map(|finding| match finding.field.as_str() {
        "" => finding.message,
        field => format!("{field}: {}", finding.message),
    });
    let reported: Vec<String> = reported.collect();
    if reported.is_empty() { Ok(()) } else { Err(reported.join("; ")) }
}
