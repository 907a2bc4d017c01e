//! UDP: an association leads the datagrams of one client's port to one backend, and the replies back, until it was silent for
//! too long or its backend serves no more.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::sockets::{LARGEST_DATAGRAM, Received, connect_udp, receive, send_from, send_to_backend};
use super::stats::Stats;
use super::tcp::Context;
use crate::model::ObjectKey;

/// After this long a flow with replies is a conversation, as conntrack has it (`nf_conntrack_proto_udp.c`).
const CONVERSATION: Duration = Duration::from_secs(2);
/// Datagrams that are taken in one go, before other tasks get their turn.
const BATCH: usize = 64;
/// What part of the associations that may end does end, the oldest first, when there is no room for another.
const EVICTED_PART: usize = 8;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; LARGEST_DATAGRAM]);
}

/// How long associations may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Without a reply, or with a single exchange.
    pub single: Duration,
    /// With replies for a while.
    pub conversation: Duration,
}

/// A client's port, and the address of this node that it sent to.
type Key = (SocketAddr, IpAddr);

/// A listening port.
#[derive(Debug)]
pub struct Port {
    socket: UdpSocket,
    context: Context,
    associations: Mutex<HashMap<Key, Association>>,
    /// How many there are.
    open: Arc<AtomicUsize>,
    number: u64,
}

/// The listening ports of both families, whose associations share the descriptors.
#[derive(Debug, Default)]
pub struct Ports(Mutex<(u64, BTreeMap<u64, Weak<Port>>)>);

impl Ports {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Weak<Port>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<Arc<Port>> {
        self.lock().1.values().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.context.shared.ports.lock().1.remove(&self.number);
    }
}

#[derive(Debug)]
struct Association {
    flow: Arc<Flow>,
    task: AbortHandle,
    stats: Arc<Stats>,
    open: Arc<AtomicU64>,
    of_port: Arc<AtomicUsize>,
}

impl Drop for Association {
    fn drop(&mut self) {
        self.task.abort();
        self.stats.associations.dec();
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.of_port.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Flow {
    socket: UdpSocket,
    backend: SocketAddr,
    begin: Instant,
    /// Milliseconds after the begin.
    last: AtomicU64,
    replied: AtomicBool,
}

impl Flow {
    fn new(backend: SocketAddr) -> io::Result<Flow> {
        let socket = connect_udp(backend)?;
        Ok(Flow { socket, backend, begin: Instant::now(), last: AtomicU64::new(0), replied: AtomicBool::new(false) })
    }

    fn note(&self) {
        let since = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::Relaxed);
    }

    fn end(&self, timeouts: &Timeouts) -> Instant {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        let conversation = self.replied.load(Ordering::Relaxed) && last >= CONVERSATION;
        self.begin + last + if conversation { timeouts.conversation } else { timeouts.single }
    }
}

impl Port {
    /// Takes over a socket.
    pub fn new(socket: UdpSocket, context: Context) -> Arc<Port> {
        let shared = Arc::clone(&context.shared);
        let mut ports = shared.ports.lock();
        let (next, all) = &mut *ports;
        *next += 1;
        let number = *next;
        let port = Port { socket, context, associations: Mutex::default(), open: Arc::default(), number };
        let port = Arc::new(port);
        all.insert(number, Arc::downgrade(&port));
        port
    }

    fn associations(&self) -> MutexGuard<'_, HashMap<Key, Association>> {
        self.associations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Associations with backends that do not serve any more end, so that the next datagram meets another backend.
    pub fn backends_changed(&self) {
        let mut associations = self.associations();
        let choice = self.context.choice();
        associations.retain(|_, association| choice.serves(&association.flow.backend));
    }

    /// Takes datagrams until it is dropped.
    pub async fn serve(self: Arc<Port>) {
        loop {
            if self.socket.readable().await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            BUFFER.with_borrow_mut(|buffer| {
                for _ in 0..BATCH {
                    match self.socket.try_io(Interest::READABLE, || receive(&self.socket, buffer)) {
                        Ok(received) => self.take(&received, &buffer[..received.length]),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => debug!(%error, "a datagram could not be received"),
                    }
                }
            });
            tokio::task::yield_now().await;
        }
    }

    fn take(self: &Arc<Port>, received: &Received, payload: &[u8]) {
        let key = (received.client, received.local);
        let mut associations = self.associations();
        if let Some(known) = associations.get(&key) {
            known.flow.note();
            match send_to_backend(&known.flow.socket, payload) {
                Ok(_) => return self.context.stats.bytes[1].add(payload.len() as u64),
                // It refused an earlier datagram: the next backend gets this one.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    associations.remove(&key);
                    self.refused(received.client);
                }
                Err(_) => return self.context.stats.dropped.inc(),
            }
        }
        let shared = &self.context.shared;
        if shared.associations.load(Ordering::Relaxed) >= shared.most_associations {
            drop(associations);
            self.make_room();
            associations = self.associations();
        }
        match self.begin(received) {
            Some(association) => {
                let sent = send_to_backend(&association.flow.socket, payload);
                if sent.is_ok() {
                    self.context.stats.bytes[1].add(payload.len() as u64);
                }
                associations.insert(key, association);
            }
            None => self.context.stats.dropped.inc(),
        }
    }

