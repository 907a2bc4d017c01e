//! Relays connections and datagrams to backends: for userspace mode, and for node ports on loopback addresses in
//! nftables mode.
//!
//! [`balancer`] chooses backends (pure), [`tcp`] and [`udp`] relay, [`pipes`] moves bytes in the kernel, [`sockets`]
//! has the system calls, [`limiter`] limits connections, [`engine`] runs all.

pub mod balancer;
pub mod clients;
pub mod engine;
mod fake;
pub mod limiter;
pub mod limits;
mod lost_backend;
pub mod pipes;
pub mod sockets;
pub mod stats;
pub mod tcp;
pub mod udp;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{FlowFate, ServicePortName};
use crate::plan::{BackendSet, ServicePortPlan};

pub use engine::RelayEngine;
pub use fake::FakeRelays;

/// Identifies a listening port: a service port's backend set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    pub name: ServicePortName,
    pub set: BackendSet,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelayBackends {
    pub cluster: Arc<[SocketAddr]>,
    pub local: Arc<[SocketAddr]>,
    /// Sorted.
    pub serving: Arc<[SocketAddr]>,
    /// What becomes of TCP connections whose backend no longer serves.
    pub flow_fate: FlowFate,
    pub affinity: Option<Duration>,
    /// Whether the ports of the Service remember clients together, by the addresses of backends.
    pub affinity_across_ports: bool,
}

impl RelayBackends {
    pub fn of(plan: &ServicePortPlan) -> RelayBackends {
        RelayBackends {
            cluster: plan.cluster_backends.clone().into(),
            local: plan.local_backends.clone().into(),
            serving: plan.serving.clone().into(),
            flow_fate: plan.flow_fate,
            affinity: plan.affinity,
            affinity_across_ports: plan.affinity_across_ports,
        }
    }

    pub fn set(&self, set: BackendSet) -> &[SocketAddr] {
        match set {
            BackendSet::Cluster => &self.cluster,
            BackendSet::Local => &self.local,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("port {0} is taken")]
    Taken(u16),
    #[error("the limit of file descriptors (RLIMIT_NOFILE) allows no more than {0} listeners")]
    TooMany(usize),
    #[error("cannot listen on port {port}: {source}")]
    Refused { port: u16, source: std::io::Error },
}

pub trait Relays {
    /// Replaces backends. UDP associations end if their backend stops serving, TCP connections as their fate says; the
    /// last fate counts where the service port is deleted.
    fn set_backends(&mut self, name: &ServicePortName, backends: Option<RelayBackends>);

    fn listen(&mut self, listener: &Listener, port: u16) -> Result<(), ListenError>;

    /// Frees the port at once. TCP connections continue.
    fn close(&mut self, listener: &Listener);
}
