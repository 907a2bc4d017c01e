use std::collections::{BTreeMap, BTreeSet};
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
use super::clients::SharedClients;
use super::limiter::FairLimiter;
use super::limits::RelayLimits;
use super::pipes::Pipes;
use super::stats::RelayStats;
use super::{ListenError, Listener, RelayBackends, Relays, sockets, tcp, udp};
use crate::model::{Family, ObjectKey, Protocol, ServicePortName, ShortString};

const COMPLAINT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct RelayShared {
    listeners: Arc<Semaphore>,
    most_listeners: usize,
    pub connections: Arc<FairLimiter>,
    pub associations: Arc<AtomicU64>,
    pub most_associations: u64,
    pub ports: udp::UdpListeners,
    pub pipes: Pipes,
    pub timeouts: tcp::TcpTimeouts,
    pub udp_timeouts: udp::UdpTimeouts,
    complained: Mutex<Option<Instant>>,
}

impl RelayShared {
    pub fn new(limits: RelayLimits, timeouts: tcp::TcpTimeouts, udp_timeouts: udp::UdpTimeouts) -> Arc<RelayShared> {
        Arc::new(RelayShared {
            listeners: Arc::new(Semaphore::new(limits.listeners)),
            most_listeners: limits.listeners,
            connections: FairLimiter::new(limits.connections),
            associations: Arc::default(),
            ports: udp::UdpListeners::default(),
            most_associations: u64::try_from(limits.associations).unwrap_or(u64::MAX),
            pipes: Pipes::default(),
            timeouts,
            udp_timeouts,
            complained: Mutex::default(),
        })
    }

    /// Warns at most once per [`COMPLAINT`].
    pub fn complain(&self, what: &str) {
        let mut complained = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        if complained.is_none_or(|at| at.elapsed() >= COMPLAINT) {
            *complained = Some(Instant::now());
            warn!("{what}");
        }
    }
}

#[derive(Debug)]
pub struct RelayEngine {
    address: IpAddr,
    shared: Arc<RelayShared>,
    stats: Arc<RelayStats>,
    balancers: BTreeMap<ServicePortName, Arc<Mutex<Balancer>>>,
    /// The clients of Services whose ports remember them together.
    shared_clients: BTreeMap<ObjectKey, SharedClients>,
    open: BTreeMap<Listener, OpenListener>,
}

#[derive(Debug)]
struct OpenListener {
    task: AbortHandle,
    connections: Option<Arc<TcpListener>>,
    datagrams: Option<Arc<udp::UdpListener>>,
    _permit: OwnedSemaphorePermit,
    stats: Arc<RelayStats>,
}

impl Drop for OpenListener {
    fn drop(&mut self) {
        // The aborted task would keep the port until its thread runs next.
        self.connections.iter().for_each(|listener| sockets::stop_listening(listener));
        self.task.abort();
        self.stats.listeners.dec();
    }
}

impl RelayEngine {
    pub fn new(family: Family, shared: Arc<RelayShared>) -> RelayEngine {
        RelayEngine::on(family.unspecified(), shared)
    }

    /// Returns an engine for this address, TCP only.
    pub fn on(address: IpAddr, shared: Arc<RelayShared>) -> RelayEngine {
        RelayEngine {
            address,
            shared,
            stats: Arc::default(),
            balancers: BTreeMap::new(),
            shared_clients: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    pub fn stats(&self) -> Arc<RelayStats> {
        Arc::clone(&self.stats)
    }

    /// Forgets the clients of backends that no port of a Service has any more.
    fn forget_clients(&mut self, service: &ObjectKey) {
        let Some(clients) = self.shared_clients.get(service) else { return };
        let first = ServicePortName { service: service.clone(), port: ShortString::default(), protocol: Protocol::Tcp };
        let ports = self.balancers.range(first..).take_while(|(name, _)| name.service == *service);
        let addresses: BTreeSet<IpAddr> = ports
            .flat_map(|(_, balancer)| balancer.lock().unwrap_or_else(PoisonError::into_inner).addresses_of_shared())
            .collect();
        if addresses.is_empty() {
            self.shared_clients.remove(service);
        } else {
            let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.retain(|backend| addresses.contains(&backend.ip()));
        }
    }

    fn start(&self, listener: &Listener, port: u16, permit: OwnedSemaphorePermit) -> io::Result<OpenListener> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let balancer =
            self.balancers.get(&listener.name).ok_or_else(|| io::Error::other("the service port has no backends"))?;
        let context = tcp::ListenerContext {
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
                let port = udp::UdpListener::new(sockets::bind_udp(Family::of(&self.address), port)?, context);
                (runtime.spawn(Arc::clone(&port).serve()), None, Some(port))
            }
            Protocol::Udp | Protocol::Sctp => return Err(io::ErrorKind::Unsupported.into()),
        };
        self.stats.listeners.inc();
        let stats = Arc::clone(&self.stats);
        Ok(OpenListener { task: task.abort_handle(), connections, datagrams, _permit: permit, stats })
    }
}

impl Relays for RelayEngine {
    fn set_backends(&mut self, name: &ServicePortName, backends: Option<RelayBackends>) {
        let is_gone = backends.is_none();
        let shares = backends.as_ref().is_some_and(|backends| backends.affinity_across_ports);
        let shared = shares.then(|| Arc::clone(self.shared_clients.entry(name.service.clone()).or_default()));
        let balancer = self.balancers.entry(name.clone()).or_default();
        let mut choice = balancer.lock().unwrap_or_else(PoisonError::into_inner);
        match backends {
            Some(backends) => choice.set_backends(backends, shared),
            None => choice.remove_backends(),
        }
        drop(choice);
        if is_gone {
            self.balancers.remove(name);
        }
        self.forget_clients(&name.service);
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
