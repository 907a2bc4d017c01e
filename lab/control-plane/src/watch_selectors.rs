//! Which objects proxies ask for.

use serde_json::Value;
use svclab_apiserver::objects::ObjectKind;

/// The kinds that proxies watch.
pub(crate) const WATCHED: [ObjectKind; 4] =
    [ObjectKind::Service, ObjectKind::EndpointSlice, ObjectKind::Node, ObjectKind::ServiceCidr];

/// Labels of objects that kube-proxy and others of its kind leave to somebody else (`pkg/proxy/apis/well_known_labels.go`).
const LEFT_OUT: [&str; 2] = ["service.kubernetes.io/headless", "service.kubernetes.io/service-proxy-name"];

/// The label selector of a kind.
pub(crate) fn selector(kind: ObjectKind) -> Option<String> {
    let selects = matches!(kind, ObjectKind::Service | ObjectKind::EndpointSlice);
    selects.then(|| LEFT_OUT.map(|label| format!("!{label}")).join(","))
}

/// Whether the selector lets an object of the kind through.
pub(crate) fn is_selected(kind: ObjectKind, object: &Value) -> bool {
    selector(kind).is_none()
        || LEFT_OUT.iter().all(|label| object["metadata"]["labels"].get(*label).is_none_or(Value::is_null))
}
