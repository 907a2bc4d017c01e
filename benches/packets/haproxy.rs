use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use svclab_cluster::process::{ProcessHandle, ProcessSpec};

use super::wires::{BACKEND, FAR_PORT, NODE_ADDRESS, Wires};

/// HAProxy's address, with every endpoint's port, so that HAProxy can be an endpoint.
pub const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(NODE_ADDRESS), FAR_PORT);
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HaProxy {
    pub name: &'static str,
    /// Whether clients connect through a cluster IP, so that packets pass rules as in userspace mode.
    pub behind_a_service: bool,
    option: &'static str,
}

impl HaProxy {
    /// Returns the variants without splicing, with it, and behind a Service; or why HAProxy is missing.
    pub fn find() -> Result<[HaProxy; 3], String> {
        let answers = Command::new("haproxy").arg("-v").output().is_ok_and(|output| output.status.success());
        if !answers {
            return Err("not installed (Debian package haproxy)".to_owned());
        }
        let plain = HaProxy { name: "haproxy", behind_a_service: false, option: "" };
        let splicing = HaProxy { name: "haproxy-splice", option: "option splice-auto", ..plain };
        let behind_a_service = HaProxy { name: "haproxy-behind-a-service", behind_a_service: true, ..plain };
        Ok([plain, splicing, behind_a_service])
    }

    pub async fn start(&self, wires: &Wires) -> Result<ProcessHandle> {
        let threads = std::thread::available_parallelism()?;
        let path = PathBuf::from(svclab_netns::sandbox::WORK_DIR).join(format!("{}.cfg", self.name));
        let text = format!(
            "global\n  nbthread {threads}\n  maxconn 4000\ndefaults\n  mode tcp\n  {}\n  timeout connect 5s\n  timeout client 1h\n  \
             timeout server 1h\nlisten bench\n  bind {ADDRESS}\n  server backend {BACKEND}:{FAR_PORT}\n",
            self.option
        );
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        let args = vec!["-db".to_owned(), "-f".to_owned(), path.display().to_string()];
        let handle = wires.spawn_on_node(ProcessSpec { program: "haproxy".into(), args, env: Vec::new() }).await?;
        let start = Instant::now();
        while wires.on_node(|| std::net::TcpStream::connect(ADDRESS)).await?.is_err() {
            if !handle.is_alive() || start.elapsed() > PATIENCE {
                bail!("haproxy does not listen on {ADDRESS}: {}", handle.log_tail(5));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(handle)
    }
}
