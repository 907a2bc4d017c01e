//! Why a lab could not do something.

use std::path::{Path, PathBuf};

use svclab_apiserver::objects::ObjectError;
use svclab_apiserver::objects::publish::PublishError;
use svclab_apiserver::{KubeconfigError, TlsError};
use svclab_cluster::ClusterError;
use svclab_control_plane::ControlPlaneError;

use crate::expect::Mismatch;
use crate::scenario::LoadError;
use crate::scenario::error::Problem;

/// Why the lab could not do something. A broken promise is none of these.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The cluster refused.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The manifests do not fit.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An object does not fit.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The objects could not be written for the proxies.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The Kubernetes API could not be served.
    #[error("cannot serve the Kubernetes API: {0}")]
    Api(std::io::Error),
    /// The API's certificate could not be made.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A node's kubeconfig could not be written.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// A real control plane does not start, or does not take what it is given.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// A working directory could not be made.
    #[error("cannot make {path}: {source}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The proxies did not come up.
    #[error("expected: {}; seen: {}", .0.expected, .0.seen)]
    Proxy(Mismatch),
    /// The proxies did not come up, for this machine refuses them what they need.
    #[error("{0}")]
    Refused(String),
    /// A command of the lab's own failed.
    #[error("{command} on {place}: {problem}")]
    Command {
        /// What was run.
        command: String,
        /// Where.
        place: String,
        /// What it said.
        problem: String,
    },
    /// A step that the check before the run would have refused.
    #[error("{0}")]
    Step(String),
}

impl LabError {
    /// Whether it is the lab or this machine that cannot do it, whatever the proxy and the scenario. Commands are not: the `init` of another's
    /// proxy is one.
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

/// A problem of a step that was found only now: the check before the run has the file's own place of it.
impl From<Problem> for LabError {
    fn from(problem: Problem) -> Self {
        LabError::Step(problem.message)
    }
}

pub(super) fn make(path: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(path).map_err(|source| LabError::Directory { path: path.to_owned(), source })
}
