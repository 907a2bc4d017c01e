//! Detects when a proxy that reports nothing has applied a change.
//!
//! The port and endpoint port of the marker service change after every change of objects. A node that reaches the
//! newest port has seen all earlier events, as watches keep the order of events of a kind, and no endpoint of an earlier
//! change belongs to it, as the port's name changes, too. Each family is checked, as proxies program families one after
//! the other. While the scenario has no Service, the marker is deleted, too.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::json;
use svclab_apiserver::SharedStore;
use svclab_apiserver::objects::{Object, ObjectKey, Store, family_name};
use svclab_cluster::Cluster;
use svclab_cluster::traffic::probe::{ClusterHost, Probe, ProbeAnswer};
use svclab_spec::nth_address;
use svclab_spec::{ClusterSpec, NodeSpec, Protocol};
use tokio::net::TcpListener;

use super::applied::{LateProxy, ProxyPart};
use super::error::LabError;
use super::proxies::Proxies;
use crate::expect::Mismatch;

const NAMESPACE: &str = "svclab";
const NAME: &str = "marker";
/// The cluster IP's distance from the end of the service range; authors use the beginning.
const FROM_THE_END: u64 = 3;
/// The interval of attempts, and so the resolution of the measurement.
const EVERY: Duration = Duration::from_millis(10);
/// The interval after [`SOON`].
const LATER: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_secs(5);
/// The pause between attempts that are to fail: each one that succeeds waits in a listener's queue of some thousand.
const LEAVE_EVERY: Duration = Duration::from_millis(100);
/// The limit of an attempt: nodes without the marker's rules do not answer.
const ATTEMPT: Duration = Duration::from_millis(500);

pub(super) fn key() -> String {
    format!("{NAMESPACE}/{NAME}")
}

/// Whether the cluster has no Service but the marker.
pub(super) fn is_alone(store: &Store) -> bool {
    store.services().all(|(service, _)| service.to_string() == key())
}

pub(super) struct Marker {
    node: String,
    /// Cluster IP and endpoint address, per family.
    families: Vec<(IpAddr, IpAddr)>,
    port: u16,
    is_withdrawn: bool,
    /// Listeners at the newest endpoint ports.
    listeners: Vec<TcpListener>,
    /// The port before, with its listeners: what answers there has not applied the newest change.
    former: Option<(u16, Vec<TcpListener>)>,
}

impl Marker {
    pub(super) fn new(cluster: &Cluster) -> Option<Marker> {
        let spec = cluster.spec();
        let node = spec.nodes.first()?;
        let families = families(&spec, node);
        Some(Marker {
            node: node.name.clone(),
            families,
            port: 0,
            is_withdrawn: false,
            listeners: Vec::new(),
            former: None,
        })
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
        self.is_withdrawn = false;
        let before = self.port;
        self.port = before.checked_add(1).unwrap_or(1);
        let (mut listeners, mut slices) = (Vec::new(), Vec::new());
        for (_, endpoint) in &self.families {
            let listener = cluster.listen(&ClusterHost::Node(self.node.clone()), SocketAddr::new(*endpoint, 0)).await?;
            let port = listener.local_addr().map_err(LabError::Api)?.port();
            slices.push(self.slice(*endpoint, port));
            listeners.push(listener);
        }
        self.former = (before > 0).then(|| (before, std::mem::take(&mut self.listeners)));
        self.listeners = listeners;
        let service = self.service();
        store.write(|store| {
            store.apply(service)?;
            slices.into_iter().try_for_each(|slice| store.apply(slice).map(drop))
        })?;
        Ok(())
    }

    /// Deletes the marker where the scenario has no Service: a proxy without Services is a case of its own.
    pub(super) fn withdraw(&mut self, store: &SharedStore) -> Result<(), LabError> {
        let of_marker = |name: &str| ObjectKey::new(Some(NAMESPACE), name);
        store.write(|store| {
            if store.service(&of_marker(NAME)).is_err() {
                return Ok(());
            }
            store.delete("service", &of_marker(NAME))?;
            let mut slices = self.families.iter().map(|(_, endpoint)| slice_name(*endpoint));
            slices.try_for_each(|slice| store.delete("endpointslice", &of_marker(&slice)))
        })?;
        self.is_withdrawn = true;
        Ok(())
    }

