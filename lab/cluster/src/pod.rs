use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use svclab_netns::links::{NextHop, Route, VethEnd};
use svclab_netns::mac::{self, LinkEnd};
use svclab_netns::namespace::{Isolation, Namespace};
use svclab_spec::{ClusterSpec, Cni, NodeSpec, PodSpec};
use tokio::sync::Mutex;

use super::ClusterError;
use super::host::{self, CNI0, ETH0, HostRole};
use super::overlay;
use super::validate::{gateway, range_for};
use crate::traffic::servers::{EchoServers, ServerIdentity};

/// Index of the node's end of the first link.
const FIRST_LINK: u32 = 1000;

pub(super) struct Pod {
    pub(super) spec: PodSpec,
    pub(super) namespace: Arc<Namespace>,
    /// Where servers listen; with host network, all addresses of the node.
    listen: Vec<IpAddr>,
    /// Node's end of the link; `None` with host network.
    link: Option<u32>,
    servers: Mutex<Option<EchoServers>>,
}

pub(super) struct PodSite<'a> {
    pub(super) cluster: &'a ClusterSpec,
    pub(super) node: &'a NodeSpec,
    pub(super) namespace: &'a Arc<Namespace>,
    /// The pod's number, unique in the cluster.
    pub(super) number: u32,
}

impl Pod {
    pub(super) async fn build(spec: &PodSpec, site: PodSite<'_>) -> Result<Pod, ClusterError> {
        let name = format!("pod/{}/{}", spec.namespace, spec.name);
        let mut listen = spec.addresses.clone();
        for address in &spec.addresses {
            listen.push(match address {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let (namespace, link) = if spec.host_network {
            listen.extend(&site.node.extra_addresses);
            (Arc::clone(site.namespace), None)
        } else {
            let namespace = Namespace::create(&name, Isolation::Network)
                .await
                .map_err(ClusterError::kernel(format!("making {name}")))?;
            let link = connect_to_node(spec, &namespace, &site).await?;
            (Arc::new(namespace), Some(link))
        };
        let pod = Pod { spec: spec.clone(), namespace, listen, link, servers: Mutex::new(None) };
        pod.serve(true).await?;
        Ok(pod)
    }

    pub(super) async fn serve(&self, serving: bool) -> Result<(), ClusterError> {
        let mut servers = self.servers.lock().await;
        if !serving {
            if let Some(running) = servers.take() {
                running.stop().await;
            }
        } else if servers.is_none() {
            let server = format!("{}/{}", self.spec.namespace, self.spec.name);
            let identity = ServerIdentity { server, node: self.spec.node.clone() };
            let (listen, ports) = (self.listen.clone(), self.spec.ports.clone());
            let started = EchoServers::start(&self.namespace, &identity, listen, ports, self.spec.host_network).await;
            let started = started.map_err(ClusterError::kernel(format!("pod {}", identity.server)))?;
            *servers = Some(started);
        }
        Ok(())
    }

    /// Removes the link first, so that no client gets a reset.
    pub(super) async fn unplug(&self, node: &Namespace) -> Result<(), ClusterError> {
        if let Some(link) = self.link {
            let attempted = format!("unplugging pod {}/{}", self.spec.namespace, self.spec.name);
            node.links().remove(link).await.map_err(ClusterError::kernel(attempted))?;
        }
        self.serve(false).await
    }
}

/// Connects a pod; returns the index of the node's interface.
async fn connect_to_node(pod: &PodSpec, namespace: &Namespace, site: &PodSite<'_>) -> Result<u32, ClusterError> {
    let failed = || ClusterError::kernel(format!("wiring {}", namespace.name()));
    let ipv6 = pod.addresses.iter().any(IpAddr::is_ipv6);
    host::prepare(namespace, HostRole::Endpoint, ipv6).await?;
    let Some(first) = pod.addresses.first() else {
        return Err(ClusterError::invalid(namespace.name(), "has no address"));
    };
    let name = format!("veth{}", site.number);
    let near = VethEnd { name: &name, index: FIRST_LINK + site.number, mac: mac::of(*first, LinkEnd::Peer) };
    let far = VethEnd { name: "eth0", index: ETH0, mac: mac::of(*first, LinkEnd::Host) };
    let controller = (site.cluster.cni == Cni::Bridge).then_some(CNI0);
    let node = site.namespace.links();
    let done = site.namespace.add_veth(&near, controller, &far, namespace).await;
    done.map_err(failed())?;
    if site.cluster.overlay {
        node.set_mtu(near.index, overlay::MTU).await.map_err(failed())?;
        namespace.links().set_mtu(ETH0, overlay::MTU).await.map_err(failed())?;
    }
    if controller.is_some() {
        node.set_hairpin(near.index, true).await.map_err(failed())?;
    }
    for address in &pod.addresses {
        match site.cluster.cni {
            Cni::Bridge => add_bridge_address(*address, namespace, site).await?,
            Cni::PointToPoint => {
                let gateway = host::link_local_gateway(*address);
                add_routed_address((*address, gateway), namespace, &near, &far, site).await?;
            }
            Cni::Ptp => {
                let range = range_for(&site.node.pod_cidrs, *address);
                let Some(gateway) = range.and_then(gateway) else {
                    return Err(ClusterError::invalid(namespace.name(), format!("{address} has no range")));
                };
                node.add_address(near.index, gateway.into(), false).await.map_err(failed())?;
                add_routed_address((*address, gateway), namespace, &near, &far, site).await?;
            }
        }
    }
    Ok(near.index)
}

/// Sets the pod's address, and the bridge as its gateway.
async fn add_bridge_address(address: IpAddr, namespace: &Namespace, site: &PodSite<'_>) -> Result<(), ClusterError> {
    let failed = || ClusterError::kernel(format!("{} on cni0", namespace.name()));
    let range = range_for(&site.node.pod_cidrs, address);
    let Some((range, gateway)) = range.and_then(|range| Some((range, gateway(range)?))) else {
        return Err(ClusterError::invalid(namespace.name(), format!("{address} has no range")));
    };
    let links = namespace.links();
    let own = IpNet::new_assert(address, range.prefix_len());
    links.add_address(ETH0, own, false).await.map_err(failed())?;
    let default = Route::new(host::everywhere(address), NextHop::Gateway(gateway, ETH0));
    links.set_route(&default).await.map_err(failed())
}

/// Sets a single address, the gateway, a host route on the node, and permanent neighbour entries.
async fn add_routed_address(
    (address, gateway): (IpAddr, IpAddr),
    namespace: &Namespace,
    near: &VethEnd<'_>,
    far: &VethEnd<'_>,
    site: &PodSite<'_>,
) -> Result<(), ClusterError> {
    let failed = || ClusterError::kernel(format!("{} on its own link", namespace.name()));
    let single = IpNet::from(address);
    let links = namespace.links();
    links.add_address(ETH0, single, false).await.map_err(failed())?;
    let done = links.add_neighbour(ETH0, gateway, near.mac).await;
    done.map_err(failed())?;
    let default = Route::new(host::everywhere(address), NextHop::Gateway(gateway, ETH0));
    links.set_route(&default).await.map_err(failed())?;
    let node = site.namespace.links();
    let done = node.add_neighbour(near.index, address, far.mac).await;
    done.map_err(failed())?;
    let route = Route::new(single, NextHop::Device(near.index));
    node.set_route(&route).await.map_err(failed())
}
