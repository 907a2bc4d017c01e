//! The cloud load balancer, which health-checks the nodes and forwards to healthy ones.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use ipnet::IpNet;
use svclab_netns::NetnsError;
use svclab_netns::links::{NextHop, Route};
use svclab_netns::namespace::Namespace;
use svclab_spec::{LoadBalancerSpec, LoadBalancerVip, NodeSpec, VipMode};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::host::ETH0;
use super::validate::address_for;
use super::vip_relay::NodeAddresses;
use super::{ClusterError, http_get, vip_relay};
use crate::traffic::source_ports::SourcePorts;

const CHECK_EVERY: Duration = Duration::from_millis(75);
/// A single check that gets no answer in this time withdraws the node.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);
/// Metric of the blackhole route that takes effect while no node is healthy.
const LAST_RESORT: u32 = 4096;

pub(super) struct LoadBalancer {
    pub(super) namespace: Arc<Namespace>,
    spec: LoadBalancerSpec,
    nodes: Vec<NodeSpec>,
    source_ports: SourcePorts,
    active: Mutex<BTreeMap<IpAddr, ActiveVip>>,
}

struct ActiveVip {
    vip: LoadBalancerVip,
    healthy: watch::Receiver<Vec<String>>,
    rounds: watch::Receiver<CheckRounds>,
    check_now: Arc<Notify>,
    _tasks: JoinSet<()>,
}

/// Numbers of the health-check rounds that began and ended last.
#[derive(Debug, Clone, Copy, Default)]
struct CheckRounds {
    begun: u64,
    ended: u64,
}

