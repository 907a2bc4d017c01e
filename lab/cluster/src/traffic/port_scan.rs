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

/// Concurrent connections, limited by file descriptors. Dropped packets cost the timeout once per batch.
const BATCH: u64 = 16_384;

pub(crate) async fn scan(
    origin: &ProbeOrigin,
    address: IpAddr,
    ports: &BTreeSet<u16>,
    patience: Duration,
) -> Result<Vec<u16>, NetnsError> {
    let ports: Vec<u16> = ports.iter().copied().collect();
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let batch = usize::try_from(BATCH.min(descriptors / 2)).unwrap_or(1).max(1);
    let mut open = Vec::new();
    for ports in ports.chunks(batch) {
        let addresses: Vec<SocketAddr> = ports.iter().map(|port| SocketAddr::new(address, *port)).collect();
        let targets = addresses.clone();
        let made = move || targets.iter().map(|address| socket(*address)).collect::<std::io::Result<Vec<TcpSocket>>>();
        let sockets = origin.namespace.run(made).await?.map_err(NetnsError::io(format!("scanning {address}")))?;
        let attempts = sockets.into_iter().zip(addresses).map(|(socket, address)| async move {
            let accepted = socket.connect(address).await;
            accepted.is_ok().then(|| address.port())
        });
        let mut attempts: FuturesUnordered<_> = attempts.collect();
        let all = async {
            while let Some(port) = attempts.next().await {
                open.extend(port);
            }
        };
        finished_within(origin, patience, all).await?;
    }
    open.sort_unstable();
    Ok(open)
}

/// Closes with a reset, which avoids thousands of sockets in TIME_WAIT.
fn socket(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = sockets::tcp(address)?;
    socket.set_zero_linger()?;
    Ok(socket)
}
