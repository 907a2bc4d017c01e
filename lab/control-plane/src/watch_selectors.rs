use serde_json::Value;
use svclab_apiserver::objects::ObjectKind;

pub(crate) const WATCHED: [ObjectKind; 4] =
    [ObjectKind::Service, ObjectKind::EndpointSlice, ObjectKind::Node, ObjectKind::ServiceCidr];

const OF_OTHER_PROXIES: &str = "service.kubernetes.io/service-proxy-name";

/// Labels of objects that kube-proxy ignores (`pkg/proxy/apis/well_known_labels.go`).
fn left_out(kind: ObjectKind) -> &'static [&'static str] {
    match kind {
        ObjectKind::Service => &[OF_OTHER_PROXIES],
        ObjectKind::EndpointSlice => &["service.kubernetes.io/headless", OF_OTHER_PROXIES],
        _ => &[],
    }
}

pub(crate) fn selector(kind: ObjectKind) -> Option<String> {
    let labels = left_out(kind);
    (!labels.is_empty()).then(|| labels.iter().map(|label| format!("!{label}")).collect::<Vec<_>>().join(","))
}

pub(crate) fn is_selected(kind: ObjectKind, object: &Value) -> bool {
    left_out(kind).iter().all(|label| object["metadata"]["labels"].get(*label).is_none_or(Value::is_null))
}
