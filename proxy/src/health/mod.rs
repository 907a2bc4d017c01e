//! What others ask about this proxy over HTTP: `/healthz` and `/livez` about the proxy itself, and per Service the
//! health check by which a load balancer finds the nodes that have a local endpoint.

mod applied;
mod eligible;
mod healthz;
mod service;
mod state;

pub use crate::http::ListenError;
pub use applied::applied_versions;
pub use eligible::is_eligible;
pub use healthz::HealthzServer;
pub use service::{ServiceHealthServers, Unserved};
pub use state::{Applied, Busy, FamilyHealth, Health, HealthState};
