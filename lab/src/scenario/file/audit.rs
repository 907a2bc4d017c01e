//! `findings:` of an `audit` step.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use svclab_apiserver::objects::ObjectKey;
use svclab_audit::audit::FindingKind;

use crate::scenario::values::{OneOrMany, PlainText, PodRef};

#[derive(Debug, Clone)]
pub struct FindingFile {
    pub kind: FindingKind,
    pub service: Option<ServiceRef>,
    pub cause: Option<OneOrMany<PlainText>>,
}

/// A service in the notation `[NAMESPACE/]NAME[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRef {
    pub key: ObjectKey,
    /// The name of the service port; `None`: any port.
    pub port: Option<String>,
}

impl FromStr for ServiceRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let written = text.strip_prefix("service/").unwrap_or(text);
        let (name, port) = match written.split_once(':') {
            Some((name, port)) => (name, Some(port.to_owned())),
            None => (written, None),
        };
        let wanted =
            || format!("{text:?}: expected a service: NAME or NAMESPACE/NAME, with :PORT if one port is meant");
        let key = name.parse::<PodRef>().map_err(|_| wanted())?.0;
        if port.as_ref().is_some_and(String::is_empty) { Err(wanted()) } else { Ok(ServiceRef { key, port }) }
    }
}

impl fmt::Display for ServiceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        self.port.iter().try_for_each(|port| write!(f, ":{port}"))
    }
}

fn kind<E: serde::de::Error>(text: &str) -> Result<FindingKind, E> {
    FindingKind::all().find(|kind| kind.id() == text).ok_or_else(|| {
        let all: Vec<&str> = FindingKind::all().map(FindingKind::id).collect();
        E::custom(format!("unknown kind of finding `{text}`, expected one of {}", all.join(", ")))
    })
}

impl<'de> Deserialize<'de> for FindingFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FindingVisitor)
    }
}

struct FindingVisitor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FindingMap {
    kind: String,
    service: Option<String>,
    cause: Option<OneOrMany<PlainText>>,
}

impl<'de> serde::de::Visitor<'de> for FindingVisitor {
    type Value = FindingFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a kind of finding, or {kind: KIND, service: NAME, cause: TEXT}")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FindingFile, E> {
        Ok(FindingFile { kind: kind(text)?, service: None, cause: None })
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<FindingFile, A::Error> {
        let FindingMap { kind: word, service, cause } = FindingMap::deserialize(MapAccessDeserializer::new(map))?;
        let service = service.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()?;
        Ok(FindingFile { kind: kind(&word)?, service, cause })
    }
}
