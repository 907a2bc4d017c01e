//! A small Kubernetes API over the lab's objects: what service proxies, `kubectl` and client libraries use of it.
//!
//! [`crate::objects::Store`] stays the home of the objects, and its writes run the controllers. [`SharedStore`] shares
//! one store between scenario steps and API clients and keeps the history of its changes; [`ApiServer`] serves it over
//! HTTP.
//!
//! Served are Services, EndpointSlices, Nodes, Pods, Deployments, ReplicaSets, Namespaces, Events (both API versions), Leases and
//! ServiceCIDRs: get, list, watch, create, update, patch, delete, status, scale; tables for `kubectl get`; JSON only. Not served: what a
//! kubelet answers (logs, exec), server-side apply (415),
//! protobuf (406, 415), OpenAPI schemas, every other resource (404), authorization (a token has all rights), graceful
//! deletion and finalizers.
//!
//! With an [`Upstream`] it serves another API server's objects instead, and only its faults are its own.
//!
//! [`ServerFault`] makes it do what real API servers do on bad days, and [`HOSTILE_ANSWERS`] what none should: `examples/bad_day.rs` serves
//! a manifest and misbehaves as lines of its standard input say. Tables, strategic merge patches, discovery and OpenAPI are the feature `kubectl`.

#![warn(missing_docs)]

mod auth;
mod change_log;
mod context;
mod error;
mod event_versions;
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
mod query;
mod relay;
mod request;
mod resources;
mod response;
mod scale;
mod selector;
mod serve;
mod shared;
#[cfg(test)]
mod testing;
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
pub use watch::WatchTimes;
