//! TCP: accepts connections, finds a backend that takes them, and leads bytes in both directions until both have ended.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, warn};

use super::balancer::Balancer;
use super::engine::Shared;
use super::pipes::flow;
use super::room::{Activity, Place};
use super::sockets::{prepare, reset};
use super::stats::Stats;
use crate::model::ObjectKey;
use crate::plan::BackendSet;

/// So long one backend may take while there are others: time enough for a SYN that is lost and sent again after a second.
const PATIENCE: Duration = Duration::from_millis(1500);
/// So long a client waits for any backend.
const WHOLE_PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries where the kernel has no descriptors or no memory.
const PAUSE: Duration = Duration::from_millis(100);

/// What a listener's connections need.
#[derive(Debug, Clone)]
pub struct Context {
    /// What all listeners share.
    pub shared: Arc<Shared>,
    /// The family's counts.
    pub stats: Arc<Stats>,
    /// The service, whose connections share its places.
    pub service: Arc<ObjectKey>,
    /// The service port's choice.
    pub balancer: Arc<Mutex<Balancer>>,
    /// Among these backends.
    pub set: BackendSet,
}

impl Context {
    /// The service port's choice.
    pub fn choice(&self) -> std::sync::MutexGuard<'_, Balancer> {
        self.balancer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts until it is dropped, or does not listen any more. With as many connections as there are descriptors for, the next ones of a service that has its
/// share wait in the kernel's queue.
pub async fn serve(listener: Arc<TcpListener>, context: Context) {
    loop {
        let (client, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            // It does not listen any more.
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
        let room = &context.shared.connections;
        let place = match room.try_enter(&context.service, Instant::now()) {
            Some(place) => place,
            None => {
                context.stats.full.inc();
                context.shared.complain(&format!(
                    "as many connections as there are descriptors for (RLIMIT_NOFILE): new ones of Service {} wait",
                    context.service
                ));
                room.enter(&context.service).await
            }
        };
        let context = context.clone();
        tokio::spawn(async move { lead(&client, peer, &context, &place).await });
    }
}

/// What goes by, as opposed to a client that gave up before it was accepted.
fn is_shortage(error: &io::Error) -> bool {
    let shortage = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
    error.raw_os_error().is_some_and(|number| shortage.contains(&Errno::from_raw(number)))
}

struct Open<'a>(&'a Stats);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

async fn lead(client: &TcpStream, peer: SocketAddr, context: &Context, place: &Place) {
    context.stats.connections.inc();
    context.stats.connections_total.inc();
    let _open = Open(&context.stats);
    let connected = tokio::select! {
        connected = connect(peer, context) => connected,
        () = place.activity().must_leave() => {
            context.stats.evicted.inc();
            return reset(client);
        }
    };
    match connected {
        Some(backend) => relay(client, &backend, context, place.activity()).await,
        None => {
            context.stats.failed.inc();
            reset(client);
        }
    }
}

/// The first backend that takes the connection.
async fn connect(peer: SocketAddr, context: &Context) -> Option<TcpStream> {
    let client = peer.ip().to_canonical();
    let candidates = context.choice().candidates(context.set, client, std::time::Instant::now());
    let deadline = Instant::now() + WHOLE_PATIENCE;
    for (index, backend) in candidates.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let patience = if index + 1 < candidates.len() { PATIENCE.min(left) } else { left };
        match timeout(patience, TcpStream::connect(*backend)).await {
            Ok(Ok(stream)) => {
                context.choice().took(client, *backend, std::time::Instant::now());
                return Some(stream);
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

/// Resolves when nothing went by for too long.
async fn idle(activity: &Activity, timeouts: &Timeouts) {
    loop {
        let limit = if activity.is_half_closed() { timeouts.half_closed } else { timeouts.idle };
        let end = activity.last() + limit;
        if Instant::now() >= end {
            return;
        }
        // A direction may end meanwhile, with a shorter time from then on.
        sleep_until(end.min(Instant::now() + timeouts.half_closed.max(PAUSE))).await;
    }
}

/// How long connections may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Open in both directions.
    pub idle: Duration,
    /// Open in one.
    pub half_closed: Duration,
}

async fn relay(client: &TcpStream, backend: &TcpStream, context: &Context, activity: &Activity) {
    // The client's is prepared by the listener.
    prepare(backend);
    activity.note(Instant::now());
    let moved = |bytes| {
        activity.note(Instant::now());
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
        () = idle(activity, &context.shared.timeouts) => {
            context.stats.idle.inc();
            Err(io::ErrorKind::TimedOut.into())
        }
    };
    if let Err(error) = ended {
        // What one side does to the connection, the other side must see: the end of a direction would look like success.
        if is_shortage(&error) {
            warn!(%error, "a connection was reset");
        }
        reset(client);
        reset(backend);
    }
}
