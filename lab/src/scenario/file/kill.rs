//! `killProxy:` a node, a list of nodes, or nodes and the moment.

use schemars::JsonSchema;
use serde::Deserialize;

use super::nodes_or::{NodesOr, nodes_or};
use crate::scenario::values::{NodeChoice, OneOrMany, Span};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Moment {
    /// While its `iptables-restore` runs.
    Restoring,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Later {
    node: OneOrMany<NodeChoice>,
    when: Moment,
    after: Option<Span>,
}

impl<'de> Deserialize<'de> for KillFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match nodes_or(deserializer, "{node: NODE, when: restoring}")? {
            NodesOr::Nodes(node) => KillFile { node, when: None, after: None },
            NodesOr::Map(Later { node, when, after }) => KillFile { node, when: Some(when), after },
        })
    }
}
