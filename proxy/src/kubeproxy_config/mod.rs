//! kube-proxy's own configuration file: `KubeProxyConfiguration` of `kubeproxy.config.k8s.io/v1alpha1`, with the
//! fields and defaults of Kubernetes 1.37.
//!
//! One table ([`FIELDS`]) says of each field which flag sets it, and whether this proxy honours it or why not; the
//! command line, the warnings and `docs/configuration.md` are made from it.

mod address;
mod check;
mod duration;
mod fields;
mod gates;
mod read;
mod tree;
mod types;

pub use address::{bind_address, with_port};
pub use check::{FieldProblem, config};
pub use duration::GoDuration;
pub use fields::{FIELDS, FLAGS_ONLY, Field, State, Value as FlagValue, document, without_effect};
pub use gates::{GATES, Gate, Stage};
pub(crate) use read::fuzz;
pub use read::{ConfigError, LoadedConfig, read};
pub use types::*;

/// The API version that is read and written.
pub const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
/// The kind that is read and written.
pub const KIND: &str = "KubeProxyConfiguration";
