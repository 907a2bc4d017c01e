//! Asks svcproxy, or whoever stands in for it, what it would program on a node.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::{Program, ProgramError};
use crate::scenario::file::Mode;

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
    Program(#[from] ProgramError),
}

/// Who says what is to be programmed.
pub trait Programmer: Send + Sync {
    /// What is to be programmed on `node` for the objects in the directory `manifests`, by a proxy with these flags.
    ///
    /// # Errors
    /// When it cannot be asked, refuses, or prints what the simulator does not understand.
    fn program(&self, node: &str, mode: Mode, flags: &[String], manifests: &Path) -> Result<Program, RenderError>;
}

/// svcproxy, by its path.
#[derive(Debug, Clone)]
pub struct Svcproxy(pub PathBuf);

impl Programmer for Svcproxy {
    fn program(&self, node: &str, mode: Mode, flags: &[String], manifests: &Path) -> Result<Program, RenderError> {
        render(&self.0, node, mode, flags, manifests)
    }
}

fn render(proxy: &Path, node: &str, mode: Mode, flags: &[String], manifests: &Path) -> Result<Program, RenderError> {
    let mut command = Command::new(proxy);
    command.arg("render").arg("--manifests").arg(manifests).arg(format!("--hostname-override={node}"));
    command.arg(format!("--mode={mode}")).args(flags);
    let start = |source| RenderError::Start { program: proxy.display().to_string(), source };
    let output = command.output().map_err(start)?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(RenderError::Refused { node: node.to_owned(), complaint });
    }
    Ok(Program::rendered(node, &String::from_utf8_lossy(&output.stdout))?)
}
