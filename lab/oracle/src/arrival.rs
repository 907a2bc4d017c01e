//! How a packet arrives at the node whose proxy decides about it: from which address, and is that a pod's.

use std::net::{IpAddr, SocketAddr};

use crate::address::{self, Family};
use crate::modes::ModeSemantics;
use crate::question::{PacketSource, Question};
use crate::service::{FrontendKind, ServicePort};
use crate::settings::DetectLocalMode;
use crate::world::{Cni, Objects, World};

/// A packet at a node.
#[derive(Debug, Clone)]
pub(crate) struct Arrival<'a> {
    /// The node.
    pub(crate) node: &'a str,
    /// The source address it has there.
    pub(crate) source: IpAddr,
    /// The node itself sent it.
    pub(crate) own: bool,
    /// The client is on this node, as a pod or as the node itself.
    pub(crate) at_home: bool,
    /// As `detectLocalMode` tells it: a pod's, somebody else's, or it cannot tell.
    pub(crate) pod: Option<bool>,
}

/// A packet that is a service port's business: all that the rules after this look at.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    /// Where it is sent to.
    pub(crate) to: SocketAddr,
    /// Whose that is.
    pub(crate) port: &'a ServicePort,
    /// By which kind of address.
    pub(crate) kind: FrontendKind,
    /// Where and how it arrives.
    pub(crate) arrival: Arrival<'a>,
    /// What the mode there does in a way of its own.
    pub(crate) semantics: ModeSemantics,
}

impl Arrival<'_> {
    /// A pod or the node itself: who external policies are not for.
    pub(crate) fn is_internal(&self) -> bool {
        self.own || self.pod == Some(true)
    }
}

/// The node that a place is on, or whose packets enter the cluster there.
pub(crate) fn home<'a>(world: &'a World, from: &'a PacketSource) -> Option<&'a str> {
    match from {
        PacketSource::Pod(name) => world.pod(name).map(|pod| pod.node.as_str()),
        PacketSource::Node(node) | PacketSource::Loopback(node) => Some(node),
        PacketSource::Outside { enters, .. } | PacketSource::LoadBalancer { enters } => Some(enters),
    }
}

/// Whether a place is a node's own network: the node, or a pod on the host network.
pub(crate) fn is_node(world: &World, from: &PacketSource) -> bool {
    match from {
        PacketSource::Node(_) | PacketSource::Loopback(_) => true,
        PacketSource::Pod(name) => world.pod(name).is_some_and(|pod| pod.host_network),
        PacketSource::Outside { .. } | PacketSource::LoadBalancer { .. } => false,
    }
}

/// The packet at `node`.
pub(crate) fn at<'a>(
    objects: &Objects,
    world: &World,
    question: &Question,
    node: &'a str,
    source: IpAddr,
) -> Arrival<'a> {
    let inside = !matches!(question.from, PacketSource::Outside { .. } | PacketSource::LoadBalancer { .. });
    let at_home = inside && home(world, &question.from) == Some(node);
    let own = at_home && is_node(world, &question.from);
    // A pod's packets come in by its own interface, others' by the network's; the node's own come in by none.
    let interface = match (at_home, own) {
        (_, true) => None,
        (true, false) => Some(pod_interface(world, &question.from)),
        // An overlay's name is as little a pod's as this one.
        (false, false) => Some(world.incoming.others.as_deref().unwrap_or("eth0")),
    };
    Arrival { node, source, own, at_home, pod: detect(objects, world, node, source, interface) }
}

/// The interface by which a pod's packets come in to its node.
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

/// `None`: there is nothing to tell pods by, in this family.
fn detect(objects: &Objects, world: &World, node: &str, source: IpAddr, interface: Option<&str>) -> Option<bool> {
    let family = Family::of(source);
    match &world.proxy.detect_local {
        DetectLocalMode::Off => None,
        DetectLocalMode::ClusterCidr(ranges) => {
            let range = ranges.iter().find(|range| Family::of_range(**range) == family)?;
            Some(range.contains(&source))
        }
        DetectLocalMode::NodeCidr => {
            let spec = objects.node(node)?.spec.as_ref()?;
            let texts = spec.pod_cidrs.as_deref().filter(|texts| !texts.is_empty());
            let texts = texts.unwrap_or(spec.pod_cidr.as_slice());
            let mut ranges = texts.iter().filter_map(|text| address::parse_range(text));
            let range = ranges.find(|range| Family::of_range(*range) == family)?;
            Some(range.contains(&source))
        }
        DetectLocalMode::BridgeInterface(name) => Some(interface == Some(name.as_str())),
        DetectLocalMode::InterfaceNamePrefix(prefix) => {
            Some(interface.is_some_and(|interface| interface.starts_with(prefix.as_str())))
        }
    }
}
