//! Detects when a proxy that reports nothing has applied a change.
//!
//! The port and endpoint port of the marker service change after every change of objects. A node that reaches the
//! newest port has seen all earlier events, as watches keep the order of events of a kind. Each family is checked, as
//! proxies program families one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::json;
use svclab_apiserver::SharedStore;
use svclab_apiserver::objects::{Object, family_name};
use svclab_cluster::Cluster;
use svclab_cluster::traffic::probe::{ClusterHost, Probe};
use svclab_spec::nth_address;
use svclab_spec::{ClusterSpec, NodeSpec, Protocol};
use tokio::net::TcpListener;

use super::error::LabError;
use crate::expect::Mismatch;

const NAMESPACE: &str = "svclab";
const NAME: &str = "marker";
/// The cluster IP's distance from the end of the service range; authors use the beginning.
const FROM_THE_END: u64 = 3;
/// The interval of attempts, and so the resolution of the measurement.
const EVERY: Duration = Duration::from_millis(10);
/// The limit of an attempt: nodes without the marker's rules do not answer.
const ATTEMPT: Duration = Duration::from_millis(500);

pub(super) fn key() -> String {
    format!("{NAMESPACE}/{NAME}")
}

pub(super) struct Marker {
    node: String,
    /// Cluster IP and endpoint address, per family.
    families: Vec<(IpAddr, IpAddr)>,
    port: u16,
    /// Listeners at the newest endpoint ports.
    listeners: Vec<TcpListener>,
}

impl Marker {
    pub(super) fn new(cluster: &Cluster) -> Option<Marker> {
        let spec = cluster.spec();
        let node = spec.nodes.first()?;
        let families = families(&spec, node);
        Some(Marker { node: node.name.clone(), families, port: 0, listeners: Vec::new() })
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        self.families.iter().flat_map(|(service, endpoint)| [service.to_string(), endpoint.to_string()]).collect()
    }

    /// Whether `service` is the marker, by name, or by address for a former port.
    pub(super) fn is(&self, service: &str) -> bool {
        let (name, _) = service.rsplit_once(':').unwrap_or((service, ""));
        let gone = name.strip_prefix("(no service)/").and_then(|address| address.parse::<IpAddr>().ok());
        name == key() || gone.is_some_and(|gone| self.families.iter().any(|(address, _)| *address == gone))
    }

    pub(super) fn avoid_nodes(&mut self, cluster: &Cluster, cut_off: &BTreeSet<String>) {
        let spec = cluster.spec();
        let reached = spec.nodes.iter().find(|node| !cut_off.contains(&node.name));
        if let Some(node) = reached.filter(|_| cut_off.contains(&self.node)) {
            (self.node, self.families) = (node.name.clone(), families(&spec, node));
        }
    }

    /// Publishes a new port, after all changes in `store`.
    pub(super) async fn advance(&mut self, cluster: &Cluster, store: &SharedStore) -> Result<(), LabError> {
        self.port = self.port.checked_add(1).unwrap_or(1);
        let (mut listeners, mut slices) = (Vec::new(), Vec::new());
        for (_, endpoint) in &self.families {
            let listener = cluster.listen(&ClusterHost::Node(self.node.clone()), SocketAddr::new(*endpoint, 0)).await?;
            let port = listener.local_addr().map_err(LabError::Api)?.port();
            slices.push(self.slice(*endpoint, port));
            listeners.push(listener);
        }
        self.listeners = listeners;
        let service = self.service();
        store.write(|store| {
            store.apply(service)?;
            slices.into_iter().try_for_each(|slice| store.apply(slice).map(drop))
        })?;
        Ok(())
    }

    fn service(&self) -> Object {
        let addresses: Vec<String> = self.families.iter().map(|(address, _)| address.to_string()).collect();
        let families: Vec<&str> = self.families.iter().map(|(address, _)| family_name(*address)).collect();
        let policy = if families.len() > 1 { "RequireDualStack" } else { "SingleStack" };
        let service = json!({
            "metadata": { "namespace": NAMESPACE, "name": NAME },
            "spec": {
                "clusterIP": addresses.first(), "clusterIPs": addresses,
                "ipFamilies": families, "ipFamilyPolicy": policy,
                "ports": [{ "name": "marker", "port": self.port, "protocol": "TCP" }],
            },
        });
        Object::Service(Box::new(serde_json::from_value(service).unwrap_or_default()))
    }

    fn slice(&self, endpoint: IpAddr, port: u16) -> Object {
        let family = family_name(endpoint);
        let slice = json!({
            "metadata": {
                "namespace": NAMESPACE, "name": format!("{NAME}-{}", family.to_lowercase()),
                "labels": { "kubernetes.io/service-name": NAME },
            },
            "addressType": family,
            "endpoints": [{ "addresses": [endpoint], "conditions": { "ready": true }, "nodeName": self.node }],
            "ports": [{ "name": "marker", "port": port, "protocol": "TCP" }],
        });
        Object::EndpointSlice(Box::new(serde_json::from_value(slice).unwrap_or_default()))
    }

    pub(super) async fn reached(
        &self,
        cluster: &Cluster,
        nodes: &[String],
        since: Instant,
        patience: Duration,
    ) -> Result<BTreeMap<String, Duration>, Mismatch> {
        let ways = nodes.iter().flat_map(|node| self.families.iter().map(move |(address, _)| (node, *address)));
        let waits = ways.map(async |(node, address)| {
            let to = SocketAddr::new(address, self.port);
            let reached = tokio::time::timeout(patience, reach(cluster, node, to)).await;
            reached.map(|()| (node.clone(), since.elapsed())).map_err(|_| {
                let expected = format!(
                    "the proxy on {node} applies the change: the lab's own service, changed after it, answers at {to}"
                );
                Mismatch::new(expected, format!("no answer, {} s on", patience.as_secs()))
            })
        });
        let mut slowest: BTreeMap<String, Duration> = BTreeMap::new();
        for reached in futures_util::future::join_all(waits).await {
            let (node, took) = reached?;
            let entry = slowest.entry(node).or_default();
            *entry = took.max(*entry);
        }
        Ok(slowest)
    }
}

fn families(spec: &ClusterSpec, node: &NodeSpec) -> Vec<(IpAddr, IpAddr)> {
    let families = spec.service_cidrs.iter().filter_map(|range| {
        let endpoint = node.addresses.iter().find(|address| address.is_ipv4() == range.addr().is_ipv4())?;
        let host_bits = u32::from(range.max_prefix_len() - range.prefix_len());
        // In larger IPv6 ranges, counts from the end of the first 2^16 addresses.
        let size = 1_u64 << host_bits.min(16);
        let cluster_ip = nth_address(*range, size.checked_sub(FROM_THE_END)?)?;
        Some((cluster_ip, *endpoint))
    });
    families.collect()
}

/// Returns once `node` has connected to `to`. Starts an attempt every [`EVERY`], without waiting for earlier ones.
async fn reach(cluster: &Cluster, node: &str, to: SocketAddr) {
    let probe = Probe {
        from: ClusterHost::Node(node.to_owned()),
        to,
        protocol: Protocol::Tcp,
        source_address: None,
        source_port: None,
        timeout: ATTEMPT,
    };
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut attempts = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(connected) = attempts.next() => if connected { return },
            _ = ticks.tick() => attempts.push(async { matches!(cluster.connect(&probe).await, Ok(Ok(_))) }),
        }
    }
}
