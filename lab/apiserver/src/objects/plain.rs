//! Objects that the lab only keeps: namespaces and events.

use k8s_openapi::api::core::v1::{Namespace, NamespaceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The namespaces of a fresh cluster.
pub(super) const FIRST_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Events beyond this number push the oldest out (a real cluster drops them after an hour).
pub(super) const MAX_EVENTS: usize = 1_000;

/// The namespace `name`.
pub(super) fn namespace(name: &str) -> Namespace {
    let mut namespace = Namespace {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    complete(&mut namespace, name);
    namespace
}

/// Adds what the API server adds.
pub(super) fn complete(namespace: &mut Namespace, name: &str) {
    let labels = namespace.metadata.labels.get_or_insert_default();
    labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_owned());
    namespace.spec = Some(NamespaceSpec { finalizers: Some(vec!["kubernetes".to_owned()]) });
    namespace.status.get_or_insert_default().phase = Some("Active".to_owned());
}
