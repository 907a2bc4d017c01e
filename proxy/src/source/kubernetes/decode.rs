use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::super::object::{Object, ObjectKind};
use super::super::problem::one_line;
use super::super::validate::{self, Finding, Findings};
use super::super::{ObjectKey, lenient};
use super::protobuf::{EncodedObject, FromProtobuf};
use super::prune::{Fingerprint, Prune};
use crate::model::LABEL_SERVICE_NAME;

/// An object as the API server encodes it.
#[derive(Debug)]
pub(super) enum RawObject<'a> {
    Json(&'a RawValue),
    Protobuf(EncodedObject),
}

#[derive(Debug)]
pub(super) struct DecodedObject {
    /// Name and namespace, which may be invalid in a rejected object.
    pub key: ObjectKey,
    /// Resource version; empty if absent.
    pub version: String,
    /// The UID; empty if absent.
    pub uid: String,
    pub outcome: DecodeOutcome,
    pub remarks: ObjectComplaint,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ObjectComplaint {
    pub line: String,
    /// The faulty fields without list indices, so that they stay the same while values change.
    pub fields: String,
}

impl ObjectComplaint {
    fn of(findings: &[Finding]) -> ObjectComplaint {
        let line = findings
            .iter()
            .map(|f| if f.field.is_empty() { f.message.clone() } else { format!("{}: {}", f.field, f.message) });
        let line = one_line(&line.collect::<Vec<_>>().join("; "));
        let fields: BTreeSet<String> =
            findings.iter().map(|f| f.field.chars().filter(|c| !c.is_ascii_digit()).collect()).collect();
        ObjectComplaint { line, fields: fields.into_iter().collect::<Vec<_>>().join(" ") }
    }
}

#[derive(Debug)]
pub(super) enum DecodeOutcome {
    Valid(Object, Fingerprint),
    NotOurs,
    Refused(ObjectComplaint),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Envelope {
    pub api_version: Option<String>,
    pub kind: Option<String>,
    #[serde(default)]
    pub metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub resource_version: Option<String>,
    pub uid: Option<String>,
}

impl Envelope {
    /// Reads the metadata of invalid objects, too.
    pub(super) fn of(raw: &RawObject<'_>) -> Envelope {
        match raw {
            RawObject::Json(raw) => serde_json::from_str(raw.get()).unwrap_or_default(),
            RawObject::Protobuf(object) => object.envelope(),
        }
    }

    pub(super) fn is_of(&self, kind: ObjectKind) -> bool {
        let (api_version, name) = (self.api_version.as_deref(), self.kind.as_deref());
        matches!((api_version, name), (Some(version), Some(name)) if ObjectKind::of(version, name) == Some(kind))
    }

    pub(super) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(super) fn key(&self) -> ObjectKey {
        let Metadata { namespace, name, .. } = &self.metadata;
        ObjectKey::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
    }

    pub(super) fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref().filter(|v| !v.is_empty())
    }
}

pub(super) fn decode(kind: ObjectKind, raw: &RawObject<'_>) -> DecodedObject {
    match kind {
        ObjectKind::Node => typed::<Node>(raw, validate::node, |n| Some(Object::Node(Arc::new(n)))),
        ObjectKind::Service => typed::<Service>(raw, validate::service, |s| Some(Object::Service(Arc::new(s)))),
        ObjectKind::EndpointSlice => typed::<EndpointSlice>(raw, validate::slice, |s| {
            let labels = s.metadata.labels.as_ref();
            let ours = labels.is_some_and(|l| l.contains_key(LABEL_SERVICE_NAME));
            ours.then(|| Object::EndpointSlice(Arc::new(s)))
        }),
        ObjectKind::ServiceCidr => {
            typed::<ServiceCIDR>(raw, validate::service_cidr, |cidr| Some(Object::ServiceCidr(Arc::new(cidr))))
        }
    }
}

fn typed<T: DeserializeOwned + FromProtobuf + Resource + Prune>(
    raw: &RawObject<'_>,
    check: fn(&mut T) -> Findings,
    wrap: fn(T) -> Option<Object>,
) -> DecodedObject {
    let refused = |faults: &[Finding]| {
        let envelope = Envelope::of(raw);
        let version = envelope.version().unwrap_or_default().to_owned();
        let (key, uid) = (envelope.key(), envelope.uid().to_owned());
        DecodedObject {
            key,
            version,
            uid,
            outcome: DecodeOutcome::Refused(ObjectComplaint::of(faults)),
            remarks: ObjectComplaint::default(),
        }
    };
    let (mut object, taken): (T, _) = match read(raw) {
        Ok(read) => read,
        Err((field, message)) => return refused(&[Finding { field, message }]),
    };
    let mut findings = check(&mut object);
    let mut remarks = findings.take_remarks();
    let findings = findings.into_vec();
    if !findings.is_empty() {
        return refused(&taken.into_iter().chain(findings).collect::<Vec<_>>());
    }
    remarks.extend(taken.into_iter().map(Finding::ignored));
    let uid = object.metadata().uid.take().unwrap_or_default();
    object.prune();
    let fingerprint = object.fingerprint();
    let metadata = object.metadata();
    let key = ObjectKey::of(metadata);
    let version = metadata.resource_version.clone().unwrap_or_default();
    let outcome = wrap(object).map_or(DecodeOutcome::NotOurs, |object| DecodeOutcome::Valid(object, fingerprint));
    DecodedObject { key, version, uid, outcome, remarks: ObjectComplaint::of(&remarks) }
}

/// Decodes an object; omits values of a wrong type.
fn read<T: DeserializeOwned + FromProtobuf + Resource>(
    raw: &RawObject<'_>,
) -> Result<(T, Vec<Finding>), lenient::Refused> {
    let text = match raw {
        RawObject::Json(raw) => raw.get(),
        RawObject::Protobuf(object) => return object.read(),
    };
    if let Ok(object) = serde_json::from_str(text) {
        return Ok((object, Vec::new()));
    }
    let value = serde_json::from_str(text).map_err(|error| (String::new(), error.to_string()))?;
    lenient::typed(value)
}
