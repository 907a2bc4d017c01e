//! `killProxy:` a node, a list of nodes, or nodes and the moment.
#![allow(missing_docs, reason = "the keys are documented once, for authors, in docs/scenarios.md")]

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};

use crate::scenario::words::{NodeChoice, OneOrMany, Span};

/// Whose proxy is killed, and when.
#[derive(Debug)]
pub struct KillFile {
    pub node: OneOrMany<NodeChoice>,
    /// `None`: now.
    pub when: Option<Moment>,
    /// How long after that.
    pub after: Option<Span>,
}

/// A moment in the work of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Moment {
    /// While its `iptables-restore` runs.
    Restoring,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Later {
    node: OneOrMany<NodeChoice>,
    when: Moment,
    after: Option<Span>,
}

impl<'de> Deserialize<'de> for KillFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KillVisitor;
        impl<'de> Visitor<'de> for KillVisitor {
            type Value = KillFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a node, a list of nodes, or {node: NODE, when: restoring}")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<KillFile, E> {
                let node = OneOrMany::deserialize(StrDeserializer::new(text))?;
                Ok(KillFile { node, when: None, after: None })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<KillFile, A::Error> {
                let node = OneOrMany::deserialize(SeqAccessDeserializer::new(sequence))?;
                Ok(KillFile { node, when: None, after: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<KillFile, A::Error> {
                let Later { node, when, after } = Later::deserialize(MapAccessDeserializer::new(map))?;
                Ok(KillFile { node, when: Some(when), after })
            }
        }
        deserializer.deserialize_any(KillVisitor)
    }
}
