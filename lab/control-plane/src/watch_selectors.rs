use serde_json::Value;
use svclab_apiserver::objects::ObjectKind;

pub(crate) const WATCHED: [ObjectKind; 4] =
    [ObjectKind::Service, ObjectKind::EndpointSlice, ObjectKind::Node, ObjectKind::ServiceCidr];

/// Labels of objects that kube-proxy ignores (`pkg/proxy/apis/well_known_labels.go`).
const LEFT_OUT: [&str; 2] = ["service.kubernetes.io/headless", "service.kubernetes.io/service-proxy-name"];

pub(crate) fn selector(kind: ObjectKind) -> Option<String> {
    let selects = matches!(kind, ObjectKind::Service | ObjectKind::EndpointSlice);
    selects.then(|| LEFT_OUT.map(|label| format!("!{label}")).join(","))
}

pub(crate) fn is_selected(kind: ObjectKind, object: &Value) -> bool {
    selector(kind).is_none()
        || LEFT_OUT.iter().all(|label| object["metadata"]["labels"].get(*label).is_none_or(Value::is_null))
}
