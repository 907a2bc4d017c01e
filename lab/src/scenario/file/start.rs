use schemars::JsonSchema;
use serde::Deserialize;

use super::nodes_or::{NodesOr, nodes_or};
use super::{Mode, Scheduler};
use crate::scenario::values::{NodeChoice, OneOrMany};

#[derive(Debug, Clone)]
pub struct StartFile {
    pub node: OneOrMany<NodeChoice>,
    pub different: ProxyOverride,
}

/// Settings that change with this start; `None`: unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProxyOverride {
    pub mode: Option<Mode>,
    pub scheduler: Option<Scheduler>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartMap {
    /// A node, a list of nodes, or `all`.
    node: OneOrMany<NodeChoice>,
    /// The proxy's mode from this start on; default: as before.
    mode: Option<Mode>,
    /// The IPVS scheduler from this start on; default: as before.
    scheduler: Option<Scheduler>,
}

impl<'de> Deserialize<'de> for StartFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match nodes_or(deserializer, "{node: NODE, mode: MODE, scheduler: SCHEDULER}")? {
            NodesOr::Nodes(node) => StartFile { node, different: ProxyOverride::default() },
            NodesOr::Map(StartMap { node, mode, scheduler }) => {
                StartFile { node, different: ProxyOverride { mode, scheduler } }
            }
        })
    }
}
