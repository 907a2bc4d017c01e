use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use svclab_netns::links::{NextHop, Route};
use svclab_netns::namespace::{Isolation, Namespace};
use svclab_netns::sandbox::WORK_DIR;
use svclab_netns::sockets;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::gate::{API, Gate};
use super::server::Server;
use crate::client_view::{MeasuredProxy, NFTABLES, ProxyPlace};
use crate::cluster::{ClusterSize, PORT, cluster_ip};

/// The node's own addresses, each with a server that names itself by one byte: the marker's endpoints.
pub(super) const BEFORE: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
pub(super) const AFTER: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 2);

const LO: u32 = 1;
const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);
const SILENCE: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(300);

/// A network namespace with a proxy, which reaches the API by a gate.
pub(super) struct Node {
    // Dropped before the namespace.
    process: Option<Child>,
    pub(super) gate: Gate,
    name: String,
    namespace: Namespace,
}

impl Node {
    pub(super) async fn make(name: &str, server: &Server) -> Result<Node> {
        let namespace = Namespace::create(name, Isolation::Host).await?;
        let links = namespace.links();
        links.up(LO).await?;
        for own in [BEFORE, AFTER] {
            links.add_address(LO, IpAddr::V4(own).into(), false).await?;
            let listener = sockets::listen(&namespace, SocketAddr::new(own.into(), PORT)).await?;
            let [.., last] = own.octets();
            tokio::spawn(async move {
                while let Ok((mut client, _)) = listener.accept().await {
                    let _ = client.write_all(&[last]).await;
                }
            });
        }
        // Without a route the kernel refuses a connection before it looks at rules.
        links.set_route(&Route::new("10.96.0.0/16".parse()?, NextHop::Device(LO))).await?;
        let gate = Gate::open(&namespace, server.address()).await?;
        Ok(Node { process: None, gate, name: name.to_owned(), namespace })
    }

    pub(super) async fn start(&mut self, program: &MeasuredProxy, server: &Server) -> Result<()> {
        let directory = PathBuf::from(WORK_DIR);
        let kubeconfig = directory.join(format!("{}.kubeconfig", self.name));
        server.kubeconfig(&self.name, API).write(&kubeconfig)?;
        let spec = program.process(&NFTABLES, &ProxyPlace::new(&self.name, &kubeconfig)?)?;
        let log = self.log();
        let log = File::create(&log).with_context(|| format!("make {}", log.display()))?;
        let mut command = Command::new(&spec.program);
        command.args(&spec.args).envs(spec.env).stdin(Stdio::null()).kill_on_drop(true);
        command.stdout(log.try_clone().context("share a log")?).stderr(log);
        self.process = Some(self.namespace.spawn(command).await?);
        Ok(())
    }

    /// Returns the moment when connections to the marker reach `endpoint`.
    pub(super) async fn wait(&mut self, size: ClusterSize, endpoint: Ipv4Addr) -> Result<Instant> {
        let begin = Instant::now();
        while !self.reaches(size, endpoint).await? {
            let ended = self.process.as_mut().and_then(|process| process.try_wait().ok().flatten());
            if ended.is_some() || begin.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.log()).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(5).collect();
                bail!(
                    "{}: the marker is not at {endpoint} ({ended:?}); the log, last line first:\n{}",
                    self.name,
                    last.join("\n")
                );
            }
            sleep(LOOK).await;
        }
        Ok(Instant::now())
    }

    pub(super) async fn reaches(&self, size: ClusterSize, endpoint: Ipv4Addr) -> Result<bool> {
        let to = SocketAddr::new(cluster_ip(marker(size)).into(), PORT);
        let ask = move || -> std::io::Result<u8> {
            let mut connection = TcpStream::connect_timeout(&to, SILENCE)?;
            connection.set_read_timeout(Some(SILENCE))?;
            let mut answer = [0];
            connection.read_exact(&mut answer)?;
            Ok(answer[0])
        };
        let [.., wanted] = endpoint.octets();
        Ok(self.namespace.run(ask).await?.is_ok_and(|answer| answer == wanted))
    }

    /// Returns the requests that the proxy counts itself (`rest_client_requests_total`, upstream's name).
    pub(super) async fn requests(&self) -> Result<u64> {
        let ask = || -> std::io::Result<String> {
            let mut connection = TcpStream::connect(METRICS)?;
            connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            match connection.read_to_string(&mut answer) {
                Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error),
                _ => Ok(answer),
            }
        };
        let page = self.namespace.run(ask).await?.context("read the proxy's metrics")?;
        let counts = page.lines().filter(|line| line.starts_with("rest_client_requests_total{"));
        Ok(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64)
    }

    /// Returns the proxy's peak and present resident memory in bytes.
    pub(super) fn memory(&self) -> Result<(u64, u64)> {
        let pid = self.process.as_ref().and_then(Child::id).context("a proxy that was started")?;
        let status = procfs::process::Process::new(pid.cast_signed()).and_then(|process| process.status());
        let status = status.context("look at the proxy")?;
        Ok((status.vmhwm.unwrap_or_default() * 1024, status.vmrss.unwrap_or_default() * 1024))
    }

    fn log(&self) -> PathBuf {
        PathBuf::from(WORK_DIR).join(format!("{}.log", self.name))
    }
}

/// The index of the marker, a service after all others.
pub(super) fn marker(size: ClusterSize) -> u32 {
    size.services.next_multiple_of(10)
}