impl LoadBalancer {
    pub(super) fn new(
        namespace: Arc<Namespace>,
        spec: LoadBalancerSpec,
        nodes: Vec<NodeSpec>,
        source_ports: SourcePorts,
    ) -> LoadBalancer {
        LoadBalancer { namespace, spec, nodes, source_ports, active: Mutex::default() }
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<IpAddr, ActiveVip>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn gateway(&self, vip: IpAddr) -> Result<IpAddr, ClusterError> {
        address_for(&self.spec.addresses, vip).ok_or_else(|| {
            let problem = "the load balancer has no address of that family";
            ClusterError::invalid(format!("load-balancer address {vip}"), problem)
        })
    }

    pub(super) fn vips(&self) -> Vec<LoadBalancerVip> {
        self.active().values().map(|active| active.vip.clone()).collect()
    }

    pub(super) fn owns(&self, vip: IpAddr) -> bool {
        self.spec.addresses.contains(&vip)
    }

    /// Returns a receiver of the healthy nodes' sorted names.
    pub(super) fn healthy(&self, vip: IpAddr) -> Result<watch::Receiver<Vec<String>>, ClusterError> {
        let active = self.active();
        let found = active.get(&vip).map(|active| active.healthy.clone());
        found.ok_or_else(|| ClusterError::Unknown(format!("load-balancer address {vip}")))
    }

    /// Checks every node once more, at once. Ignores addresses that are not published.
    pub(super) async fn check(&self, vip: IpAddr) {
        let found = self.active().get(&vip).map(|active| (active.rounds.clone(), Arc::clone(&active.check_now)));
        let Some((mut rounds, check_now)) = found else { return };
        // A round that has begun already may have asked some nodes before a change.
        let next = rounds.borrow().begun + 1;
        check_now.notify_one();
        // An error means that the address was withdrawn.
        let _ = rounds.wait_for(|rounds| rounds.ended >= next).await;
    }

    pub(super) async fn publish(&self, vip: LoadBalancerVip) -> Result<(), ClusterError> {
        let failed = || ClusterError::kernel(format!("load-balancer address {}", vip.address));
        let links = self.namespace.links();
        let targets =
            self.nodes.iter().filter_map(|node| Some((node.name.clone(), address_for(&node.addresses, vip.address)?)));
        let targets: Arc<NodeAddresses> = Arc::new(targets.collect());
        let (report, healthy) = watch::channel(Vec::new());
        let mut tasks = JoinSet::new();
        match vip.mode {
            VipMode::Vip => {
                let lost = Route { metric: Some(LAST_RESORT), ..Route::new(vip.address.into(), NextHop::Blackhole) };
                links.set_route(&lost).await.map_err(failed())?;
            }
            VipMode::Proxy => {
                if !self.owns(vip.address) {
                    let done = links.add_address(ETH0, vip.address.into(), true).await;
                    done.map_err(failed())?;
                }
                for (protocol, port, node_port) in &vip.ports {
                    let listen = SocketAddr::new(vip.address, *port);
                    let relay = vip_relay::VipRelay {
                        namespace: Arc::clone(&self.namespace),
                        targets: Arc::clone(&targets),
                        healthy: healthy.clone(),
                        node_port: *node_port,
                        source_ports: self.source_ports.clone(),
                    };
                    relay.start(*protocol, listen, &mut tasks).await.map_err(failed())?;
                }
            }
        }
        let (round, rounds) = watch::channel(CheckRounds::default());
        let check_now = Arc::new(Notify::new());
        let follower = HealthFollower {
            namespace: Arc::clone(&self.namespace),
            vip: vip.clone(),
            targets,
            report,
            round,
            check_now: Arc::clone(&check_now),
        };
        tasks.spawn(follower.follow());
        let active = ActiveVip { vip, healthy, rounds, check_now, _tasks: tasks };
        self.active().insert(active.vip.address, active);
        Ok(())
    }

    pub(super) async fn withdraw(&self, vip: IpAddr) -> Result<(), ClusterError> {
        let Some(mut active) = self.active().remove(&vip) else {
            return Ok(());
        };
        active._tasks.shutdown().await;
        let links = self.namespace.links();
        let done = match active.vip.mode {
            VipMode::Vip => {
                let done = links.remove_route(vip.into(), Some(LAST_RESORT)).await;
                // There is one while a node is healthy. The task may have stopped between its change and its report, so
                // that the report does not tell. Without a metric any route matches, so this one is last.
                let _ = links.remove_route(vip.into(), None).await;
                done
            }
            VipMode::Proxy if self.owns(vip) => Ok(()),
            VipMode::Proxy => links.remove_address(ETH0, IpNet::from(vip)).await,
        };
        done.map_err(ClusterError::kernel(format!("withdrawing load-balancer address {vip}")))
    }
}

struct HealthFollower {
    namespace: Arc<Namespace>,
    vip: LoadBalancerVip,
    targets: Arc<NodeAddresses>,
    report: watch::Sender<Vec<String>>,
    round: watch::Sender<CheckRounds>,
    check_now: Arc<Notify>,
}

impl HealthFollower {
    async fn follow(self) {
        let port = self.vip.health_check_port;
        let mut tick = interval(CHECK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.check_now.notified() => {}
            }
            self.round.send_modify(|rounds| rounds.begun += 1);
            let from = &*self.namespace;
            let checks = self.targets.iter().map(|(name, address)| async move {
                let address = SocketAddr::new(*address, port);
                let check = http_get::get(from, address, "/healthz");
                let answer = timeout(CHECK_TIMEOUT, check).await;
                matches!(answer, Ok(Ok(answer)) if answer.status == 200).then(|| name.clone())
            });
            let healthy: Vec<String> = join_all(checks).await.into_iter().flatten().collect();
            if *self.report.borrow() != healthy {
                // If the kernel rejects the route, reports nothing; the next tick tries again.
                let _ = self.switch(healthy).await;
            }
            self.round.send_modify(|rounds| rounds.ended = rounds.begun);
        }
    }

    async fn switch(&self, healthy: Vec<String>) -> Result<(), NetnsError> {
        if self.vip.mode == VipMode::Vip {
            let gateways: Vec<IpAddr> = healthy.iter().filter_map(|name| self.targets.get(name).copied()).collect();
            let links = self.namespace.links();
            let address = self.vip.address.into();
            if !gateways.is_empty() {
                let route = Route::new(address, NextHop::OneOf(gateways, ETH0));
                links.set_route(&route).await?;
            } else if !self.report.borrow().is_empty() {
                links.remove_route(address, None).await?;
            }
        }
        self.report.send_replace(healthy);
        Ok(())
    }
}
