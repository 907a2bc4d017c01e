use std::path::{Path, PathBuf};

use svclab_apiserver::objects::ObjectError;
use svclab_apiserver::objects::publish::PublishError;
use svclab_apiserver::{KubeconfigError, TlsError};
use svclab_cluster::ClusterError;
use svclab_control_plane::ControlPlaneError;

use crate::expect::Mismatch;
use crate::report::Evidence;
use crate::scenario::LoadError;
use crate::scenario::error::Problem;

/// A failure of the lab, not a broken promise.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("cannot serve the Kubernetes API: {0}")]
    Api(std::io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    #[error("cannot make {path}: {source}")]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("expected: {}; seen: {}", .0.mismatch.expected, .0.mismatch.seen)]
    Proxy(Box<FailedStart>),
    #[error("{0}")]
    Refused(String),
    #[error("{command} on {place}: {problem}")]
    Command { command: String, place: String, problem: String },
    /// A step that the check before the run should have rejected.
    #[error("{0}")]
    Step(String),
}

/// A proxy that did not get ready when the lab was built.
#[derive(Debug)]
pub struct FailedStart {
    pub mismatch: Mismatch,
    /// The ends of the proxies' logs.
    pub logs: String,
    /// Whether all proxies were still running when the lab gave up.
    pub never_ready: bool,
    pub evidence: Option<Evidence>,
}

impl LabError {
    /// Whether the lab or the machine, and not the proxy or the scenario, is to blame. A failed command may be a
    /// proxy's `init`.
    pub fn is_of_this_machine(&self) -> bool {
        match self {
            LabError::Proxy(_)
            | LabError::Load(_)
            | LabError::Object(_)
            | LabError::Step(_)
            | LabError::Command { .. } => false,
            LabError::Cluster(_)
            | LabError::Publish(_)
            | LabError::Api(_)
            | LabError::Tls(_)
            | LabError::Kubeconfig(_)
            | LabError::ControlPlane(_)
            | LabError::Directory { .. }
            | LabError::Refused(_) => true,
        }
    }
}

/// Drops the place in the file, which the check before the run reports.
impl From<Problem> for LabError {
    fn from(problem: Problem) -> Self {
        LabError::Step(problem.message)
    }
}

pub(super) fn make(path: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(path).map_err(|source| LabError::Directory { path: path.to_owned(), source })
}
