//! TCP: relays both directions until both have ended.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, warn};

use super::balancer::Balancer;
use super::engine::RelayShared;
use super::limiter::{Activity, ConnectionSlot};
use super::lost_backend::lost;
use super::pipes::flow;
use super::sockets::{prepare, reset};
use super::stats::RelayStats;
use crate::model::ObjectKey;
use crate::mutants;
use crate::plan::BackendSet;

/// One backend's timeout while others are left: longer than a second, after which a lost SYN is repeated.
const PATIENCE: Duration = Duration::from_millis(1500);
const WHOLE_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub struct ListenerContext {
    pub shared: Arc<RelayShared>,
    pub stats: Arc<RelayStats>,
    /// The owner of the connections' slots.
    pub service: Arc<ObjectKey>,
    pub balancer: Arc<Mutex<Balancer>>,
    pub set: BackendSet,
}

impl ListenerContext {
    pub fn choice(&self) -> std::sync::MutexGuard<'_, Balancer> {
        self.balancer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts connections. Without a free slot, they wait in the kernel's queue.
pub async fn serve(listener: Arc<TcpListener>, context: ListenerContext) {
    loop {
        let (client, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => return,
            Err(error) => {
                if is_shortage(&error) {
                    context.stats.full.inc();
                    context.shared.complain(&format!("cannot accept connections: {error}"));
                    sleep(PAUSE).await;
                }
                continue;
            }
        };
        let limiter = &context.shared.connections;
        let slot = match limiter.try_acquire(&context.service, Instant::now()) {
            Some(slot) => slot,
            None => {
                context.stats.full.inc();
                context.shared.complain(&format!(
                    "the limit of file descriptors (RLIMIT_NOFILE) allows no more connections: new connections of Service {} wait",
                    context.service
                ));
                limiter.acquire(&context.service).await
            }
        };
        let context = context.clone();
        tokio::spawn(async move { serve_connection(&client, peer, &context, &slot).await });
    }
}

/// Whether a resource is short. Otherwise the client gave up before its connection was accepted.
fn is_shortage(error: &io::Error) -> bool {
    let shortage = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
    error.raw_os_error().is_some_and(|number| shortage.contains(&Errno::from_raw(number)))
}

struct OpenConnection<'a>(&'a RelayStats);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

async fn serve_connection(client: &TcpStream, peer: SocketAddr, context: &ListenerContext, slot: &ConnectionSlot) {
    context.stats.connections.inc();
    context.stats.connections_total.inc();
    let _open = OpenConnection(&context.stats);
    let connected = tokio::select! {
        connected = connect(peer, context) => connected,
        () = slot.activity().must_leave() => {
            context.stats.evicted.inc();
            return reset(client);
        }
    };
    match connected {
        Some((address, backend)) => relay(client, (address, &backend), context, slot.activity()).await,
        None => {
            context.stats.failed.inc();
            reset(client);
        }
    }
}

async fn connect(peer: SocketAddr, context: &ListenerContext) -> Option<(SocketAddr, TcpStream)> {
    let client = peer.ip().to_canonical();
    let mut candidates = context.choice().candidates(context.set, client, std::time::Instant::now());
    candidates.truncate(mutants::most_endpoints());
    let deadline = Instant::now() + WHOLE_PATIENCE;
    for (index, backend) in candidates.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let patience = if index + 1 < candidates.len() { PATIENCE.min(left) } else { left };
        match timeout(patience, TcpStream::connect(*backend)).await {
            Ok(Ok(stream)) => {
                context.choice().record_connection(client, *backend, std::time::Instant::now());
                return Some((*backend, stream));
            }
            Ok(Err(error)) => {
                debug!(%backend, %error, "a backend refused a connection");
                context.stats.refused.inc();
                if is_shortage(&error) {
                    context.shared.complain(&format!("cannot connect to backends: {error}"));
                }
            }
            Err(_) => {
                debug!(%backend, "a backend did not take a connection in time");
                context.stats.timed_out.inc();
            }
        }
        context.choice().refused(client);
    }
    None
}

async fn idle(activity: &Activity, timeouts: &TcpTimeouts) {
    loop {
        let limit = if activity.is_half_closed() { timeouts.half_closed } else { timeouts.idle };
        let end = activity.last() + limit;
        if Instant::now() >= end {
            return;
        }
        // A direction that ends shortens the timeout.
        sleep_until(end.min(Instant::now() + timeouts.half_closed.max(PAUSE))).await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpTimeouts {
    pub idle: Duration,
    pub half_closed: Duration,
}

async fn relay(
    client: &TcpStream,
    (address, backend): (SocketAddr, &TcpStream),
    context: &ListenerContext,
    activity: &Activity,
) {
    prepare(backend);
    activity.touch(Instant::now());
    let moved = |bytes| {
        activity.touch(Instant::now());
        context.stats.bytes[0].add(bytes);
    };
    let one = async |from, to| -> io::Result<()> {
        flow(from, to, &context.shared.pipes, moved).await?;
        activity.half_closed(Instant::now());
        Ok(())
    };
    let ended = tokio::select! {
        result = async { tokio::try_join!(one(client, backend), one(backend, client)) } => result.map(|_| ()),
        () = activity.must_leave() => {
            context.stats.evicted.inc();
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        () = lost(&context.balancer, address) => Err(io::ErrorKind::ConnectionAborted.into()),
        () = idle(activity, &context.shared.timeouts) => {
            context.stats.idle.inc();
            Err(io::ErrorKind::TimedOut.into())
        }
    };
    if let Err(error) = ended {
        // A reset: an ordinary end of stream would look like success.
        if is_shortage(&error) {
            warn!(%error, "a connection was reset");
        }
        reset(client);
        reset(backend);
    }
}