    /// Another name than that of the change before: else the new Service would lead to the endpoint before, which still
    /// listens, on a node that has seen the Service and not the EndpointSlice. Only two, so that few chains are left behind.
    fn port_name(&self) -> String {
        format!("{NAME}-{}", self.port % 2)
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
                "ports": [{ "name": self.port_name(), "port": self.port, "protocol": "TCP" }],
            },
        });
        Object::Service(Box::new(serde_json::from_value(service).unwrap_or_default()))
    }

    fn slice(&self, endpoint: IpAddr, port: u16) -> Object {
        let slice = json!({
            "metadata": {
                "namespace": NAMESPACE, "name": slice_name(endpoint),
                "labels": { "kubernetes.io/service-name": NAME },
            },
            "addressType": family_name(endpoint),
            "endpoints": [{ "addresses": [endpoint], "conditions": { "ready": true }, "nodeName": self.node }],
            "ports": [{ "name": self.port_name(), "port": port, "protocol": "TCP" }],
        });
        Object::EndpointSlice(Box::new(serde_json::from_value(slice).unwrap_or_default()))
    }

    /// Waits until every node of `nodes` has reached the newest port in every family that was not given up, or no longer
    /// reaches a withdrawn marker. Returns how long each node took, and what is late.
    pub(super) async fn reached(
        &self,
        cluster: &Cluster,
        proxies: &Proxies,
        nodes: &[String],
        since: Instant,
    ) -> (BTreeMap<String, Duration>, Vec<LateProxy>) {
        let waits = nodes.iter().map(|node| self.reached_by(cluster, proxies, node, since));
        let (mut took, mut late) = (BTreeMap::new(), Vec::new());
        for (node, (slowest, missed)) in nodes.iter().zip(futures_util::future::join_all(waits).await) {
            took.extend(slowest.filter(|_| missed.is_empty()).map(|slowest| (node.clone(), slowest)));
            let is_partial = slowest.is_some();
            late.extend(missed.into_iter().map(|(family, mismatch)| LateProxy {
                node: node.clone(),
                parts: if is_partial { vec![ProxyPart::Family(family.to_owned())] } else { Vec::new() },
                mismatch,
            }));
        }
        (took, late)
    }

    /// Returns how long the slowest family took that was reached, and the others.
    async fn reached_by(
        &self,
        cluster: &Cluster,
        proxies: &Proxies,
        node: &str,
        since: Instant,
    ) -> (Option<Duration>, Vec<(&'static str, Mismatch)>) {
        let given_up = proxies.given_up().get(node);
        let is_waited_for = |(service, _): &&(IpAddr, IpAddr)| {
            !given_up.is_some_and(|parts| parts.contains(&ProxyPart::Family(family_name(*service).to_owned())))
        };
        let waits = self.families.iter().filter(is_waited_for).map(async |(service, endpoint)| {
            let Some(patience) = proxies.patience(node) else { return Ok(Duration::ZERO) };
            let (to, last) = (SocketAddr::new(*service, self.port), Cell::new(None));
            tokio::select! {
                () = reach(cluster, node, to, &last), if !self.is_withdrawn => Ok(since.elapsed()),
                () = leave(cluster, node, to), if self.is_withdrawn => Ok(since.elapsed()),
                over = patience.over() => {
                    Err((family_name(*service), self.missed(cluster, node, (to, *endpoint), (last.take(), over)).await))
                }
            }
        });
        let all = futures_util::future::join_all(waits).await;
        let (reached, missed): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
        (reached.into_iter().flatten().max(), missed.into_iter().filter_map(Result::err).collect())
    }

    /// Says what was expected and seen. Whether the former port still answers tells a change that was not applied from
    /// one that was applied wrongly.
    async fn missed(
        &self,
        cluster: &Cluster,
        node: &str,
        (to, endpoint): (SocketAddr, IpAddr),
        (last, over): (Option<ProbeAnswer>, String),
    ) -> Mismatch {
        let family = family_name(endpoint);
        if self.is_withdrawn {
            let expected = format!(
                "{node} no longer reaches {NAMESPACE}/{NAME}, the lab's own Service, deleted with the last one, at {to}"
            );
            return Mismatch::new(expected, format!("an answer: this change was not applied; {over}"));
        }
        let expected = format!(
            "{node} reaches {NAMESPACE}/{NAME}, the lab's own Service, over {family} at {to}: its port changes after every \
             change, and its endpoint is on {}",
            self.node
        );
        let answer = last.map_or("no answer", |last| match last {
            ProbeAnswer::Refused => "refused",
            ProbeAnswer::Unreachable(_) => "unreachable",
            _ => "no answer",
        });
        let former = match self.former.as_ref() {
            None => String::new(),
            Some((port, _)) => match cluster.connect(&probe(node, SocketAddr::new(to.ip(), *port))).await {
                Ok(Ok(_)) => format!("; port {port} of the change before still answers: this change was not applied"),
                _ => format!("; port {port} of the change before does not answer either"),
            },
        };
        Mismatch::new(expected, format!("{answer}{former}; {over}"))
    }
}

fn slice_name(endpoint: IpAddr) -> String {
    format!("{NAME}-{}", family_name(endpoint).to_lowercase())
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

/// Returns once `node` has connected to `to`. Starts an attempt every [`EVERY`], later every [`LATER`], without waiting
/// for earlier ones. `last`: the last failure.
async fn reach(cluster: &Cluster, node: &str, to: SocketAddr, last: &Cell<Option<ProbeAnswer>>) {
    let (probe, begun) = (probe(node, to), Instant::now());
    let mut attempts = FuturesUnordered::new();
    loop {
        attempts.push(cluster.connect(&probe));
        let pause = tokio::time::sleep(if begun.elapsed() < SOON { EVERY } else { LATER });
        tokio::pin!(pause);
        loop {
            tokio::select! {
                Some(connected) = attempts.next() => match connected {
                    Ok(Ok(_)) => return,
                    Ok(Err(outcome)) => last.set(Some(outcome.answer)),
                    Err(_) => {}
                },
                () = &mut pause => break,
            }
        }
    }
}

/// Returns once `node` cannot connect to `to`, where no port is 0.
async fn leave(cluster: &Cluster, node: &str, to: SocketAddr) {
    let probe = probe(node, to);
    while to.port() != 0 && matches!(cluster.connect(&probe).await, Ok(Ok(_))) {
        tokio::time::sleep(LEAVE_EVERY).await;
    }
}

fn probe(node: &str, to: SocketAddr) -> Probe {
    Probe {
        from: ClusterHost::Node(node.to_owned()),
        to,
        protocol: Protocol::Tcp,
        source_address: None,
        source_port: None,
        bytes: 0,
        dscp: 0,
        timeout: ATTEMPT,
    }
}
