//! Reads a node, a list of nodes, or a map that contains them.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};

use crate::scenario::values::{NodeChoice, OneOrMany};

pub(super) enum NodesOr<M> {
    Nodes(OneOrMany<NodeChoice>),
    Map(M),
}

pub(super) fn nodes_or<'de, D, M>(deserializer: D, or_map: &'static str) -> Result<NodesOr<M>, D::Error>
where
    D: serde::Deserializer<'de>,
    M: Deserialize<'de>,
{
    deserializer.deserialize_any(EitherVisitor { or_map, map: PhantomData })
}

struct EitherVisitor<M> {
    or_map: &'static str,
    map: PhantomData<M>,
}

impl<'de, M: Deserialize<'de>> Visitor<'de> for EitherVisitor<M> {
    type Value = NodesOr<M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a node, a list of nodes, or {}", self.or_map)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NodesOr<M>, E> {
        OneOrMany::deserialize(StrDeserializer::new(text)).map(NodesOr::Nodes)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<NodesOr<M>, A::Error> {
        OneOrMany::deserialize(SeqAccessDeserializer::new(sequence)).map(NodesOr::Nodes)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NodesOr<M>, A::Error> {
        M::deserialize(MapAccessDeserializer::new(map)).map(NodesOr::Map)
    }
}
