//! Why there is no control plane, or why it does not take what it is given.

use std::path::PathBuf;

use svclab_apiserver::objects::{ObjectKey, ObjectKind};
use svclab_apiserver::{KubeconfigError, TlsError};
use svclab_netns::NetnsError;

/// Why there is no control plane, or why it does not take what it is given.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// A program that must be there is not.
    #[error(
        "{directory} has no {program}: a control plane needs etcd and kube-apiserver, as setup-envtest fetches them"
    )]
    Missing {
        /// Where it was looked for.
        directory: PathBuf,
        /// Which.
        program: &'static str,
    },
    /// A program does not tell its version.
    #[error("{program} --version says {said:?}, which is no version of Kubernetes")]
    Version {
        /// Which.
        program: PathBuf,
        /// What it says.
        said: String,
    },
    /// The programs do not serve what is needed.
    #[error("{program} is {found}; it must be {oldest} at least, which serves ServiceCIDRs (networking.k8s.io/v1)")]
    TooOld {
        /// Which.
        program: PathBuf,
        /// Its version.
        found: semver::Version,
        /// The oldest that will do.
        oldest: semver::Version,
    },
    /// A file or a process.
    #[error("{attempted}: {source}")]
    Io {
        /// What was attempted.
        attempted: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The sandbox's network.
    #[error(transparent)]
    Network(#[from] NetnsError),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The file with which the controllers find the API.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// A program has ended, or does not come up.
    #[error("{program} {problem}; the end of its log: {log}")]
    Daemon {
        /// Which.
        program: &'static str,
        /// What became of it.
        problem: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// The client could not be made, or did not reach the server.
    #[error("asking kube-apiserver: {0}")]
    Client(#[source] Box<kube::Error>),
    /// An answer that is no JSON object.
    #[error("kube-apiserver answers {request} with what is no object: {answer}")]
    Answer {
        /// Method and path.
        request: String,
        /// How the answer begins.
        answer: String,
    },
    /// An object that this API does not take, though the lab's does.
    #[error("kube-apiserver refuses {kind}/{key}: {message}")]
    Refused {
        /// Its kind.
        kind: ObjectKind,
        /// Its name.
        key: ObjectKey,
        /// What it says.
        message: String,
    },
    /// What is there is not what the lab's objects say, and has not become it in time.
    #[error("kube-apiserver does not come to show what the lab has written: {0}")]
    Differs(String),
}

impl ControlPlaneError {
    /// For `map_err`: names what was attempted.
    pub(crate) fn io(attempted: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let attempted = attempted.into();
        move |source| ControlPlaneError::Io { attempted, source }
    }

    /// Whether the API has refused an object: no fault of the machine's, but a scenario that no real API server would serve.
    pub fn is_refusal(&self) -> bool {
        matches!(self, ControlPlaneError::Refused { .. })
    }
}
