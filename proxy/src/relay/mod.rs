//! Listening ports that lead connections and datagrams to backends: the data path of userspace mode, and of node ports on loopback
//! addresses in nftables mode.
//!
//! [`balancer`] chooses backends (pure), [`tcp`] and [`udp`] relay, [`pipes`] moves bytes within the kernel, [`sockets`] has
//! the system calls, [`room`] gives connections their places, [`engine`] holds it all together, [`stats`] counts. [`Relays`] is what a mode sees of it; [`Fake`] stands
//! in for it in tests.

pub mod balancer;
pub mod clients;
pub mod engine;
mod fake;
pub mod limits;
pub mod pipes;
pub mod room;
pub mod sockets;
pub mod stats;
pub mod tcp;
pub mod udp;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::model::ServicePortName;
use crate::plan::{BackendSet, ServicePortPlan};

pub use engine::Engine;
pub use fake::Fake;

/// What has a listening port: one set of backends of one service port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    /// The service port.
    pub name: ServicePortName,
    /// Its backends.
    pub set: BackendSet,
}

/// Where a service port leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backends {
    /// [`BackendSet::Cluster`].
    pub cluster: Arc<[SocketAddr]>,
    /// [`BackendSet::Local`].
    pub local: Arc<[SocketAddr]>,
    /// Where UDP associations may stay, sorted.
    pub serving: Arc<[SocketAddr]>,
    /// A client goes to the same backend again within this time.
    pub affinity: Option<Duration>,
}

impl Backends {
    /// What a plan says of them.
    pub fn of(plan: &ServicePortPlan) -> Backends {
        Backends {
            cluster: plan.cluster_backends.clone().into(),
            local: plan.local_backends.clone().into(),
            serving: plan.serving.clone().into(),
            affinity: plan.affinity,
        }
    }

    /// The backends of a set.
    pub fn set(&self, set: BackendSet) -> &[SocketAddr] {
        match set {
            BackendSet::Cluster => &self.cluster,
            BackendSet::Local => &self.local,
        }
    }
}

/// A port that could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another program listens on this port.
    #[error("port {0} is taken")]
    Taken(u16),
    /// There are as many listeners as file descriptors allow.
    #[error("there are {0} listeners already, and no more within this limit of file descriptors (RLIMIT_NOFILE)")]
    TooMany(usize),
    /// Another reason, which another port would not mend.
    #[error("cannot listen on port {port}: {source}")]
    Refused {
        /// The port.
        port: u16,
        /// Why.
        source: std::io::Error,
    },
}

/// Listeners of one address family.
pub trait Relays {
    /// Where new connections of a service port lead from now on; `None`: it is gone. Connections that there are go on;
    /// associations of UDP end where their backend does not serve any more.
    fn set_backends(&mut self, name: &ServicePortName, backends: Option<Backends>);

    /// Listens on a port, of every local address or of that which these listeners have, for a service port that leads somewhere.
    ///
    /// # Errors
    /// When the port is taken, or no socket can be had.
    fn listen(&mut self, listener: &Listener, port: u16) -> Result<(), ListenError>;

    /// Stops listening: the port is free from here on. TCP connections go on.
    fn close(&mut self, listener: &Listener);
}
