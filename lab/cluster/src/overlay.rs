//! A VXLAN overlay as flannel builds it (github.com/flannel-io/flannel, Documentation/backends.md).

use std::net::IpAddr;

use ipnet::IpNet;
use svclab_netns::links::{NextHop, Route, Vxlan};
use svclab_netns::mac::{self, LinkEnd, Mac};
use svclab_netns::namespace::Namespace;
use svclab_spec::{ClusterSpec, NodeSpec};

use super::ClusterError;

/// The overlay's MTU: 1500 minus outer headers of at most 70 bytes (IPv6).
pub(super) const MTU: u32 = 1430;
const NAME: &str = "flannel.1";
const INDEX: u32 = 12;
/// flannel's VNI, and Linux' default port.
const VNI: u32 = 1;
const PORT: u16 = 8472;

fn mac(own: &[IpAddr]) -> Option<Mac> {
    own.first().map(|first| mac::of(*first, LinkEnd::Host))
}

pub(super) async fn build(spec: &ClusterSpec, node: &NodeSpec, namespace: &Namespace) -> Result<(), ClusterError> {
    let failed = || ClusterError::kernel(format!("overlay of node {}", node.name));
    let own = spec.overlay_addresses(node);
    let (Some(address), Some(local)) = (mac(&own), node.addresses.first()) else { return Ok(()) };
    let links = namespace.links();
    let device = Vxlan { name: NAME, index: INDEX, mac: address, vni: VNI, port: PORT, local: *local, mtu: MTU };
    links.add_vxlan(&device).await.map_err(failed())?;
    for own in &own {
        links.add_address(INDEX, IpNet::from(*own), false).await.map_err(failed())?;
    }
    for other in spec.nodes.iter().filter(|other| other.name != node.name) {
        let ends = spec.overlay_addresses(other);
        let (Some(mac), Some(host)) = (mac(&ends), other.addresses.first()) else { continue };
        links.add_tunnel(INDEX, mac, *host).await.map_err(failed())?;
        for (range, end) in other.pod_cidrs.iter().zip(ends) {
            links.add_neighbour(INDEX, end, mac).await.map_err(failed())?;
            let route = Route::new(*range, NextHop::Gateway(end, INDEX));
            links.set_route(&route).await.map_err(failed())?;
        }
    }
    Ok(())
}
