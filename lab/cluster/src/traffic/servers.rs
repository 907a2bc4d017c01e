//! Echo servers: who answered, and which peer they saw.
//!
//! Sockets are bound to each address by itself: a datagram's answer then leaves from the address that it was sent to,
//! without further ado. Only TCP servers on a node's own network listen on every address, as real ones there do.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use svclab_netns::NetnsError;
use svclab_netns::namespace::Namespace;
use svclab_netns::sockets::{self, BACKLOG};
use svclab_spec::{Protocol, ServerPort};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;

/// Longest line that is answered, in bytes; longer ones end the connection.
const MAX_LINE: u64 = 4096;

/// A pod's running servers. Dropping them ends them too, a moment later.
pub struct Servers {
    tasks: JoinSet<()>,
}

/// A socket that the runtime does not know yet.
enum Bound {
    Tcp(TcpSocket),
    Udp(std::net::UdpSocket),
}

impl Servers {
    /// Starts a server named `identity` on every port of every address; with `wildcard`, those of TCP listen on every
    /// address of the namespace, in the families of `addresses`.
    pub async fn start(
        namespace: &Namespace,
        identity: &str,
        addresses: Vec<IpAddr>,
        ports: Vec<ServerPort>,
        wildcard: bool,
    ) -> Result<Servers, NetnsError> {
        let attempt = format!("starting the servers of {identity} in {}", namespace.name());
        let bound = namespace.run(move || bind_all(&addresses, &ports, wildcard)).await?;
        let tasks = bound.and_then(|bound| serve_all(bound, identity));
        let tasks = tasks.map_err(NetnsError::io(attempt))?;
        Ok(Servers { tasks })
    }

    /// Ends them; nothing listens any more and connections are closed when this returns.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

fn serve_all(bound: Vec<Bound>, identity: &str) -> io::Result<JoinSet<()>> {
    let identity: Arc<str> = identity.into();
    let mut tasks = JoinSet::new();
    for socket in bound {
        let identity = Arc::clone(&identity);
        match socket {
            Bound::Tcp(socket) => tasks.spawn(serve_tcp(socket.listen(BACKLOG)?, identity)),
            Bound::Udp(socket) => tasks.spawn(serve_udp(UdpSocket::from_std(socket)?, identity)),
        };
    }
    Ok(tasks)
}

fn bind_all(addresses: &[IpAddr], ports: &[ServerPort], wildcard: bool) -> io::Result<Vec<Bound>> {
    let mut bound = Vec::new();
    let everywhere = |address: &IpAddr| sockets::anywhere(SocketAddr::new(*address, 0)).ip();
    let wildcards: BTreeSet<IpAddr> = addresses.iter().map(everywhere).collect();
    let wildcards = Vec::from_iter(wildcards);
    for port in ports {
        let listen = if wildcard && port.protocol == Protocol::Tcp { &wildcards[..] } else { addresses };
        for address in listen {
            let address = SocketAddr::new(*address, port.port);
            let socket = match port.protocol {
                Protocol::Tcp => sockets::bind_tcp(address).map(Bound::Tcp),
                Protocol::Udp => sockets::bind_udp(address).map(Bound::Udp),
                Protocol::Sctp => match sockets::bind_sctp(address).transpose() {
                    Some(socket) => socket.map(Bound::Tcp),
                    // A scenario whose steps speak it says that it needs it; to others such a port is a word in a rule.
                    None => continue,
                },
            };
            bound.push(socket.map_err(|e| io::Error::new(e.kind(), format!("{address}: {e}")))?);
        }
    }
    Ok(bound)
}

/// The answer: one line of JSON. `at` is where the server was called.
fn answer(identity: &str, peer: SocketAddr, at: SocketAddr, question: &[u8]) -> String {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port()).to_string();
    let question = String::from_utf8_lossy(question);
    let json = serde_json::json!({
        "server": identity, "peer": canonical(peer), "at": canonical(at), "question": question.trim_end(),
    });
    let mut line = json.to_string();
    line.push('\n');
    line
}

async fn serve_tcp(listener: TcpListener, identity: Arc<str>) {
    // Not tasks of their own: they end in the same moment as the listener.
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // An error is one connection's (reset before accept); the listener itself goes on.
                if let Ok((stream, peer)) = accepted {
                    connections.push(converse(stream, peer, Arc::clone(&identity)));
                }
            }
            Some(()) = connections.next() => {}
        }
    }
}

async fn converse(mut stream: TcpStream, peer: SocketAddr, identity: Arc<str>) {
    let Ok(at) = stream.local_addr() else { return };
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).await;
        let whole = read.is_ok() && line.last() == Some(&b'\n');
        if !whole || writer.write_all(answer(&identity, peer, at, &line).as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn serve_udp(socket: UdpSocket, identity: Arc<str>) {
    // Bound to one address: it is the one that every datagram was sent to.
    let Ok(at) = socket.local_addr() else { return };
    let mut datagram = [0; 2048];
    loop {
        // Errors are late ICMP messages about earlier answers.
        if let Ok((length, peer)) = socket.recv_from(&mut datagram).await {
            let _ = socket.send_to(answer(&identity, peer, at, &datagram[..length]).as_bytes(), peer).await;
        }
    }
}
