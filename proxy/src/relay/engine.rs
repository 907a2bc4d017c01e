//! Listeners and their tasks.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tracing::warn;

use super::balancer::Balancer;
use super::limits::Limits;
use super::pipes::Pipes;
use super::room::Room;
use super::stats::Stats;
use super::{Backends, ListenError, Listener, Relays, sockets, tcp, udp};
use crate::model::{Family, Protocol, ServicePortName};

/// The same complaint is made once in this time.
const COMPLAINT: Duration = Duration::from_secs(30);

/// What all listeners of both families share.
#[derive(Debug)]
pub struct Shared {
    /// Room for listeners.
    listeners: Arc<Semaphore>,
    most_listeners: usize,
    /// Room for connections.
    pub connections: Arc<Room>,
    /// UDP associations that are open.
    pub associations: Arc<AtomicU64>,
    /// As many of them as there may be.
    pub most_associations: u64,
    /// The listening ports of UDP.
    pub ports: udp::Ports,
    /// Pipes between connections.
    pub pipes: Pipes,
    /// How long connections may be silent.
    pub timeouts: tcp::Timeouts,
    /// How long associations may be silent.
    pub udp_timeouts: udp::Timeouts,
    complained: Mutex<Option<Instant>>,
}

impl Shared {
    /// With these limits and time-outs.
    pub fn new(limits: Limits, timeouts: tcp::Timeouts, udp_timeouts: udp::Timeouts) -> Arc<Shared> {
        Arc::new(Shared {
            listeners: Arc::new(Semaphore::new(limits.listeners)),
            most_listeners: limits.listeners,
            connections: Room::new(limits.connections),
            associations: Arc::default(),
            ports: udp::Ports::default(),
            most_associations: u64::try_from(limits.associations).unwrap_or(u64::MAX),
            pipes: Pipes::default(),
            timeouts,
            udp_timeouts,
            complained: Mutex::default(),
        })
    }

    /// Tells of a shortage, not more often than an operator can read.
    pub fn complain(&self, what: &str) {
        let mut complained = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        if complained.is_none_or(|at| at.elapsed() >= COMPLAINT) {
            *complained = Some(Instant::now());
            warn!("{what}");
        }
    }
}

/// The listeners of one family, in this process.
#[derive(Debug)]
pub struct Engine {
    /// Where they listen.
    address: IpAddr,
    shared: Arc<Shared>,
    stats: Arc<Stats>,
    balancers: BTreeMap<ServicePortName, Arc<Mutex<Balancer>>>,
    open: BTreeMap<Listener, Open>,
}

#[derive(Debug)]
struct Open {
    task: AbortHandle,
    connections: Option<Arc<TcpListener>>,
    datagrams: Option<Arc<udp::Port>>,
    _permit: OwnedSemaphorePermit,
    stats: Arc<Stats>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // The task ends when its thread comes to it; until then it would have the port.
        self.connections.iter().for_each(|listener| sockets::stop_listening(listener));
        self.task.abort();
        self.stats.listeners.dec();
    }
}

impl Engine {
    /// No listener yet. They will be on every address of this family.
    pub fn new(family: Family, shared: Arc<Shared>) -> Engine {
        Engine::on(family.unspecified(), shared)
    }

    /// No listener yet. They will be on this address; without TCP there are none on a single address.
    pub fn on(address: IpAddr, shared: Arc<Shared>) -> Engine {
        Engine { address, shared, stats: Arc::default(), balancers: BTreeMap::new(), open: BTreeMap::new() }
    }

    /// What is counted.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// Opens the socket and starts its task.
    fn start(&self, listener: &Listener, port: u16, permit: OwnedSemaphorePermit) -> io::Result<Open> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let balancer = self.balancers.get(&listener.name).ok_or_else(|| io::Error::other("it leads nowhere"))?;
        let context = tcp::Context {
            shared: Arc::clone(&self.shared),
            stats: Arc::clone(&self.stats),
            service: Arc::new(listener.name.service.clone()),
            balancer: Arc::clone(balancer),
            set: listener.set,
        };
        let (task, connections, datagrams) = match listener.name.protocol {
            Protocol::Tcp => {
                let socket = Arc::new(sockets::listen_tcp(SocketAddr::new(self.address, port))?);
                (runtime.spawn(tcp::serve(Arc::clone(&socket), context)), Some(socket), None)
            }
            Protocol::Udp if self.address.is_unspecified() => {
                let port = udp::Port::new(sockets::bind_udp(Family::of(&self.address), port)?, context);
                (runtime.spawn(Arc::clone(&port).serve()), None, Some(port))
            }
            Protocol::Udp | Protocol::Sctp => return Err(io::ErrorKind::Unsupported.into()),
        };
        self.stats.listeners.inc();
        let stats = Arc::clone(&self.stats);
        Ok(Open { task: task.abort_handle(), connections, datagrams, _permit: permit, stats })
    }
}

impl Relays for Engine {
    fn set_backends(&mut self, name: &ServicePortName, backends: Option<Backends>) {
        let is_gone = backends.is_none();
        let balancer = self.balancers.entry(name.clone()).or_default();
        balancer.lock().unwrap_or_else(PoisonError::into_inner).set_backends(backends.unwrap_or_default());
        if is_gone {
            self.balancers.remove(name);
        }
        let sets = [crate::plan::BackendSet::Cluster, crate::plan::BackendSet::Local];
        for set in sets {
            let open = self.open.get(&Listener { name: name.clone(), set });
            if let Some(port) = open.and_then(|open| open.datagrams.as_ref()) {
                port.backends_changed();
            }
        }
    }

    fn listen(&mut self, listener: &Listener, port: u16) -> Result<(), ListenError> {
        let Ok(permit) = Arc::clone(&self.shared.listeners).try_acquire_owned() else {
            self.stats.not_opened.inc();
            return Err(ListenError::TooMany(self.shared.most_listeners));
        };
        let open = self.start(listener, port, permit).map_err(|source| {
            self.stats.not_opened.inc();
            match source.kind() {
                io::ErrorKind::AddrInUse => ListenError::Taken(port),
                _ => ListenError::Refused { port, source },
            }
        })?;
        self.open.insert(listener.clone(), open);
        Ok(())
    }

    fn close(&mut self, listener: &Listener) {
        self.open.remove(listener);
    }
}
