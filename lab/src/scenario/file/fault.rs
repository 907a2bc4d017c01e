//! `commandFault:`, `holdLock:`, `busyWriter:`, `logFault:` and the steps that end them.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::scenario::fault::{Command, Does, Fault, FaultKind, LogReader};
use crate::scenario::values::{NodeChoice, OneOrMany};

/// How often a busy program writes, unless the step says otherwise, and the most that it may be told.
const PER_SECOND: u32 = 100;
const MOST_PER_SECOND: u32 = 1000;

/// `commandFault:`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandFaultFile {
    pub node: OneOrMany<NodeChoice>,
    pub command: Command,
    pub does: Does,
}

/// `logFault:`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogFaultFile {
    pub node: OneOrMany<NodeChoice>,
    pub does: LogReader,
}

/// `busyWriter:`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BusyWriterFile {
    pub node: OneOrMany<NodeChoice>,
    #[schemars(with = "Option<u32>")]
    pub per_second: Option<Spanned<u32>>,
}

/// The keys of a step that begin or end faults.
#[derive(Debug, Default)]
pub struct FaultKeys {
    pub command_fault: Option<CommandFaultFile>,
    pub hold_lock: Option<OneOrMany<NodeChoice>>,
    pub busy_writer: Option<BusyWriterFile>,
    pub log_fault: Option<LogFaultFile>,
    pub end_command_fault: Option<OneOrMany<NodeChoice>>,
    pub release_lock: Option<OneOrMany<NodeChoice>>,
    pub end_busy_writer: Option<OneOrMany<NodeChoice>>,
    pub end_log_fault: Option<OneOrMany<NodeChoice>>,
}

impl FaultKeys {
    /// The faults that begin, and those that end, each with its nodes.
    ///
    /// # Errors
    /// A rate that makes no sense.
    #[allow(clippy::type_complexity, reason = "two lists of pairs")]
    pub fn meant(
        self,
    ) -> Result<(Vec<(Fault, OneOrMany<NodeChoice>)>, Vec<(FaultKind, OneOrMany<NodeChoice>)>), String> {
        let (mut begin, mut end) = (Vec::new(), Vec::new());
        begin.extend(self.command_fault.map(|file| (Fault::Command(file.command, file.does), file.node)));
        begin.extend(self.hold_lock.map(|nodes| (Fault::Lock, nodes)));
        begin.extend(self.log_fault.map(|file| (Fault::Log(file.does), file.node)));
        if let Some(file) = self.busy_writer {
            let per_second = file.per_second.map_or(PER_SECOND, |written| written.value);
            if !(1..=MOST_PER_SECOND).contains(&per_second) {
                return Err(format!("busyWriter.perSecond: expected 1 to {MOST_PER_SECOND}"));
            }
            begin.push((Fault::Writer(per_second), file.node));
        }
        end.extend(self.end_command_fault.map(|nodes| (FaultKind::Command, nodes)));
        end.extend(self.release_lock.map(|nodes| (FaultKind::Lock, nodes)));
        end.extend(self.end_busy_writer.map(|nodes| (FaultKind::Writer, nodes)));
        end.extend(self.end_log_fault.map(|nodes| (FaultKind::Log, nodes)));
        Ok((begin, end))
    }
}
