//! `startProxy:` a node, a list of nodes, or nodes and what is to be different from now on.

use schemars::JsonSchema;
use serde::Deserialize;

use super::nodes_or::{NodesOr, nodes_or};
use super::{Mode, Scheduler};
use crate::scenario::values::{NodeChoice, OneOrMany};

/// Whose proxy is started, and how.
#[derive(Debug)]
pub struct StartFile {
    pub node: OneOrMany<NodeChoice>,
    pub different: ProxyOverride,
}

/// What is different from the start before. `None`: as it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProxyOverride {
    /// The mode.
    pub mode: Option<Mode>,
    /// In IPVS mode, who gets the next connection.
    pub scheduler: Option<Scheduler>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Otherwise {
    node: OneOrMany<NodeChoice>,
    mode: Option<Mode>,
    scheduler: Option<Scheduler>,
}

impl<'de> Deserialize<'de> for StartFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match nodes_or(deserializer, "{node: NODE, mode: MODE, scheduler: SCHEDULER}")? {
            NodesOr::Nodes(node) => StartFile { node, different: ProxyOverride::default() },
            NodesOr::Map(Otherwise { node, mode, scheduler }) => {
                StartFile { node, different: ProxyOverride { mode, scheduler } }
            }
        })
    }
}
