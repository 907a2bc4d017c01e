//! Builds a cluster: node network, hosts, pods; each stage concurrently.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use futures_util::future::try_join_all;
use futures_util::try_join;
use svclab_netns::namespace::{Isolation, Namespace};
use svclab_spec::{ClusterSpec, Cni, NodeSpec};

use super::balancer::LoadBalancer;
use super::host::{self, HostRole, NODES, NodeNetwork, SECOND};
use super::pod::{Pod, PodSite};
use super::{Cluster, ClusterError, Node, validate};
use crate::traffic::source_ports::SourcePorts;

async fn namespace(name: &str, isolation: Isolation) -> Result<Arc<Namespace>, ClusterError> {
    let made = Namespace::create(name, isolation).await;
    made.map(Arc::new).map_err(ClusterError::kernel(format!("making {name}")))
}

async fn outside_host(
    fabric: &NodeNetwork,
    port: usize,
    name: &str,
    role: HostRole,
    spec: &ClusterSpec,
    addresses: &[IpAddr],
) -> Result<Arc<Namespace>, ClusterError> {
    let host = namespace(name, Isolation::Network).await?;
    host::prepare(&host, role, addresses.iter().any(IpAddr::is_ipv6)).await?;
    fabric.attach(&NODES, port as u32, &host, &spec.node_network, addresses, &[]).await?;
    Ok(host)
}

async fn node(
    fabric: &NodeNetwork,
    port: usize,
    cluster: &ClusterSpec,
    spec: &NodeSpec,
) -> Result<(String, Node), ClusterError> {
    let host = namespace(&spec.name, Isolation::Host).await?;
    let ipv6 = cluster.node_network.iter().any(|range| range.addr().is_ipv6());
    host::prepare(&host, HostRole::Node(cluster.cni, cluster.reverse_path), ipv6).await?;
    let network = &cluster.node_network;
    fabric.attach(&NODES, port as u32, &host, network, &spec.addresses, &spec.extra_addresses).await?;
    let second = cluster.second_addresses(spec);
    if !second.is_empty() {
        fabric.attach(&SECOND, port as u32, &host, &cluster.second_network, &second, &[]).await?;
    }
    host::node_routes(cluster, spec, &host).await?;
    if cluster.cni == Cni::Bridge {
        host::pod_bridge(spec, &host).await?;
    }
    Ok((spec.name.clone(), Node { spec: spec.clone(), namespace: host, port: port as u32 }))
}

pub(super) async fn build(spec: &ClusterSpec) -> Result<Cluster, ClusterError> {
    validate::cluster(spec)?;
    let switch = NodeNetwork::build(!spec.second_network.is_empty()).await?;
    let fabric = &switch;
    let source_ports = SourcePorts::default();
    let nodes = spec.nodes.iter().enumerate();
    let nodes = try_join_all(nodes.map(|(port, one)| node(fabric, port, spec, one)));
    let first = spec.nodes.len();
    let clients = try_join_all(spec.clients.iter().enumerate().map(|(i, client)| async move {
        let name = format!("client/{}", client.name);
        let host = outside_host(fabric, first + i, &name, HostRole::Endpoint, spec, &client.addresses);
        Ok((client.name.clone(), host.await?))
    }));
    let first = first + spec.clients.len();
    let balancer = try_join_all(spec.load_balancer.iter().map(async |lb| {
        let name = "load-balancer";
        let host = outside_host(fabric, first, name, HostRole::Balancer, spec, &lb.addresses).await?;
        Ok(LoadBalancer::new(host, lb.clone(), spec.nodes.clone(), source_ports.clone()))
    }));
    let (nodes, clients, mut balancer) = try_join!(nodes, clients, balancer)?;
    let nodes: BTreeMap<String, Node> = nodes.into_iter().collect();
    let pods = spec.pods.iter().zip(0..).map(|(pod, number)| {
        let nodes = &nodes;
        async move {
            let unknown = || ClusterError::Unknown(format!("node {}", pod.node));
            let node = nodes.get(&pod.node).ok_or_else(unknown)?;
            let site = PodSite { cluster: spec, node: &node.spec, namespace: &node.namespace, number };
            let key = (pod.namespace.clone(), pod.name.clone());
            Ok::<_, ClusterError>((key, Arc::new(Pod::build(pod, site).await?)))
        }
    });
    let pods = try_join_all(pods).await?;
    Ok(Cluster {
        spec: Mutex::new(spec.clone()),
        nodes,
        clients: clients.into_iter().collect(),
        balancer: balancer.pop(),
        next_pod: AtomicU32::new(pods.len() as u32),
        pods: Mutex::new(pods.into_iter().collect()),
        client_routes: tokio::sync::Mutex::default(),
        changing: tokio::sync::Mutex::default(),
        fabric: switch,
        source_ports,
    })
}