    fn refused(&self, client: SocketAddr) {
        self.context.stats.refused.inc();
        self.context.choice().refused(client.ip().to_canonical());
    }

    /// A new association, if there is a backend and room.
    fn begin(self: &Arc<Port>, received: &Received) -> Option<Association> {
        let shared = &self.context.shared;
        if shared.associations.load(Ordering::Relaxed) >= shared.most_associations {
            return None;
        }
        let (client, now) = (received.client.ip().to_canonical(), std::time::Instant::now());
        let mut choice = self.context.choice();
        let candidates = choice.candidates(self.context.set, client, now);
        let (backend, flow) = candidates.into_iter().find_map(|backend| Some((backend, Flow::new(backend).ok()?)))?;
        choice.took(client, backend, now);
        drop(choice);
        let flow = Arc::new(flow);
        let task = tokio::spawn(replies(Arc::downgrade(self), Arc::clone(&flow), (received.client, received.local)));
        self.context.stats.associations.inc();
        self.context.stats.associations_total.inc();
        shared.associations.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        let (stats, open) = (Arc::clone(&self.context.stats), Arc::clone(&shared.associations));
        Some(Association { flow, task: task.abort_handle(), stats, open, of_port: Arc::clone(&self.open) })
    }

    /// Ends associations, so that there is room for one of this service: those of the service that has most, as long as it has
    /// more than this one, else this one's own. No lock of a port's is held while another's is taken.
    fn make_room(&self) {
        let shared = &self.context.shared;
        shared.complain("as many UDP associations as there are descriptors for (RLIMIT_NOFILE): old ones end");
        let mut shares: BTreeMap<Arc<ObjectKey>, (usize, Vec<Arc<Port>>)> = BTreeMap::new();
        for port in shared.ports.all() {
            let share = shares.entry(Arc::clone(&port.context.service)).or_default();
            share.0 += port.open();
            share.1.push(port);
        }
        let own = shares.get(&self.context.service).map_or(0, |share| share.0);
        let most = shares.values().map(|share| share.0).max().unwrap_or_default();
        let share = if most >= own + 2 {
            shares.values().find(|share| share.0 == most)
        } else {
            shares.get(&self.context.service)
        };
        if let Some(port) = share.and_then(|(_, ports)| ports.iter().max_by_key(|port| port.open())) {
            let difference = if most >= own + 2 { (most - own) / 2 } else { port.open() };
            port.end_oldest(difference.div_ceil(EVICTED_PART));
        }
    }

    /// How many associations it has.
    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Ends so many associations of this port, those that were silent for longest: several at a time, so that not every new
    /// one costs a look at all.
    fn end_oldest(&self, count: usize) {
        let mut all = self.associations();
        let mut by_age: Vec<(Instant, Key)> = all
            .iter()
            .map(|(key, one)| (one.flow.begin + Duration::from_millis(one.flow.last.load(Ordering::Relaxed)), *key))
            .collect();
        by_age.sort_unstable();
        for (_, key) in by_age.iter().take(count) {
            all.remove(key);
            self.context.stats.evicted.inc();
        }
    }

    /// An association has come to its end; unless another has its place already.
    fn end(&self, key: &Key, flow: &Arc<Flow>) {
        let mut associations = self.associations();
        if associations.get(key).is_some_and(|association| Arc::ptr_eq(&association.flow, flow)) {
            associations.remove(key);
        }
    }
}

/// Leads replies back until the association's end.
async fn replies(port: Weak<Port>, flow: Arc<Flow>, key: Key) {
    let (client, local) = key;
    loop {
        let Some(timeouts) = port.upgrade().map(|port| port.context.shared.udp_timeouts) else { return };
        let end = flow.end(&timeouts);
        let readable = tokio::select! {
            biased;
            result = flow.socket.readable() => result.is_ok(),
            () = sleep_until(end) => false,
        };
        let Some(port) = port.upgrade() else { return };
        if !readable {
            if Instant::now() >= flow.end(&timeouts) {
                return port.end(&key, &flow);
            }
            continue;
        }
        let taken = BUFFER.with_borrow_mut(|buffer| -> io::Result<()> {
            for _ in 0..BATCH {
                let length = flow.socket.try_recv(buffer)?;
                flow.note();
                flow.replied.store(true, Ordering::Relaxed);
                match send_from(&port.socket, &buffer[..length], client, local) {
                    Ok(_) => port.context.stats.bytes[1].add(length as u64),
                    Err(error) => {
                        debug!(%error, %client, "a reply could not be sent");
                        port.context.stats.dropped.inc();
                    }
                }
            }
            Ok(())
        });
        match taken {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                debug!(%error, backend = %flow.backend, "a backend refused a datagram");
                port.refused(client);
                return port.end(&key, &flow);
            }
        }
    }
}
