//! Echo servers; over TCP they also speak HTTP/1.1.
//!
//! One socket per address, so that a UDP reply leaves from the address of the request. Only TCP servers with host
//! network listen on the wildcard.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, Cursor};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use svclab_netns::NetnsError;
use svclab_netns::dscp::{dscp_of_first_packet, receive, report_dscp, save_first_packets};
use svclab_netns::namespace::{self, Namespace};
use svclab_netns::sockets::{self, BACKLOG};
use svclab_spec::{Protocol, ServerPort};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use super::{echo_protocol::canonical, http_echo};

/// In bytes; a longer request ends the connection.
const MAX_LINE: u64 = 1 << 20;
/// In bytes.
const MAX_DATAGRAM: usize = 1 << 16;

thread_local! {
    /// Shared by all UDP servers of a thread, because 64 KiB for each pod add up.
    static DATAGRAM: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_DATAGRAM]);
}

/// A pod's running servers.
pub struct EchoServers {
    tasks: JoinSet<()>,
}

enum BoundSocket {
    Tcp(TcpSocket),
    Sctp(TcpSocket),
    Udp(std::net::UdpSocket),
}

/// The identity that a server reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdentity {
    /// `namespace/pod`.
    pub server: String,
    /// The pod's node.
    pub node: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionEnds {
    pub(super) peer: SocketAddr,
    pub(super) at: SocketAddr,
}

impl ConnectionEnds {
    fn new(peer: SocketAddr, at: SocketAddr) -> ConnectionEnds {
        ConnectionEnds { peer: canonical(peer), at: canonical(at) }
    }
}

impl ServerIdentity {
    pub(super) fn sentence(&self, called: ConnectionEnds) -> String {
        let (server, node, ConnectionEnds { peer, at }) = (&self.server, &self.node, called);
        format!("{server} on {node} answered at {at}; it saw you as {peer}\n")
    }

    pub(super) fn json(&self, called: ConnectionEnds) -> serde_json::Value {
        serde_json::json!({"server": self.server, "node": self.node, "peer": called.peer, "at": called.at})
    }
}

impl EchoServers {
    /// Starts the servers; with `wildcard`, TCP servers listen on all addresses.
    pub async fn start(
        namespace: &Namespace,
        identity: &ServerIdentity,
        addresses: Vec<IpAddr>,
        ports: Vec<ServerPort>,
        wildcard: bool,
    ) -> Result<EchoServers, NetnsError> {
        let attempt = format!("starting the servers of {} in {}", identity.server, namespace.name());
        let bound = namespace.run(move || bind_all(&addresses, &ports, wildcard)).await?;
        let tasks = bound.and_then(|bound| serve_all(bound, identity));
        let tasks = tasks.map_err(NetnsError::io(attempt))?;
        Ok(EchoServers { tasks })
    }

    /// Stops the servers; all sockets are closed when this returns.
    pub async fn stop(mut self) {
        let _starts = namespace::hold_starts().await;
        self.tasks.shutdown().await;
    }
}

fn serve_all(bound: Vec<BoundSocket>, identity: &ServerIdentity) -> io::Result<JoinSet<()>> {
    let identity = Arc::new(identity.clone());
    let mut tasks = JoinSet::new();
    for socket in bound {
        let identity = Arc::clone(&identity);
        match socket {
            BoundSocket::Tcp(socket) => tasks.spawn(serve_stream(socket.listen(BACKLOG)?, identity, true)),
            BoundSocket::Sctp(socket) => tasks.spawn(serve_stream(socket.listen(BACKLOG)?, identity, false)),
            BoundSocket::Udp(socket) => tasks.spawn(serve_udp(UdpSocket::from_std(socket)?, identity)),
        };
    }
    Ok(tasks)
}

fn bind_all(addresses: &[IpAddr], ports: &[ServerPort], wildcard: bool) -> io::Result<Vec<BoundSocket>> {
    let mut bound = Vec::new();
    let everywhere = |address: &IpAddr| sockets::anywhere(SocketAddr::new(*address, 0)).ip();
    let wildcards: BTreeSet<IpAddr> = addresses.iter().map(everywhere).collect();
    let wildcards = Vec::from_iter(wildcards);
    for port in ports {
        let listen = if wildcard && port.protocol == Protocol::Tcp { &wildcards[..] } else { addresses };
        for address in listen {
            let address = SocketAddr::new(*address, port.port);
            let socket = match port.protocol {
                Protocol::Tcp => bind_tcp(address).map(BoundSocket::Tcp),
                Protocol::Udp => bind_udp(address).map(BoundSocket::Udp),
                Protocol::Sctp => match sockets::bind_sctp(address).transpose() {
                    Some(socket) => socket.map(BoundSocket::Sctp),
                    // No SCTP support; scenarios that send SCTP require the capability.
                    None => continue,
                },
            };
            bound.push(socket.map_err(|e| io::Error::new(e.kind(), format!("{address}: {e}")))?);
        }
    }
    Ok(bound)
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = sockets::bind_tcp(address)?;
    save_first_packets(&socket)?;
    Ok(socket)
}

fn bind_udp(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = sockets::bind_udp(address)?;
    report_dscp(&socket, address)?;
    Ok(socket)
}

fn answer(identity: &ServerIdentity, called: ConnectionEnds, dscp: Option<u8>, question: &[u8]) -> String {
    let question = String::from_utf8_lossy(question);
    let json = serde_json::json!({
        "server": identity.server, "peer": called.peer, "at": called.at, "dscp": dscp,
        "question": question.trim_end(),
    });
    let mut line = json.to_string();
    line.push('\n');
    line
}

async fn serve_stream(listener: TcpListener, identity: Arc<ServerIdentity>, speaks_http: bool) {
    // Serves all connections in one task, so that they close with the listener.
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A failed accept concerns one connection only.
                if let Ok((stream, peer)) = accepted {
                    connections.push(serve_connection(stream, peer, Arc::clone(&identity), speaks_http));
                }
            }
            Some(()) = connections.next() => {}
        }
    }
}

/// Serves a connection; the first line decides between the echo protocol and HTTP.
async fn serve_connection(mut stream: TcpStream, peer: SocketAddr, identity: Arc<ServerIdentity>, speaks_http: bool) {
    let Ok(at) = stream.local_addr() else { return };
    let called = ConnectionEnds::new(peer, at);
    let dscp = dscp_of_first_packet(&stream);
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let mut is_first = speaks_http;
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).await;
        if is_first && read.is_ok() && http_echo::is_request(&line) {
            // Boxed, so that plain connections do not reserve the HTTP state.
            let stream = tokio::io::join(Cursor::new(line).chain(reader), writer);
            return Box::pin(http_echo::serve(stream, &identity, called)).await;
        }
        is_first = false;
        let whole = read.is_ok() && line.last() == Some(&b'\n');
        if !whole || writer.write_all(answer(&identity, called, dscp, &line).as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn serve_udp(socket: UdpSocket, identity: Arc<ServerIdentity>) {
    // The destination of every datagram.
    let Ok(at) = socket.local_addr() else { return };
    let read = || {
        DATAGRAM.with_borrow_mut(|buffer| {
            let datagram = receive(&socket, buffer)?;
            let (ends, question) = (ConnectionEnds::new(datagram.peer, at), &buffer[..datagram.length]);
            Ok((answer(&identity, ends, datagram.dscp, question), datagram.peer))
        })
    };
    loop {
        // Errors are late ICMP messages about earlier replies.
        if let Ok((answer, peer)) = socket.async_io(Interest::READABLE, read).await {
            let _ = socket.send_to(answer.as_bytes(), peer).await;
        }
    }
}
