//! Two pods, and a node between them.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use anyhow::{Context, Result};
use svclab_cluster::Cluster;
use svclab_cluster::process::{ProcessHandle, ProcessSpec};
use svclab_cluster::traffic::probe::ClusterHost;
use svclab_spec::{ClusterSpec, Cni, NodeSpec, PodSpec};

use super::traffic::{CHUNK, DATAGRAM, REQUEST};

pub const BACKEND: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 3);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 2);
pub const FAR_PORT: u16 = crate::cluster::PORT;

pub const NODE: &str = "node-1";
pub const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);

pub struct Wires {
    cluster: Cluster,
}

impl Wires {
    pub async fn build() -> Result<Wires> {
        let cluster = Cluster::build(&spec()?).await?;
        let listen = || anyhow::Ok((TcpListener::bind((BACKEND, FAR_PORT))?, UdpSocket::bind((BACKEND, FAR_PORT))?));
        let (tcp, udp) = cluster.run(&pod("backend"), listen).await?.context("listen in the backend's pod")?;
        serve(tcp, udp).context("start the servers")?;
        Ok(Wires { cluster })
    }

    pub async fn on_node<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        Ok(self.cluster.run(&ClusterHost::Node(NODE.to_owned()), work).await?)
    }

    /// Runs `work` in the client pod's network namespace; threads that it starts stay there.
    pub async fn on_client<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        Ok(self.cluster.run(&pod("client"), work).await?)
    }

    pub fn spec(&self) -> ClusterSpec {
        self.cluster.spec()
    }

    pub async fn spawn_on_node(&self, process: ProcessSpec) -> Result<ProcessHandle> {
        Ok(self.cluster.spawn_on_node(NODE, process).await?)
    }
}

fn pod(name: &str) -> ClusterHost {
    ClusterHost::Pod { namespace: "bench".to_owned(), name: name.to_owned() }
}

/// Returns a node with two pods on point-to-point links, so that packets between the pods pass every hook.
fn spec() -> Result<ClusterSpec> {
    let pod = |name: &str, address: Ipv4Addr| PodSpec {
        namespace: "bench".to_owned(),
        name: name.to_owned(),
        node: NODE.to_owned(),
        addresses: vec![IpAddr::V4(address)],
        host_network: false,
        ports: Vec::new(),
    };
    Ok(ClusterSpec {
        cni: Cni::PointToPoint,
        node_network: vec!["192.168.0.0/24".parse()?],
        service_cidrs: vec!["10.96.0.0/16".parse()?],
        cluster_cidrs: vec!["10.244.0.0/16".parse()?],
        nodes: vec![NodeSpec {
            name: NODE.to_owned(),
            zone: None,
            addresses: vec![NODE_ADDRESS.into()],
            extra_addresses: Vec::new(),
            pod_cidrs: vec!["10.244.1.0/24".parse()?],
        }],
        pods: vec![pod("client", CLIENT), pod("backend", BACKEND)],
        ..ClusterSpec::default()
    })
}

fn serve(tcp: TcpListener, udp: UdpSocket) -> Result<()> {
    thread::Builder::new().name("accept".to_owned()).spawn(move || {
        for stream in tcp.incoming().flatten() {
            let _ =
                thread::Builder::new().name("serve".to_owned()).stack_size(256 << 10).spawn(move || converse(stream));
        }
    })?;
    thread::Builder::new().name("udp".to_owned()).spawn(move || {
        let mut datagram = [0; DATAGRAM];
        while let Ok((length, peer)) = udp.recv_from(&mut datagram) {
            let _ = udp.send_to(&datagram[..length], peer);
        }
    })?;
    Ok(())
}

/// If the first byte is `s`, acknowledges each received chunk with a byte; otherwise answers each request.
fn converse(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut kind = [0];
    if stream.read_exact(&mut kind).is_err() {
        return;
    }
    let _ = if kind == [b's'] { swallow(stream) } else { answer(stream) };
}

fn swallow(mut stream: TcpStream) -> std::io::Result<()> {
    let (mut buffer, mut received) = (vec![0; 256 << 10], 0);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            more => received += more,
        }
        while received >= CHUNK {
            received -= CHUNK;
            stream.write_all(b".")?;
        }
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    // `converse` has read the first byte of the first request.
    let mut request = [b'r'; REQUEST];
    let mut missing = REQUEST - 1;
    loop {
        match stream.read_exact(&mut request[..missing]) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        missing = REQUEST;
        stream.write_all(&request)?;
    }
}
