//! Names and labels, common to all kinds.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::syntax::{Checked, label, label_value, qualified_name};
use super::Findings;

/// The namespace of an object that names none.
const DEFAULT_NAMESPACE: &str = "default";

/// Checks the name with the kind's own rule, then what all kinds have in common.
pub(super) fn named(meta: &ObjectMeta, rule: fn(&str) -> Checked, findings: &mut Findings) {
    match meta.name.as_deref() {
        None | Some("") => findings.add("metadata.name", "is missing"),
        Some(name) => {
            findings.check(|| "metadata.name".to_owned(), rule(name));
        }
    }
    for (key, value) in meta.labels.iter().flatten() {
        let field = || "metadata.labels".to_owned();
        findings.check(field, qualified_name(key));
        findings.check(|| format!("metadata.labels[{key}]"), label_value(value));
    }
}

/// As [`named`], for a kind that lives in a namespace; a missing one is `default`.
pub(super) fn namespaced(meta: &mut ObjectMeta, rule: fn(&str) -> Checked, findings: &mut Findings) {
    named(meta, rule, findings);
    let namespace = meta.namespace.take().filter(|n| !n.is_empty());
    let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    findings.check(|| "metadata.namespace".to_owned(), label(&namespace));
    meta.namespace = Some(namespace);
}
