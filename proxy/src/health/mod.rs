//! What others ask about this proxy over HTTP: `/healthz` and `/livez` about the proxy itself, and per Service the
//! health check by which a load balancer finds the nodes that have a local endpoint.

mod http;
mod service;
mod state;

pub use http::HealthzServer;
pub use service::{ServiceHealth, ServiceHealthServers};
pub use state::HealthState;

/// A listener that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {purpose}: {source}")]
pub struct ListenError {
    /// Where.
    pub address: std::net::SocketAddr,
    /// `/healthz`, or the health check of a Service.
    pub purpose: String,
    /// Why not.
    pub source: std::io::Error,
}
