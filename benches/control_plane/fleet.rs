//! Many svcproxy processes at one kube-apiserver, each on a node of its own.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::{Instant, sleep};

use super::figures::{FleetFigures, ms};
use super::node::{AFTER, BEFORE, Node, marker};
use super::server::{Server, node_name};
use super::{CHANGES, ServerWork};
use crate::client_view::MeasuredProxy;
use crate::cluster::{ClusterSize, SliceEndpoints};

const AWAY: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(20);

struct Fleet<'a> {
    nodes: Vec<Node>,
    server: &'a Server,
    size: ClusterSize,
}

pub(super) async fn run(server: &Server, size: ClusterSize, proxies: u16) -> Result<FleetFigures> {
    let mut fleet = Fleet { nodes: Vec::new(), server, size };
    for index in 0..proxies {
        fleet.nodes.push(Node::make(&node_name(index), server).await?);
    }
    let work = ServerWork::measure(server).await?;
    let begin = Instant::now();
    for node in &mut fleet.nodes {
        node.start(&MeasuredProxy::Own, server).await?;
    }
    let start_ms = ms(fleet.all_reach(BEFORE).await? - begin);
    let start_bytes = fleet.quiet(&vec![0; fleet.nodes.len()]).await?;
    let start_server_ms = ms(work.since(server)?.unwrap_or_default());

    let change_ms = fleet.follow(AFTER).await?;
    let event_server_ms = fleet.event_cost().await?;

    let before = fleet.received();
    server.restart(AWAY).await?;
    let work = work.again(server)?;
    let return_ms = fleet.follow(BEFORE).await?;
    let return_bytes = fleet.quiet(&before).await?;
    let return_server_ms = ms(work.since(server)?.unwrap_or_default());
    Ok(FleetFigures {
        proxies,
        start_ms,
        start_server_ms,
        start_bytes,
        change_ms,
        event_server_ms,
        away_ms: ms(AWAY),
        return_ms,
        return_server_ms,
        return_bytes,
    })
}

impl Fleet<'_> {
    /// Moves the marker; returns the milliseconds until connections on every node follow.
    async fn follow(&self, endpoint: Ipv4Addr) -> Result<f64> {
        let begin = Instant::now();
        self.server.change(&[self.size.slice(marker(self.size), SliceEndpoints::At(endpoint))]).await?;
        Ok(ms(self.all_reach(endpoint).await? - begin))
    }

    async fn all_reach(&self, endpoint: Ipv4Addr) -> Result<Instant> {
        let begin = Instant::now();
        let mut missing: Vec<&Node> = self.nodes.iter().collect();
        while !missing.is_empty() {
            let asked =
                futures_util::future::try_join_all(missing.iter().map(|node| node.reaches(self.size, endpoint)));
            let mut reached = asked.await?.into_iter();
            missing.retain(|_| !reached.next().unwrap_or_default());
            ensure!(begin.elapsed() < PATIENCE, "{} nodes do not reach the marker at {endpoint}", missing.len());
            sleep(LOOK).await;
        }
        Ok(Instant::now())
    }

    /// Returns the server's milliseconds for an event to one proxy.
    async fn event_cost(&self) -> Result<f64> {
        let (before, work) = (self.received(), ServerWork::measure(self.server).await?);
        for generation in 0..CHANGES {
            let change = self.size.slice(self.size.typical(), SliceEndpoints::Replaced(generation));
            self.server.change(&[change]).await?;
        }
        self.quiet(&before).await?;
        let events = CHANGES as usize * self.nodes.len();
        Ok(work.since(self.server)?.unwrap_or_default().as_secs_f64() * 1000.0 / events as f64)
    }

    fn received(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.gate.received()).collect()
    }

    async fn quiet(&self, before: &[u64]) -> Result<u64> {
        let all = self.nodes.iter().zip(before).map(|(node, before)| node.gate.quiet_since(*before));
        Ok(futures_util::future::try_join_all(all).await?.into_iter().sum())
    }
}
