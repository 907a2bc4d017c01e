//! From the API's JSON to an object that has passed the same checks as a manifest.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::super::object::{Kind, Object};
use super::super::problem::one_line;
use super::super::validate::{self, Finding, Findings};
use super::super::{ObjectKey, lenient};
use super::slim::{Fingerprint, Slim};
use crate::model::LABEL_SERVICE_NAME;

/// One object of a list or an event.
#[derive(Debug)]
pub(super) struct Decoded {
    /// Which; the name may be anything where the object is refused.
    pub key: ObjectKey,
    /// In which version; empty if it has none.
    pub version: String,
    /// Which object of that name; empty if it does not say.
    pub uid: String,
    /// What it is worth.
    pub outcome: Outcome,
    /// What of it is left out of account; empty if it is taken as it is.
    pub remarks: Said,
}

/// What is to be said of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// In a line.
    pub line: String,
    /// About which fields, without the numbers in their paths: the reason, which stays the same while values change.
    pub fields: String,
}

impl Said {
    fn of(findings: &[Finding]) -> Said {
        let line = findings
            .iter()
            .map(|f| if f.field.is_empty() { f.message.clone() } else { format!("{}: {}", f.field, f.message) });
        let line = one_line(&line.collect::<Vec<_>>().join("; "));
        let fields: BTreeSet<String> =
            findings.iter().map(|f| f.field.chars().filter(|c| !c.is_ascii_digit()).collect()).collect();
        Said { line, fields: fields.into_iter().collect::<Vec<_>>().join(" ") }
    }
}

#[derive(Debug)]
pub(super) enum Outcome {
    /// An object for the proxy.
    Valid(Object, Fingerprint),
    /// A slice that belongs to no Service.
    NotOurs,
    /// It breaks the API's own rules, in this way.
    Refused(Said),
}

/// What can be said of any object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Envelope {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    uid: Option<String>,
}

impl Envelope {
    /// Reads who the object is, whatever else is wrong with it.
    pub(super) fn of(raw: &RawValue) -> Envelope {
        serde_json::from_str(raw.get()).unwrap_or_default()
    }

    /// Whether it says that it is of this kind.
    pub(super) fn is_of(&self, kind: Kind) -> bool {
        let (api_version, name) = (self.api_version.as_deref(), self.kind.as_deref());
        matches!((api_version, name), (Some(version), Some(name)) if Kind::of(version, name) == Some(kind))
    }

    /// Which object of that name; empty if it does not say.
    pub(super) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
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
            let ours = labels.is_some_and(|l| l.contains_key(LABEL_SERVICE_NAME));
            ours.then(|| Object::EndpointSlice(Arc::new(s)))
        }),
        Kind::ServiceCidr => {
            typed::<ServiceCIDR>(raw, validate::service_cidr, |cidr| Some(Object::ServiceCidr(Arc::new(cidr))))
        }
    }
}

fn typed<T: DeserializeOwned + Slim>(
    raw: &RawValue,
    check: fn(&mut T) -> Findings,
    wrap: fn(T) -> Option<Object>,
) -> Decoded {
    let refused = |faults: &[Finding]| {
        let envelope = Envelope::of(raw);
        let version = envelope.version().unwrap_or_default().to_owned();
        let (key, uid) = (envelope.key(), envelope.uid().to_owned());
        Decoded { key, version, uid, outcome: Outcome::Refused(Said::of(faults)), remarks: Said::default() }
    };
    let (mut object, taken): (T, _) = match read(raw) {
        Ok(read) => read,
        Err((field, message)) => return refused(&[Finding { field, message }]),
    };
    let mut findings = check(&mut object);
    let mut remarks = findings.take_remarks();
    let findings = findings.into_vec();
    if !findings.is_empty() {
        // What was taken out may be why the rest is not enough.
        return refused(&taken.into_iter().chain(findings).collect::<Vec<_>>());
    }
    remarks.extend(taken.into_iter().map(Finding::left_out));
    let uid = object.metadata().uid.take().unwrap_or_default();
    object.slim();
    let fingerprint = object.fingerprint();
    let metadata = object.metadata();
    let key = ObjectKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    };
    let version = metadata.resource_version.clone().unwrap_or_default();
    let outcome = wrap(object).map_or(Outcome::NotOurs, |object| Outcome::Valid(object, fingerprint));
    Decoded { key, version, uid, outcome, remarks: Said::of(&remarks) }
}

/// Most objects are read at once; one with a wrong type is read as plain JSON first, so that less of it is lost.
fn read<T: DeserializeOwned>(raw: &RawValue) -> Result<(T, Vec<Finding>), lenient::Refused> {
    if let Ok(object) = serde_json::from_str(raw.get()) {
        return Ok((object, Vec::new()));
    }
    let value = serde_json::from_str(raw.get()).map_err(|error| (String::new(), error.to_string()))?;
    lenient::typed(value)
}
