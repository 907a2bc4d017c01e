use std::path::{Path, PathBuf};
use std::process::Command;

use svclab_sim::cluster::NodeReadError;

use super::rendered::Rendered;

#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("cannot run {program}: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("svcproxy render on {node}: {complaint}")]
    Refused { node: String, complaint: String },
    #[error(transparent)]
    Read(#[from] NodeReadError),
}

pub trait RuleSource: Send + Sync {
    fn render(
        &self,
        node: &str,
        configuration: &Path,
        flags: &[String],
        manifests: &Path,
    ) -> Result<Rendered, RenderError>;
}

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
