//! `commandFault:`, `busyWriter:` and `logFault:`

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::scenario::fault::{CommandFaultKind, IptablesCommand, LogReaderFault};
use crate::scenario::values::{NodeChoice, OneOrMany};

/// The default and the largest rate of a busy writer.
const PER_SECOND: u32 = 100;
const MOST_PER_SECOND: u32 = 1000;

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandFaultFile {
    /// A node, a list of nodes, or `all`.
    pub node: OneOrMany<NodeChoice>,
    /// The command that misbehaves for the proxy.
    pub command: IptablesCommand,
    /// What the command does: `fail` ends with status 1, `hang` never ends, `garbage` prints noise.
    pub does: CommandFaultKind,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogFaultFile {
    /// A node, a list of nodes, or `all`.
    pub node: OneOrMany<NodeChoice>,
    /// What the reader of the proxy's log does: `stall` stops reading, `end` closes its end.
    pub does: LogReaderFault,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BusyWriterFile {
    /// A node, a list of nodes, or `all`.
    pub node: OneOrMany<NodeChoice>,
    /// How often a second the program writes its table, 1 to 1000; default 100.
    #[schemars(with = "Option<u32>")]
    pub per_second: Option<Spanned<u32>>,
}

impl BusyWriterFile {
    pub fn per_second(&self) -> u32 {
        self.per_second.as_ref().map_or(PER_SECOND, |written| written.value)
    }

    pub(super) fn mistake(&self) -> Option<String> {
        let is_right = (1..=MOST_PER_SECOND).contains(&self.per_second());
        (!is_right).then(|| format!("busyWriter.perSecond: expected 1 to {MOST_PER_SECOND}"))
    }
}
