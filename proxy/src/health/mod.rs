//! `/healthz`, `/livez` and `/readyz` of the proxy, and the `healthCheckNodePort` of each Service.

mod applied;
mod eligible;
mod healthz;
mod service;
mod state;

pub use crate::http::ListenError;
pub use applied::{applied_versions, recalled_state};
pub use eligible::is_eligible;
pub use healthz::HealthzServer;
pub use service::{ServiceHealthServers, UnopenedCheck};
pub use state::{AppliedVersions, BusyMark, FamilyHealth, HealthSnapshot, HealthState};
