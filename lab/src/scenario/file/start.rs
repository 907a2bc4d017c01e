use schemars::JsonSchema;
use serde::Deserialize;

use super::nodes_or::{NodesOr, nodes_or};
use super::{Mode, Scheduler};
use crate::scenario::values::{NodeChoice, OneOrMany};

#[derive(Debug, Clone)]
pub struct StartFile {
    pub node: OneOrMany<NodeChoice>,
    pub different: ProxyOverride,
    /// `None`: at once, after a SIGTERM to a running proxy.
    pub when: Option<StartMoment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StartMoment {
    /// When the running proxy has ended by itself, because its configuration file has changed.
    Ended,
}

/// Settings that change with this start; `None`: unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProxyOverride {
    pub mode: Option<Mode>,
    pub scheduler: Option<Scheduler>,
    pub masquerade_all: Option<bool>,
}

impl ProxyOverride {
    pub fn or(self, earlier: ProxyOverride) -> ProxyOverride {
        ProxyOverride {
            mode: self.mode.or(earlier.mode),
            scheduler: self.scheduler.or(earlier.scheduler),
            masquerade_all: self.masquerade_all.or(earlier.masquerade_all),
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StartMap {
    /// A node, a list of nodes, or `all`.
    node: OneOrMany<NodeChoice>,
    /// The proxy's mode from this start on; default: as before.
    mode: Option<Mode>,
    /// The IPVS scheduler from this start on; default: as before.
    scheduler: Option<Scheduler>,
    /// Whether the source of every packet to a cluster IP is masqueraded, from this start on; default: as before.
    masquerade_all: Option<bool>,
    /// `ended`: when the running proxy has ended by itself, because its configuration file has changed.
    when: Option<StartMoment>,
}

impl<'de> Deserialize<'de> for StartFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match nodes_or(deserializer, "{node: NODE, mode: MODE, scheduler: SCHEDULER}")? {
            NodesOr::Nodes(node) => StartFile { node, different: ProxyOverride::default(), when: None },
            NodesOr::Map(StartMap { node, mode, scheduler, masquerade_all, when }) => {
                StartFile { node, different: ProxyOverride { mode, scheduler, masquerade_all }, when }
            }
        })
    }
}
