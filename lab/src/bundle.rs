//! The bundle that a failed step of `svclab run` leaves: a directory with what shows why it failed.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::report::MicroVm;

/// The file that says what failed and how it is repeated.
pub const STEP: &str = "step.json";
/// The scenario as it was read.
pub const SCENARIO: &str = "scenario.yaml";
/// What can become of the failed probe, with its way through the rules.
pub const EXPLANATION: &str = "explain.txt";

/// [`STEP`]. The keys that a report of `svclab run --json` has, too, are called as they are there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The scenario's name.
    pub name: String,
    /// Its file, as the run was told.
    pub path: String,
    /// The mode of the proxies.
    pub mode: String,
    /// The variant of iptables.
    pub iptables_variant: String,
    /// The seed.
    pub seed: u64,
    /// The kernel, where it is not the host's.
    pub machine: Option<MicroVm>,
    /// Whether the nodes were audited after steps.
    #[serde(default)]
    pub audited: bool,
    /// The command that repeats the run.
    pub repeat: String,
    /// The step.
    pub step: FailedStep,
    /// The failed probe as the rules of a node see it, if the step is a probe.
    pub call: Option<FailedCall>,
}

/// The step that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedStep {
    /// Its place in the scenario, from 1.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Its line in the file.
    pub line: usize,
    /// What it did, as the file's key.
    pub action: String,
    /// What was promised and what was seen.
    pub mismatches: Vec<Broken>,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// What was promised.
    pub expected: String,
    /// What was seen.
    pub seen: String,
}

/// A call, in the words of `svclab explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCall {
    /// The node whose rules decide.
    pub node: String,
    /// `--from`.
    pub from: String,
    /// `--to`.
    pub to: String,
    /// `--protocol`.
    pub protocol: String,
}

/// Why a directory is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Its description cannot be read.
    #[error("{}: no bundle of a failed step: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its description is not understood.
    #[error("{}: {source}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

impl Failure {
    /// Reads that of a bundle.
    ///
    /// # Errors
    /// When the directory has none.
    pub fn read(bundle: &Path) -> Result<Failure, BundleError> {
        let path = bundle.join(STEP);
        match crate::input::text(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|source| BundleError::Form { path, source }),
            Err(source) => Err(BundleError::Read { path, source }),
        }
    }

    /// The name of its bundle.
    pub fn directory(&self) -> String {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let name: String = self.name.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).collect();
        format!("{name}-{}-step{}", self.mode, self.step.number)
    }
}

/// The archive of a node in a bundle.
pub fn archive(node: &str) -> String {
    format!("{node}.tar")
}
