//! Whether no answer is the network's silence, or a machine that is too slow to answer in time.
//!
//! When the time of a request is over, a control request goes over the loopback of a namespace that no rules are in, to a
//! server on the same runtime, while the request itself still waits. The request was sent first: if its answer does not come
//! before the control's, and the control took a small part of the time that the request was given, then there was none.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use svclab_netns::NetnsError;
use svclab_netns::namespace::Namespace;
use svclab_netns::sockets;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::probe::ProbeAnswer;

/// A control proves nothing if it takes more than this part of the time that the request was given.
const PART: u32 = 4;
/// How many controls are sent before the machine is called too slow.
const CONTROLS: usize = 40;
/// How long one control is waited for. On a machine that is that slow no time-out means anything.
const LOST: Duration = Duration::from_secs(5);

/// Where requests start.
#[derive(Clone)]
pub(crate) struct ProbeOrigin {
    /// The network namespace.
    pub(crate) namespace: Arc<Namespace>,
    /// Where control requests go: a namespace whose loopback is up, and in which no proxy ever programs anything.
    pub(crate) control: Arc<Namespace>,
}

/// The answer of `exchange`, or [`ProbeAnswer::TimedOut`] if there is none within `limit` nor until a control has been answered.
///
/// # Errors
/// When no control is answered in time: the machine is too slow for this limit, or has no loopback.
pub(super) async fn answer_within(
    origin: &ProbeOrigin,
    limit: Duration,
    exchange: impl Future<Output = ProbeAnswer>,
) -> Result<ProbeAnswer, NetnsError> {
    Ok(finished_within(origin, limit, exchange).await?.unwrap_or(ProbeAnswer::TimedOut))
}

/// What `exchange` comes to; `None` if it does not end within `limit` nor until a control has been answered.
///
/// # Errors
/// As with [`answer_within`].
pub(super) async fn finished_within<T>(
    origin: &ProbeOrigin,
    limit: Duration,
    exchange: impl Future<Output = T>,
) -> Result<Option<T>, NetnsError> {
    let place = origin.namespace.name();
    confirmed(limit, exchange, || control(&origin.control)).await.map_err(NetnsError::io(format!(
        "telling silence from a slow machine, {} ms after a request from {place}",
        limit.as_millis()
    )))
}

/// The same with any control; it says how long it took.
async fn confirmed<T, C: Future<Output = io::Result<Duration>>>(
    limit: Duration,
    exchange: impl Future<Output = T>,
    control: impl Fn() -> C,
) -> io::Result<Option<T>> {
    let mut exchange = pin!(exchange);
    if let Ok(answer) = timeout(limit, &mut exchange).await {
        return Ok(Some(answer));
    }
    let quick = async {
        let mut took = Duration::ZERO;
        for _ in 0..CONTROLS {
            took = control().await?;
            if took <= limit / PART {
                return Ok(None);
            }
        }
        let took = took.as_millis();
        Err(io::Error::other(format!("the last of {CONTROLS} controls over the loopback took {took} ms")))
    };
    tokio::select! {
        biased;
        answer = exchange => Ok(Some(answer)),
        silence = quick => silence,
    }
}

/// One datagram to a server and back.
async fn control(namespace: &Namespace) -> io::Result<Duration> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = || async { sockets::udp(namespace, loopback).await.map_err(io::Error::other) };
    let (client, server) = (socket().await?, socket().await?);
    client.connect(server.local_addr()?).await?;
    let start = Instant::now();
    // A task of its own, as the servers are that the request waits for.
    let served = tokio::spawn(echo(server));
    let mut datagram = [0; 8];
    let exchange = async {
        client.send(b"control").await?;
        client.recv(&mut datagram).await
    };
    let answered = timeout(LOST, exchange).await;
    served.abort();
    answered.map_err(|_| io::Error::other(format!("no control over the loopback was answered in {LOST:?}")))??;
    Ok(start.elapsed())
}

async fn echo(server: UdpSocket) -> io::Result<()> {
    let mut datagram = [0; 8];
    let (length, client) = server.recv_from(&mut datagram).await?;
    server.send_to(&datagram[..length], client).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::{pending, ready};

    use tokio::sync::oneshot;

    use super::*;

    /// The time is over at once: only controls decide.
    const OVER: Duration = Duration::ZERO;
    const SLOW: Duration = Duration::from_millis(400);

    #[tokio::test]
    async fn an_answer_in_time_needs_no_control() {
        let control = || async { panic!("a control was sent") };
        assert_eq!(confirmed(OVER, ready(ProbeAnswer::Refused), control).await.unwrap(), Some(ProbeAnswer::Refused));
    }

    #[tokio::test]
    async fn silence_is_confirmed_by_a_control() {
        let control = || ready(Ok(Duration::ZERO));
        assert_eq!(confirmed(OVER, pending::<()>(), control).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_late_answer_counts_where_the_controls_are_late_too() {
        let (sender, answered) = oneshot::channel();
        let (sender, controls) = (RefCell::new(Some(sender)), Cell::new(0));
        let late = async { answered.await.unwrap() };
        let control = || async {
            controls.set(controls.get() + 1);
            if controls.get() == 3 {
                sender.take().unwrap().send(ProbeAnswer::Refused).unwrap();
                tokio::task::yield_now().await;
            }
            Ok(SLOW)
        };
        assert_eq!(confirmed(OVER, late, control).await.unwrap(), Some(ProbeAnswer::Refused));
    }

    #[tokio::test]
    async fn a_machine_that_is_too_slow_has_judged_nothing() {
        let error = confirmed(OVER, pending::<()>(), || ready(Ok(SLOW))).await.unwrap_err().to_string();
        assert_eq!(error, "the last of 40 controls over the loopback took 400 ms");
    }
}
