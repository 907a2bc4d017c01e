use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use svclab_netns::namespace::Namespace;
use svclab_netns::sockets;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Where each node finds the API.
pub(super) const API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 6443);

/// Nothing sent for so long means that the proxy has all it wants.
const QUIET: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(120);

/// A relay on a node's loopback interface that counts the bytes from the API server, with those of TLS and HTTP.
pub(super) struct Gate {
    received: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Gate {
    pub(super) async fn open(node: &Namespace, server: SocketAddr) -> Result<Gate> {
        let listener = sockets::listen(node, API).await.context("listen for the proxy")?;
        Ok(Gate::behind(listener, server))
    }

    pub(super) fn behind(listener: TcpListener, server: SocketAddr) -> Gate {
        let received = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(listener, server, Arc::clone(&received)));
        Gate { received, accepting }
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the bytes received since `before` once no more come.
    pub(super) async fn quiet_since(&self, before: u64) -> Result<u64> {
        let (begin, mut last, mut since) = (Instant::now(), self.received(), Instant::now());
        while since.elapsed() < QUIET {
            ensure!(begin.elapsed() < PATIENCE, "the API server sends without an end");
            sleep(LOOK).await;
            if self.received() != last {
                (last, since) = (self.received(), Instant::now());
            }
        }
        Ok(last - before)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, received: Arc<AtomicU64>) {
    while let Ok((proxy, _)) = listener.accept().await {
        let received = Arc::clone(&received);
        tokio::spawn(async move {
            // While the server is away the proxy's connection is closed.
            let Ok(server) = TcpStream::connect(server).await else { return };
            let (from_proxy, to_proxy) = proxy.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::join!(copy(from_proxy, to_server, None), copy(from_server, to_proxy, Some(&received)));
        });
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, count: Option<&AtomicU64>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if let Some(count) = count {
            count.fetch_add(length as u64, Ordering::Relaxed);
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
