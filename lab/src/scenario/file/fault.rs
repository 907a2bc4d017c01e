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
    pub node: OneOrMany<NodeChoice>,
    pub command: IptablesCommand,
    pub does: CommandFaultKind,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogFaultFile {
    pub node: OneOrMany<NodeChoice>,
    pub does: LogReaderFault,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BusyWriterFile {
    pub node: OneOrMany<NodeChoice>,
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
