//! `ipMode: Proxy`: the load balancer accepts connections and connects to node ports itself.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use svclab_netns::NetnsError;
use svclab_netns::namespace::Namespace;
use svclab_netns::sockets;
use svclab_spec::Protocol;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::traffic::source_ports::SourcePorts;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const UDP_IDLE: Duration = Duration::from_secs(60);

pub(super) type NodeAddresses = BTreeMap<String, IpAddr>;

pub(super) struct VipRelay {
    pub(super) namespace: Arc<Namespace>,
    pub(super) targets: Arc<NodeAddresses>,
    pub(super) healthy: watch::Receiver<Vec<String>>,
    pub(super) node_port: u16,
    pub(super) source_ports: SourcePorts,
}

impl VipRelay {
    pub(super) async fn start(
        self,
        protocol: Protocol,
        listen: SocketAddr,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), NetnsError> {
        match protocol {
            Protocol::Tcp => {
                let listener = sockets::listen(&self.namespace, listen).await?;
                tasks.spawn(self.relay_tcp(listener));
            }
            Protocol::Udp => {
                let socket = sockets::udp(&self.namespace, listen).await?;
                tasks.spawn(self.relay_udp(Arc::new(socket)));
            }
            // Published addresses have no SCTP ports.
            Protocol::Sctp => {}
        }
        Ok(())
    }

    fn next(&self, turn: &AtomicUsize) -> Option<SocketAddr> {
        let healthy = self.healthy.borrow();
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        let node = healthy.get(turn.checked_rem(healthy.len())?)?;
        Some(SocketAddr::new(*self.targets.get(node)?, self.node_port))
    }

    async fn relay_tcp(self, listener: TcpListener) {
        let turn = AtomicUsize::new(0);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((client, _)) = accepted else { continue };
                    let (target, namespace) = (self.next(&turn), Arc::clone(&self.namespace));
                    connections.spawn(relay_connection(client, target, namespace, self.source_ports.clone()));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn udp_to(&self, target: SocketAddr) -> Result<UdpSocket, NetnsError> {
        let (ports, source) = (self.source_ports.clone(), sockets::anywhere(target));
        let socket = self.namespace.run(move || ports.bind(source, sockets::bind_udp)).await?;
        let failed = || NetnsError::io(format!("connecting UDP to {target}"));
        let socket = socket.and_then(UdpSocket::from_std).map_err(failed())?;
        socket.connect(target).await.map_err(failed())?;
        Ok(socket)
    }

    async fn relay_udp(self, socket: Arc<UdpSocket>) {
        let turn = AtomicUsize::new(0);
        let known: Arc<Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>> = Arc::default();
        let mut conversations = JoinSet::new();
        let mut datagram = [0; 65_536];
        loop {
            let Ok((length, client)) = socket.recv_from(&mut datagram).await else { continue };
            while conversations.try_join_next().is_some() {}
            let mut open = known.lock().await;
            let upstream = match open.entry(client) {
                Entry::Occupied(known) => Arc::clone(known.get()),
                Entry::Vacant(free) => {
                    let Some(target) = self.next(&turn) else { continue };
                    let Ok(upstream) = self.udp_to(target).await else { continue };
                    let upstream = Arc::clone(free.insert(Arc::new(upstream)));
                    let (back, socket, known) = (Arc::clone(&upstream), Arc::clone(&socket), Arc::clone(&known));
                    conversations.spawn(async move {
                        relay_replies(&back, &socket, client).await;
                        known.lock().await.remove(&client);
                    });
                    upstream
                }
            };
            drop(open);
            let _ = upstream.send(&datagram[..length]).await;
        }
    }
}

/// Relays a connection; if no node accepts it, the client gets a reset.
async fn relay_connection(
    mut client: TcpStream,
    target: Option<SocketAddr>,
    namespace: Arc<Namespace>,
    source_ports: SourcePorts,
) {
    let connect = async {
        let target = target?;
        let socket = namespace.run(move || source_ports.bind(sockets::anywhere(target), sockets::bind_tcp));
        let socket = socket.await.ok()?.ok()?;
        timeout(CONNECT_TIMEOUT, socket.connect(target)).await.ok()?.ok()
    };
    match connect.await {
        Some(mut node) => {
            let _ = copy_bidirectional(&mut client, &mut node).await;
        }
        None => {
            let _ = client.set_zero_linger();
        }
    }
}

async fn relay_replies(upstream: &UdpSocket, socket: &UdpSocket, client: SocketAddr) {
    let mut datagram = [0; 65_536];
    while let Ok(Ok(length)) = timeout(UDP_IDLE, upstream.recv(&mut datagram)).await {
        let _ = socket.send_to(&datagram[..length], client).await;
    }
}
