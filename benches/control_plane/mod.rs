//! What proxies cost an API server: `./just bench --control-plane DIR`, or `lab` for the bytes alone.

mod figures;
mod fleet;
mod gate;
mod lists;
mod node;
mod server;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use svclab_control_plane::Programs;
use tokio::time::{Instant, sleep};

use crate::client_view::MeasuredProxy;
use crate::cluster::{ClusterSize, SliceEndpoints};
use crate::options::ControlPlaneChoice;
use figures::ms;
pub use figures::{ControlPlaneFigures, FleetFigures, ListFigures, ProxyFigures};
use node::{BEFORE, Node, marker};
use server::{Server, node_name};

/// Starts of each proxy, of which the median counts.
const ROUNDS: usize = 3;
/// Changes of one slice each; the cost is divided by them.
const CHANGES: u32 = 20;
/// Time to see what the server does by itself.
const IDLE: Duration = Duration::from_secs(5);

pub async fn run(choice: &ControlPlaneChoice, proxies: &[MeasuredProxy], update: bool) -> Result<()> {
    let programs = choice.directory.as_deref().map(Programs::find).transpose()?;
    let size = choice.size;
    // The first service has the address of `default/kubernetes`.
    let mut changes = size.changes().split_off(2);
    changes.extend(size.another());
    changes.push(size.slice(marker(size), SliceEndpoints::At(BEFORE)));
    let server = Server::start(programs.as_ref(), choice.fleet.max(1), &changes).await?;
    let mut figures = ControlPlaneFigures {
        server: server.name.clone(),
        cluster: size.to_string(),
        proxies: BTreeMap::new(),
        lists: lists::run(&server).await?,
        fleet: None,
    };
    for proxy in proxies {
        let one = alone(proxy, &server, size).await.with_context(|| format!("measure {}", proxy.name()))?;
        figures.proxies.insert(proxy.name().to_owned(), one);
    }
    if choice.fleet > 0 && programs.is_some() {
        figures.fleet = Some(fleet::run(&server, size, choice.fleet).await?);
    }
    std::io::stdout().write_all(serde_json::to_string_pretty(&figures)?.as_bytes()).context("print the figures")?;
    if update { figures.write() } else { Ok(()) }
}

async fn alone(proxy: &MeasuredProxy, server: &Server, size: ClusterSize) -> Result<ProxyFigures> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(round(proxy, server, size).await?);
    }
    rounds.sort_by(|one, other| one.start_ms.total_cmp(&other.start_ms));
    let middle = |part: fn(&ProxyFigures) -> u64| {
        let mut all: Vec<u64> = rounds.iter().map(part).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let mut server_ms: Vec<f64> = rounds.iter().filter_map(|round| round.start_server_ms).collect();
    server_ms.sort_by(f64::total_cmp);
    Ok(ProxyFigures {
        start_bytes: middle(|round| round.start_bytes),
        start_requests: middle(|round| round.start_requests),
        start_server_ms: server_ms.get(server_ms.len() / 2).copied(),
        start_ms: rounds[rounds.len() / 2].start_ms,
        change_bytes: middle(|round| round.change_bytes),
        peak_bytes: middle(|round| round.peak_bytes),
        resident_bytes: middle(|round| round.resident_bytes),
    })
}

async fn round(proxy: &MeasuredProxy, server: &Server, size: ClusterSize) -> Result<ProxyFigures> {
    let mut node = Node::make(&node_name(0), server).await?;
    let work = ServerWork::measure(server).await?;
    let begin = Instant::now();
    node.start(proxy, server).await?;
    let start = node.wait(size, BEFORE).await? - begin;
    let start_bytes = node.gate.quiet_since(0).await?;
    let start_server_ms = work.since(server)?.map(ms);
    let start_requests = node.requests().await?;
    let (peak_bytes, resident_bytes) = node.memory()?;
    let before = node.gate.received();
    for generation in 0..CHANGES {
        server.change(&[size.slice(size.typical(), SliceEndpoints::Replaced(generation))]).await?;
    }
    let change_bytes = node.gate.quiet_since(before).await? / u64::from(CHANGES);
    let start_ms = ms(start);
    Ok(ProxyFigures {
        start_bytes,
        start_requests,
        start_server_ms,
        start_ms,
        change_bytes,
        peak_bytes,
        resident_bytes,
    })
}

/// The server's processor time from a moment on, without what it would have used anyway.
struct ServerWork {
    before: Option<Duration>,
    begin: Instant,
    /// Processors in use without proxies.
    idle: f64,
}

impl ServerWork {
    async fn measure(server: &Server) -> Result<ServerWork> {
        let idle = match server.processor_time()? {
            None => 0.0,
            Some(before) => {
                sleep(IDLE).await;
                let after = server.processor_time()?.unwrap_or(before);
                (after - before).as_secs_f64() / IDLE.as_secs_f64()
            }
        };
        Ok(ServerWork { before: server.processor_time()?, begin: Instant::now(), idle })
    }

    /// From now on, with the same use without proxies.
    fn again(&self, server: &Server) -> Result<ServerWork> {
        Ok(ServerWork { before: server.processor_time()?, begin: Instant::now(), idle: self.idle })
    }

    fn since(&self, server: &Server) -> Result<Option<Duration>> {
        let (Some(before), Some(after)) = (self.before, server.processor_time()?) else { return Ok(None) };
        let idle = self.begin.elapsed().mul_f64(self.idle);
        Ok(Some(after.saturating_sub(before).saturating_sub(idle)))
    }
}
