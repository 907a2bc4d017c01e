use std::path::PathBuf;

use svclab_apiserver::objects::{ObjectKey, ObjectKind};
use svclab_apiserver::{KubeconfigError, TlsError};
use svclab_netns::NetnsError;

#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    #[error(
        "{directory} has no kube-apiserver: a control plane needs etcd and kube-apiserver, as setup-envtest fetches them"
    )]
    NoApiServer { directory: PathBuf },
    #[error("there is no etcd in {directory} or PATH: a control plane needs it (Debian package etcd-server)")]
    NoEtcd { directory: PathBuf },
    #[error("{program} --version printed {output:?}, which is no version of Kubernetes")]
    Version { program: PathBuf, output: String },
    #[error("{program} is {found}; it must be {oldest} at least, which serves ServiceCIDRs (networking.k8s.io/v1)")]
    TooOld { program: PathBuf, found: semver::Version, oldest: semver::Version },
    #[error("{attempted}: {source}")]
    Io { attempted: String, source: std::io::Error },
    #[error(transparent)]
    Network(#[from] NetnsError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("{program} {problem}; the end of its log: {log}")]
    Daemon { program: &'static str, problem: String, log: String },
    #[error("cannot reach kube-apiserver: {0}")]
    Client(#[source] Box<kube::Error>),
    #[error("kube-apiserver answered {request} with an unexpected body: {answer}")]
    Answer { request: String, answer: String },
    #[error("kube-apiserver refuses {kind}/{key}: {message}")]
    Refused { kind: ObjectKind, key: ObjectKey, message: String },
    #[error("kube-apiserver does not show the lab's objects: {0}")]
    Differs(String),
}

impl From<kube::Error> for ControlPlaneError {
    fn from(error: kube::Error) -> Self {
        ControlPlaneError::Client(Box::new(error))
    }
}

impl ControlPlaneError {
    pub(crate) fn io(attempted: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let attempted = attempted.into();
        move |source| ControlPlaneError::Io { attempted, source }
    }

    /// Whether the API server rejected an object: then the scenario is wrong, not this machine.
    pub fn is_refusal(&self) -> bool {
        matches!(self, ControlPlaneError::Refused { .. })
    }
}
