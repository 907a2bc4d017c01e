//! Asks svcproxy, or whoever stands in for it, what it would program on a node.

use std::path::{Path, PathBuf};
use std::process::Command;

use svclab_sim::cluster::NodeReadError;

use super::rendered::Rendered;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The program did not run.
    #[error("cannot run {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It complained.
    #[error("svcproxy render on {node}: {complaint}")]
    Refused {
        /// The node.
        node: String,
        /// What it said.
        complaint: String,
    },
    /// It prints what the simulator does not understand.
    #[error(transparent)]
    Read(#[from] NodeReadError),
}

/// Where the rules of simulated nodes come from.
pub trait RuleSource: Send + Sync {
    /// What is to be programmed on `node` for the objects in the directory `manifests`, by a proxy with this configuration
    /// file and these flags.
    ///
    /// # Errors
    /// When it cannot be asked, refuses, or prints what the simulator does not understand.
    fn render(
        &self,
        node: &str,
        configuration: &Path,
        flags: &[String],
        manifests: &Path,
    ) -> Result<Rendered, RenderError>;
}

/// svcproxy, by its path.
#[derive(Debug, Clone)]
pub struct Svcproxy(pub PathBuf);

impl RuleSource for Svcproxy {
    fn render(
        &self,
        node: &str,
        configuration: &Path,
        flags: &[String],
        manifests: &Path,
    ) -> Result<Rendered, RenderError> {
        let mut command = Command::new(&self.0);
        command.arg("render").arg("--config").arg(configuration).arg("--manifests").arg(manifests);
        command.arg(format!("--hostname-override={node}")).args(flags);
        let start = |source| RenderError::Start { program: self.0.display().to_string(), source };
        let output = command.output().map_err(start)?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(RenderError::Refused { node: node.to_owned(), complaint });
        }
        Ok(Rendered::read(node, &String::from_utf8_lossy(&output.stdout))?)
    }
}
