use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::syntax::{Checked, label, label_value, qualified_name};
use super::Findings;
use crate::model::{ANNOTATION_PREFIX, ServiceAnnotation};

const DEFAULT_NAMESPACE: &str = "default";

/// Checks the name by `rule`; removes invalid labels, which no kernel rule uses.
pub(super) fn named(meta: &mut ObjectMeta, rule: fn(&str) -> Checked, findings: &mut Findings) {
    match meta.name.as_deref() {
        None | Some("") => findings.add("metadata.name", "is missing"),
        Some(name) => {
            findings.check(|| "metadata.name".to_owned(), rule(name));
        }
    }
    let Some(labels) = &mut meta.labels else { return };
    labels.retain(|key, value| {
        let fault = match (qualified_name(key), label_value(value)) {
            (Err(message), _) => ("metadata.labels".to_owned(), message),
            (_, Err(message)) => (format!("metadata.labels[{key}]"), message),
            _ => return true,
        };
        findings.remark(fault.0, fault.1);
        false
    });
}

/// Like [`named`]; a missing namespace is `default`.
pub(super) fn namespaced(meta: &mut ObjectMeta, rule: fn(&str) -> Checked, findings: &mut Findings) {
    named(meta, rule, findings);
    let namespace = meta.namespace.take().filter(|n| !n.is_empty());
    let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    findings.check(|| "metadata.namespace".to_owned(), label(&namespace));
    meta.namespace = Some(namespace);
}

/// Removes annotations of this proxy that it does not know, or whose value it does not understand.
pub(super) fn annotations(meta: &mut ObjectMeta, findings: &mut Findings) {
    meta.annotations.iter_mut().for_each(|annotations| {
        annotations.retain(|key, value| {
            let Some(name) = key.strip_prefix(ANNOTATION_PREFIX) else { return true };
            let checked = ServiceAnnotation::named(name).and_then(|annotation| annotation.check(value));
            checked.map_err(|message| findings.remark(format!("metadata.annotations[{key}]"), message)).is_ok()
        });
    });
}
