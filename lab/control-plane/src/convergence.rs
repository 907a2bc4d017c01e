use serde_json::Value;
use svclab_apiserver::objects::{ObjectKey, ObjectKind, Store};

use crate::api::version_of;
use crate::mirror::{Mirror, controllers_slices};
use crate::observe::ObservedObjects;
use crate::slice_comparison;
use crate::watch_selectors::{WATCHED, is_selected};

/// Describes the first difference; `None` if there is none. `controllers`: kube-controller-manager creates the
/// EndpointSlices.
pub(crate) fn first_difference(
    seen: &ObservedObjects,
    mirror: &Mirror,
    store: &Store,
    controllers: bool,
) -> Option<String> {
    for kind in WATCHED {
        for (record, version) in mirror.of(kind) {
            let has = seen.get(kind, &record.key).is_some_and(|object| version_of(object) >= version);
            if !has && is_selected(kind, &record.value()) {
                return Some(format!("watches have not sent version {version} of {kind}/{}", record.key));
            }
        }
    }
    let is_left = |kind: ObjectKind, key: &ObjectKey, object: &Value| {
        let controllers = controllers && kind == ObjectKind::EndpointSlice && slice_comparison::is_controllers(object);
        !mirror.has(kind, key) && !is_own(kind, key) && !controllers
    };
    for kind in WATCHED {
        if let Some((key, _)) = seen.of(kind).find(|(key, object)| is_left(kind, key, object)) {
            return Some(format!("watches still show {kind}/{key}"));
        }
    }
    if !controllers {
        return None;
    }
    let made = seen.of(ObjectKind::EndpointSlice).map(|(_, slice)| slice);
    let made = made.filter(|slice| slice_comparison::is_controllers(slice) && !slice["endpoints"].is_null());
    let is_node = |name: &str| store.record(ObjectKind::Node, &ObjectKey::unscoped(name)).is_some();
    let wanted = slice_comparison::service_endpoints(controllers_slices(store).iter(), is_node);
    let made = slice_comparison::service_endpoints(made, is_node);
    slice_comparison::difference(&wanted, &made)
}

/// Whether every API server creates this object itself.
fn is_own(kind: ObjectKind, key: &ObjectKey) -> bool {
    key.name == "kubernetes" && matches!(kind, ObjectKind::Service | ObjectKind::ServiceCidr)
}
