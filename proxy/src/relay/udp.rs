//! UDP: an association relays one client port's datagrams to one backend, and the replies back, until it is idle for
//! too long or its backend stops serving.

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

use super::sockets::{LARGEST_DATAGRAM, ReceivedDatagram, connect_udp, receive, send_from, send_to_backend};
use super::stats::RelayStats;
use super::tcp::ListenerContext;
use crate::model::ObjectKey;

/// Replies after this time make the flow a stream, with a longer timeout, as in conntrack (`nf_conntrack_proto_udp.c`).
const CONVERSATION: Duration = Duration::from_secs(2);
const BATCH: usize = 64;
/// Evicts one in eight associations at once, the oldest first.
const EVICTED_PART: usize = 8;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; LARGEST_DATAGRAM]);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpTimeouts {
    /// The timeout without replies, or with one exchange.
    pub single: Duration,
    /// The timeout with later replies.
    pub conversation: Duration,
}

/// The client's address and port, and this node's address.
type ClientKey = (SocketAddr, IpAddr);

#[derive(Debug)]
pub struct UdpListener {
    socket: UdpSocket,
    context: ListenerContext,
    associations: Mutex<HashMap<ClientKey, Association>>,
    open: Arc<AtomicUsize>,
    number: u64,
}

/// All UDP listeners, whose associations share the descriptors.
#[derive(Debug, Default)]
pub struct UdpListeners(Mutex<(u64, BTreeMap<u64, Weak<UdpListener>>)>);

impl UdpListeners {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Weak<UdpListener>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<Arc<UdpListener>> {
        self.lock().1.values().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for UdpListener {
    fn drop(&mut self) {
        self.context.shared.ports.lock().1.remove(&self.number);
    }
}

#[derive(Debug)]
struct Association {
    flow: Arc<UdpFlow>,
    task: AbortHandle,
    stats: Arc<RelayStats>,
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
struct UdpFlow {
    socket: UdpSocket,
    backend: SocketAddr,
    begin: Instant,
    /// Milliseconds after `begin`.
    last: AtomicU64,
    replied: AtomicBool,
}

impl UdpFlow {
    fn new(backend: SocketAddr) -> io::Result<UdpFlow> {
        let socket = connect_udp(backend)?;
        Ok(UdpFlow { socket, backend, begin: Instant::now(), last: AtomicU64::new(0), replied: AtomicBool::new(false) })
    }

    fn touch(&self) {
        let since = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::Relaxed);
    }

    fn end(&self, timeouts: &UdpTimeouts) -> Instant {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        let conversation = self.replied.load(Ordering::Relaxed) && last >= CONVERSATION;
        self.begin + last + if conversation { timeouts.conversation } else { timeouts.single }
    }
}

impl UdpListener {
    pub fn new(socket: UdpSocket, context: ListenerContext) -> Arc<UdpListener> {
        let shared = Arc::clone(&context.shared);
        let mut ports = shared.ports.lock();
        let (next, all) = &mut *ports;
        *next += 1;
        let number = *next;
        let port = UdpListener { socket, context, associations: Mutex::default(), open: Arc::default(), number };
        let port = Arc::new(port);
        all.insert(number, Arc::downgrade(&port));
        port
    }

    fn associations(&self) -> MutexGuard<'_, HashMap<ClientKey, Association>> {
        self.associations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends associations whose backend no longer serves; clients get another backend.
    pub fn backends_changed(&self) {
        let mut associations = self.associations();
        let choice = self.context.choice();
        associations.retain(|_, association| choice.serves(&association.flow.backend));
    }

    pub async fn serve(self: Arc<UdpListener>) {
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

    fn take(self: &Arc<UdpListener>, received: &ReceivedDatagram, payload: &[u8]) {
        let key = (received.client, received.local);
        let mut associations = self.associations();
        if let Some(known) = associations.get(&key) {
            known.flow.touch();
            match send_to_backend(&known.flow.socket, payload) {
                Ok(_) => return self.context.stats.bytes[1].add(payload.len() as u64),
                // The backend refused an earlier datagram: the next backend gets this one.
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

    fn begin(self: &Arc<UdpListener>, received: &ReceivedDatagram) -> Option<Association> {
        let shared = &self.context.shared;
        if shared.associations.load(Ordering::Relaxed) >= shared.most_associations {
            return None;
        }
        let (client, now) = (received.client.ip().to_canonical(), std::time::Instant::now());
        let mut choice = self.context.choice();
        let candidates = choice.candidates(self.context.set, client, now);
        let (backend, flow) =
            candidates.into_iter().find_map(|backend| Some((backend, UdpFlow::new(backend).ok()?)))?;
        choice.record_connection(client, backend, now);
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

    /// Ends associations of the service with the most, or of this service if no other has clearly more. Never holds two
    /// listeners' locks.
    fn make_room(&self) {
        let shared = &self.context.shared;
        shared.complain(
            "the limit of file descriptors (RLIMIT_NOFILE) allows no more UDP associations: the oldest ones end",
        );
        let mut shares: BTreeMap<Arc<ObjectKey>, (usize, Vec<Arc<UdpListener>>)> = BTreeMap::new();
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

    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn end_oldest(&self, count: usize) {
        let mut all = self.associations();
        let mut by_age: Vec<(Instant, ClientKey)> = all
            .iter()
            .map(|(key, one)| (one.flow.begin + Duration::from_millis(one.flow.last.load(Ordering::Relaxed)), *key))
            .collect();
        by_age.sort_unstable();
        for (_, key) in by_age.iter().take(count) {
            all.remove(key);
            self.context.stats.evicted.inc();
        }
    }

    fn end(&self, key: &ClientKey, flow: &Arc<UdpFlow>) {
        let mut associations = self.associations();
        if associations.get(key).is_some_and(|association| Arc::ptr_eq(&association.flow, flow)) {
            associations.remove(key);
        }
    }
}

async fn replies(port: Weak<UdpListener>, flow: Arc<UdpFlow>, key: ClientKey) {
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
                flow.touch();
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
