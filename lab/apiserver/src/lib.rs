//! A small Kubernetes API over the lab's objects, for service proxies, `kubectl` and client libraries.
//!
//! [`objects::Store`] holds the objects and runs the controllers. [`SharedStore`] shares a store and keeps its history;
//! [`ApiServer`] serves it over HTTP.
//!
//! Served: Services, EndpointSlices, Nodes, Pods, Deployments, ReplicaSets, Namespaces, Events (both API versions),
//! Leases and ServiceCIDRs with get, list, watch, create, update, patch, delete, status and scale, in JSON and in
//! [`protobuf`]; Endpoints, made of EndpointSlices, and NetworkPolicies, of which there are none, to read. Not served: kubelet sub-resources (501), server-side apply (415), discovery in protobuf (406), OpenAPI
//! schemas, other resources (404), authorization, graceful deletion and finalizers.
//!
//! With an [`Upstream`] the server relays another API server and adds faults.
//!
//! [`ServerFault`] reproduces failures of real API servers, [`HOSTILE_ANSWERS`] answers that none should send; see
//! `examples/bad_day.rs`. The feature `kubectl` adds tables, strategic merge patches, discovery and OpenAPI.

#![warn(missing_docs)]

mod auth;
mod change_log;
mod compress;
mod context;
mod encoding;
mod error;
mod event_versions;
mod eviction;
mod fault_control;
mod faults;
mod gate;
mod hostile;
mod hostile_response;
mod kubeconfig;
#[cfg(feature = "kubectl")]
mod kubectl;
#[cfg(not(feature = "kubectl"))]
#[path = "without_kubectl.rs"]
mod kubectl;
mod list;
mod negotiate;
pub mod objects;
mod patch;
pub mod protobuf;
mod query;
mod relay;
mod request;
mod resources;
mod response;
mod scale;
mod selector;
mod serve;
mod shared;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tls;
mod type_change;
mod validate;
mod view;
mod watch;
mod write;

pub use auth::Tokens;
pub use change_log::HistoryBounds;
pub use faults::{ServerFault, ServerRefusal};
pub use hostile::{HOSTILE_ANSWERS, HostileAnswer, HostileTarget, named as hostile_answer};
pub use kubeconfig::{Kubeconfig, KubeconfigError};
pub use relay::Upstream;
pub use serve::{ApiServer, ServeOptions};
pub use shared::SharedStore;
pub use tls::{Tls, TlsError};
pub use validate::{RefusedField, refused_fields};
pub use watch::WatchTimes;
