//! Distinguishes a dropped request from a slow machine.
//!
//! After a timeout the request keeps waiting, while a control request goes over the loopback of a namespace without
//! rules. If the control's reply is first and quick, the request was dropped.

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
use super::source_ports::SourcePorts;

/// A control may take the time limit divided by this.
const LIMIT_SHARE: u32 = 4;
const CONTROLS: usize = 40;
const CONTROL_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct ProbeOrigin {
    pub(crate) namespace: Arc<Namespace>,
    /// The control requests' namespace, without rules.
    pub(crate) control: Arc<Namespace>,
    pub(crate) source_ports: SourcePorts,
}

/// Waits for an answer; returns [`ProbeAnswer::TimedOut`] if a control's reply arrives first.
///
/// # Errors
/// No control was answered in time.
pub(super) async fn answer_within(
    origin: &ProbeOrigin,
    limit: Duration,
    exchange: impl Future<Output = ProbeAnswer>,
) -> Result<ProbeAnswer, NetnsError> {
    Ok(finished_within(origin, limit, exchange).await?.unwrap_or(ProbeAnswer::TimedOut))
}

/// Waits for a result; returns `None` if a control's reply arrives first.
pub(super) async fn finished_within<T>(
    origin: &ProbeOrigin,
    limit: Duration,
    exchange: impl Future<Output = T>,
) -> Result<Option<T>, NetnsError> {
    let place = origin.namespace.name();
    confirmed(limit, exchange, || control(&origin.control)).await.map_err(NetnsError::io(format!(
        "distinguishing a drop from a slow machine, {} ms after a request from {place}",
        limit.as_millis()
    )))
}

/// Waits for the result or for `control`, which tests replace.
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
            if took <= limit / LIMIT_SHARE {
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

async fn control(namespace: &Namespace) -> io::Result<Duration> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = || async { sockets::udp(namespace, loopback).await.map_err(io::Error::other) };
    let (client, server) = (socket().await?, socket().await?);
    client.connect(server.local_addr()?).await?;
    let start = Instant::now();
    // The control's server has its own task, like each echo server.
    let served = tokio::spawn(echo(server));
    let mut datagram = [0; 8];
    let exchange = async {
        client.send(b"control").await?;
        client.recv(&mut datagram).await
    };
    let answered = timeout(CONTROL_TIMEOUT, exchange).await;
    served.abort();
    answered
        .map_err(|_| io::Error::other(format!("no control over the loopback was answered in {CONTROL_TIMEOUT:?}")))??;
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

    const OVER: Duration = Duration::ZERO;
    const SLOW: Duration = Duration::from_millis(400);

    #[tokio::test]
    async fn a_timely_answer_sends_no_control() {
        let control = || async { panic!("a control was sent") };
        assert_eq!(confirmed(OVER, ready(ProbeAnswer::Refused), control).await.unwrap(), Some(ProbeAnswer::Refused));
    }

    #[tokio::test]
    async fn a_quick_control_confirms_a_drop() {
        let control = || ready(Ok(Duration::ZERO));
        assert_eq!(confirmed(OVER, pending::<()>(), control).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_late_answer_counts_while_controls_are_late() {
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
    async fn slow_controls_are_an_error() {
        let error = confirmed(OVER, pending::<()>(), || ready(Ok(SLOW))).await.unwrap_err().to_string();
        assert_eq!(error, "the last of 40 controls over the loopback took 400 ms");
    }
}
