use schemars::JsonSchema;
use serde::Deserialize;

use super::nodes_or::{NodesOr, nodes_or};
use crate::scenario::values::{NodeChoice, OneOrMany, TimeSpan};

#[derive(Debug, Clone)]
pub struct KillFile {
    pub node: OneOrMany<NodeChoice>,
    /// `None`: at once.
    pub when: Option<KillMoment>,
    /// How long after the start of the restore.
    pub after: Option<TimeSpan>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KillMoment {
    /// While its `iptables-restore` runs.
    Restoring,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KillMap {
    /// A node, a list of nodes, or `all`.
    node: OneOrMany<NodeChoice>,
    /// `restoring`: while its `iptables-restore` runs, in the next step.
    when: KillMoment,
    /// How long after the start of the restore; default `0s`.
    after: Option<TimeSpan>,
}

impl<'de> Deserialize<'de> for KillFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match nodes_or(deserializer, "{node: NODE, when: restoring}")? {
            NodesOr::Nodes(node) => KillFile { node, when: None, after: None },
            NodesOr::Map(KillMap { node, when, after }) => KillFile { node, when: Some(when), after },
        })
    }
}
