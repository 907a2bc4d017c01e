//! `startProxy:` a node, a list of nodes, or nodes and the mode.
#![allow(missing_docs, reason = "the keys are documented once, for authors, in docs/scenarios.md")]

use serde::Deserialize;

use super::Mode;
use super::nodes_or::{NodesOr, nodes_or};
use crate::scenario::words::{NodeChoice, OneOrMany};

/// Whose proxy is started, and in which mode.
#[derive(Debug)]
pub struct StartFile {
    pub node: OneOrMany<NodeChoice>,
    /// `None`: in the one that it was in.
    pub mode: Option<Mode>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InMode {
    node: OneOrMany<NodeChoice>,
    mode: Mode,
}

impl<'de> Deserialize<'de> for StartFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match nodes_or(deserializer, "{node: NODE, mode: MODE}")? {
            NodesOr::Nodes(node) => StartFile { node, mode: None },
            NodesOr::Map(InMode { node, mode }) => StartFile { node, mode: Some(mode) },
        })
    }
}
