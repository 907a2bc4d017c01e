//! From the API's JSON to an object that has passed the same checks as a manifest.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::super::ObjectKey;
use super::super::object::{Kind, Object};
use super::super::problem::one_line;
use super::super::validate::{self, Finding, Findings};
use super::slim::{Fingerprint, Slim};

/// One object of a list or an event.
#[derive(Debug)]
pub(super) struct Decoded {
    /// Which; the name may be anything where the object is refused.
    pub key: ObjectKey,
    /// In which version; empty if it has none.
    pub version: String,
    /// What it is worth.
    pub outcome: Outcome,
    /// What of it is left out of account, in a line; empty if it is taken as it is.
    pub remarks: String,
}

#[derive(Debug)]
pub(super) enum Outcome {
    /// An object for the proxy.
    Valid(Object, Fingerprint),
    /// A slice that belongs to no Service.
    NotOurs,
    /// It breaks the API's own rules, in this way.
    Refused(String),
}

/// What can be said of any object.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Envelope {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
}

impl Envelope {
    /// Reads who the object is, whatever else is wrong with it.
    pub(super) fn of(raw: &RawValue) -> Envelope {
        serde_json::from_str(raw.get()).unwrap_or_default()
    }

    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey {
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            name: self.metadata.name.clone().unwrap_or_default(),
        }
    }

    pub(super) fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref().filter(|v| !v.is_empty())
    }
}

/// Decodes, checks and slims one object.
pub(super) fn decode(kind: Kind, raw: &RawValue) -> Decoded {
    match kind {
        Kind::Node => typed::<Node>(raw, validate::node, |n| Some(Object::Node(Arc::new(n)))),
        Kind::Service => typed::<Service>(raw, validate::service, |s| Some(Object::Service(Arc::new(s)))),
        Kind::EndpointSlice => typed::<EndpointSlice>(raw, validate::slice, |s| {
            let labels = s.metadata.labels.as_ref();
            let ours = labels.is_some_and(|l| l.contains_key(validate::SERVICE_NAME));
            ours.then(|| Object::EndpointSlice(Arc::new(s)))
        }),
    }
}

fn typed<T: DeserializeOwned + Slim>(
    raw: &RawValue,
    check: fn(&mut T) -> Findings,
    wrap: fn(T) -> Option<Object>,
) -> Decoded {
    let refused = |faults: String| {
        let envelope = Envelope::of(raw);
        let version = envelope.version().unwrap_or_default().to_owned();
        Decoded { key: envelope.key(), version, outcome: Outcome::Refused(one_line(&faults)), remarks: String::new() }
    };
    let mut json = serde_json::Deserializer::from_str(raw.get());
    let mut object: T = match serde_path_to_error::deserialize(&mut json) {
        Ok(object) => object,
        Err(error) => return refused(format!("{}: {}", error.path(), error.inner())),
    };
    let mut findings = check(&mut object);
    let remarks = line(&findings.take_remarks());
    let findings = findings.into_vec();
    if !findings.is_empty() {
        return refused(line(&findings));
    }
    object.slim();
    let fingerprint = object.fingerprint();
    let metadata = object.metadata();
    let key = ObjectKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    };
    let version = metadata.resource_version.clone().unwrap_or_default();
    let outcome = wrap(object).map_or(Outcome::NotOurs, |object| Outcome::Valid(object, fingerprint));
    Decoded { key, version, outcome, remarks: one_line(&remarks) }
}

fn line(findings: &[Finding]) -> String {
    let told = findings
        .iter()
        .map(|f| if f.field.is_empty() { f.message.clone() } else { format!("{}: {}", f.field, f.message) });
    told.collect::<Vec<_>>().join("; ")
}
