//! Which TCP ports of an address answer.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nix::sys::resource::{Resource, getrlimit};
use svclab_netns::NetnsError;
use svclab_netns::sockets;
use tokio::net::TcpSocket;

use super::drop_check::{ProbeOrigin, finished_within};

/// Ports that are knocked at together, as far as there are descriptors for them: most answer with silence, which is waited
/// for once for all of these.
const TOGETHER: u64 = 16_384;

/// Knocks at each of `ports` of `address`; returns those that accept a connection within `patience`.
///
/// # Errors
/// When no socket can be made, or the machine is too slow to tell a port that is silent from one that is late.
pub(crate) async fn scan(
    origin: &ProbeOrigin,
    address: IpAddr,
    ports: &BTreeSet<u16>,
    patience: Duration,
) -> Result<Vec<u16>, NetnsError> {
    let ports: Vec<u16> = ports.iter().copied().collect();
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let together = usize::try_from(TOGETHER.min(descriptors / 2)).unwrap_or(1).max(1);
    let mut open = Vec::new();
    for ports in ports.chunks(together) {
        let doors: Vec<SocketAddr> = ports.iter().map(|port| SocketAddr::new(address, *port)).collect();
        let knocking = doors.clone();
        let made = move || knocking.iter().map(|door| socket(*door)).collect::<std::io::Result<Vec<TcpSocket>>>();
        let sockets = origin.namespace.run(made).await?.map_err(NetnsError::io(format!("scanning {address}")))?;
        let knocks = sockets.into_iter().zip(doors).map(|(socket, door)| async move {
            let accepted = socket.connect(door).await;
            accepted.is_ok().then(|| door.port())
        });
        let mut knocks: FuturesUnordered<_> = knocks.collect();
        let all = async {
            while let Some(knocked) = knocks.next().await {
                open.extend(knocked);
            }
        };
        finished_within(origin, patience, all).await?;
    }
    open.sort_unstable();
    Ok(open)
}

/// One whose end is a reset: thousands of them must not wait out TIME_WAIT.
fn socket(door: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = sockets::tcp(door)?;
    socket.set_zero_linger()?;
    Ok(socket)
}
