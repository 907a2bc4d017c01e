//! `KubeProxyConfiguration` of `kubeproxy.config.k8s.io/v1alpha1`, as of Kubernetes 1.37. Flags, warnings and
//! `docs/configuration.md` derive from the table [`FIELDS`].

mod address;
mod check;
mod duration;
mod fields;
mod gates;
mod masquerade;
mod read;
mod tree;
mod types;

pub use address::{bind_address, with_port};
pub use check::{FieldProblem, config};
pub use duration::GoDuration;
pub use fields::{ConfigField, FIELDS, FLAGS_ONLY, FieldSupport, FlagValue, document, without_effect};
pub use gates::{GATES, Gate, GateStage};
pub(crate) use read::fuzz;
pub use read::{ConfigError, LoadedConfig, read};
pub use types::*;

pub const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
pub const KIND: &str = "KubeProxyConfiguration";
