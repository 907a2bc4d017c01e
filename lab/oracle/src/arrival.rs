//! The packet as the deciding node receives it.

use std::net::{IpAddr, SocketAddr};

use crate::address::Family;
use crate::modes::ModeSemantics;
use crate::question::{PacketSource, Question};
use crate::service::{FrontendKind, ServicePort};
use crate::settings::DetectLocalMode;
use crate::world::{Cni, Objects, World};

#[derive(Debug, Clone)]
pub(crate) struct Arrival<'a> {
    pub(crate) node: &'a str,
    pub(crate) source: IpAddr,
    pub(crate) by_node: bool,
    /// Whether the node or one of its pods sent the packet.
    pub(crate) from_this_node: bool,
    /// Whether `detectLocalMode` recognizes the source as a pod; `None` if it cannot tell.
    pub(crate) pod: Option<bool>,
}

/// A packet to a service port, at the deciding node.
#[derive(Debug, Clone)]
pub(crate) struct ServicePacket<'a> {
    pub(crate) to: SocketAddr,
    pub(crate) port: &'a ServicePort,
    pub(crate) kind: FrontendKind,
    pub(crate) arrival: Arrival<'a>,
    pub(crate) semantics: ModeSemantics,
}

impl Arrival<'_> {
    /// Whether external traffic policies do not apply to the packet.
    pub(crate) fn is_internal(&self) -> bool {
        self.by_node || self.pod == Some(true)
    }
}

/// For a source outside, returns the node where its packets enter.
pub(crate) fn node_of<'a>(world: &'a World, from: &'a PacketSource) -> Option<&'a str> {
    match from {
        PacketSource::Pod(name) => world.pod(name).map(|pod| pod.node.as_str()),
        PacketSource::Node(node) | PacketSource::Loopback(node) => Some(node),
        PacketSource::Outside { enters, .. } | PacketSource::LoadBalancer { enters } => Some(enters),
    }
}

pub(crate) fn is_on_node_network(world: &World, from: &PacketSource) -> bool {
    match from {
        PacketSource::Node(_) | PacketSource::Loopback(_) => true,
        PacketSource::Pod(name) => world.pod(name).is_some_and(|pod| pod.host_network),
        PacketSource::Outside { .. } | PacketSource::LoadBalancer { .. } => false,
    }
}

pub(crate) fn of_question<'a>(
    objects: &Objects,
    world: &World,
    question: &Question,
    node: &'a str,
    source: IpAddr,
) -> Arrival<'a> {
    let inside = !matches!(question.from, PacketSource::Outside { .. } | PacketSource::LoadBalancer { .. });
    let from_this_node = inside && node_of(world, &question.from) == Some(node);
    let by_node = from_this_node && is_on_node_network(world, &question.from);
    // Packets of the node's pods enter by the pod's interface, all others by the node's network interface.
    let interface = match (from_this_node, by_node) {
        (_, true) => None,
        (true, false) => Some(pod_interface(world, &question.from)),
        // Also stands for an overlay's interface: neither name has a pod prefix.
        (false, false) => Some(world.incoming.others.as_deref().unwrap_or("eth0")),
    };
    Arrival { node, source, by_node, from_this_node, pod: detect(objects, world, node, source, interface) }
}

fn pod_interface<'a>(world: &'a World, from: &PacketSource) -> &'a str {
    let named = match from {
        PacketSource::Pod(name) => world.incoming.pods.get(name),
        _ => None,
    };
    named.map_or_else(
        || match world.cni {
            Cni::Bridge => "cni0",
            Cni::PointToPoint | Cni::Ptp => "veth",
        },
        String::as_str,
    )
}

/// Whether the source is a pod; `None` without a range of this family.
fn detect(objects: &Objects, world: &World, node: &str, source: IpAddr, interface: Option<&str>) -> Option<bool> {
    let family = Family::of(source);
    match &world.proxy.detect_local {
        DetectLocalMode::Off => None,
        DetectLocalMode::ClusterCidr(ranges) => {
            let range = ranges.iter().find(|range| Family::of_range(**range) == family)?;
            Some(range.contains(&source))
        }
        DetectLocalMode::NodeCidr => {
            let mut ranges = objects.pod_ranges(node).into_iter();
            let range = ranges.find(|range| Family::of_range(*range) == family)?;
            Some(range.contains(&source))
        }
        DetectLocalMode::BridgeInterface(name) => Some(interface == Some(name.as_str())),
        DetectLocalMode::InterfaceNamePrefix(prefix) => {
            Some(interface.is_some_and(|interface| interface.starts_with(prefix.as_str())))
        }
    }
}
