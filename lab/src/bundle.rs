use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::report::{MicroVm, TestedProxy};

/// The bundle's file that says what failed and how to repeat the run.
pub const STEP: &str = "step.json";
pub const SCENARIO: &str = "scenario.yaml";
pub const EXPLANATION: &str = "explain.txt";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleStep {
    pub name: String,
    pub path: String,
    pub mode: String,
    pub iptables_variant: String,
    pub seed: u64,
    pub machine: Option<MicroVm>,
    #[serde(default)]
    pub proxy: TestedProxy,
    #[serde(default)]
    pub audited: bool,
    pub repeat: String,
    pub step: FailedStep,
    pub call: Option<FailedCall>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedStep {
    /// The step's number, from 1; 0: the start.
    pub number: usize,
    pub name: String,
    pub line: usize,
    pub action: String,
    pub mismatches: Vec<FailedPromise>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPromise {
    pub expected: String,
    pub seen: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCall {
    pub node: String,
    pub from: String,
    pub to: String,
    pub protocol: String,
}

#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("{}: no bundle of a failed step: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Form { path: PathBuf, source: serde_json::Error },
}

impl BundleStep {
    pub fn read(bundle: &Path) -> Result<BundleStep, BundleError> {
        let path = bundle.join(STEP);
        match crate::input::text(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|source| BundleError::Form { path, source }),
            Err(source) => Err(BundleError::Read { path, source }),
        }
    }

    pub fn directory(&self) -> String {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let name: String = self.name.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).collect();
        match self.step.number {
            0 => format!("{name}-{}-start", self.mode),
            number => format!("{name}-{}-step{number}", self.mode),
        }
    }
}

pub fn archive(node: &str) -> String {
    format!("{node}.tar")
}
