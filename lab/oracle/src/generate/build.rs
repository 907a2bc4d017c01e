//! Builds clusters from recipes, with the lab's address plan (`docs/scenarios.md`).

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde_json::json;

use super::recipe::{DeclaredAddresses, DetectRecipe, Families, NodePortsRecipe, NodeRecipe, Recipe};
use super::{services, slices};
use crate::address::{self, Family};
use crate::cluster::ClusterModel;
use crate::settings::{DetectLocalMode, NodePortAddress, ProxySettings};
use crate::world::{Client, Cni, IncomingInterfaces, NodeMachine, Objects, PodMachine, PodName, World};

/// Returns the recipe's families, the primary one first.
pub(super) fn families(recipe: &Recipe) -> &'static [Family] {
    match recipe.families {
        Families::V4 => &[Family::V4],
        Families::V6 => &[Family::V6],
        Families::Dual => &Family::ALL,
    }
}

pub(super) fn address(text: [String; 2], family: Family) -> Option<IpAddr> {
    let [v4, v6] = text;
    address::parse(if family == Family::V4 { &v4 } else { &v6 })
}

pub(super) fn on_segment(last: usize, family: Family) -> Option<IpAddr> {
    address([format!("172.18.0.{last}"), format!("fd00:172:18::{last:x}")], family)
}

fn on_second(last: usize, family: Family) -> Option<IpAddr> {
    address([format!("172.19.0.{last}"), format!("fd00:172:19::{last:x}")], family)
}

fn range(text: [&str; 2], family: Family) -> Option<IpNet> {
    address::parse_range(text[usize::from(family == Family::V6)])
}

pub(super) fn segment(family: Family) -> Option<IpNet> {
    range(["172.18.0.0/24", "fd00:172:18::/64"], family)
}

pub(super) fn pod_range(family: Family) -> Option<IpNet> {
    range(["10.244.0.0/16", "fd00:10:244::/56"], family)
}

fn service_range(family: Family) -> Option<IpNet> {
    range(["10.96.0.0/16", "fd00:10:96::/112"], family)
}

fn in_pod_range(node: usize, last: usize, family: Family) -> Option<IpAddr> {
    address([format!("10.244.{}.{last}", node + 1), format!("fd00:10:244:{:x}::{last:x}", node + 1)], family)
}

impl Recipe {
    pub fn build(&self) -> ClusterModel {
        let families = families(self);
        let nodes: Vec<NodeMachine> = (0..self.nodes.len()).map(|index| self.node_place(index, families)).collect();
        let nodes_objects = self.nodes.iter().zip(&nodes).enumerate();
        let objects: Vec<Node> =
            nodes_objects.filter_map(|(index, (recipe, place))| node_object(recipe, place, index, families)).collect();
        let clients = (1..=2).map(|number| Client {
            name: format!("client-{number}"),
            addresses: families.iter().filter_map(|family| on_segment(99 + number, *family)).collect(),
        });
        let world = World {
            pods: self.pod_places(&nodes, families),
            clients: clients.collect(),
            load_balancer: families.iter().filter_map(|family| on_segment(200, *family)).collect(),
            cni: match (self.point_to_point, self.link_gateways) {
                (false, _) => Cni::Bridge,
                (true, false) => Cni::PointToPoint,
                (true, true) => Cni::Ptp,
            },
            reverse_path: self.reverse_path,
            incoming: IncomingInterfaces::default(),
            proxy: self.settings(families),
            nodes,
        };
        let service_cidrs = self.service_cidrs.then(|| service_cidr(families)).flatten().into_iter().collect();
        let mut objects = Objects { nodes: objects, service_cidrs, ..Objects::default() };
        for index in 0..self.services.len() {
            objects.services.extend(services::build(self, index));
            objects.slices.extend(slices::build(self, index, &world));
        }
        ClusterModel { objects, world }
    }

    fn node_place(&self, index: usize, families: &[Family]) -> NodeMachine {
        let second = self.nodes.get(index).is_some_and(|node| node.second_address);
        let first = families.iter().filter_map(|family| on_segment(2 + index, *family));
        let more = families.iter().filter(|_| second).filter_map(|family| on_segment(50 + index, *family));
        let gateways = families.iter().filter(|_| !self.point_to_point || self.link_gateways);
        NodeMachine {
            name: node_name(index),
            addresses: first.chain(more).collect(),
            gateways: gateways.filter_map(|family| in_pod_range(index, 1, *family)).collect(),
            overlay: families
                .iter()
                .filter(|_| self.overlay)
                .filter_map(|family| in_pod_range(index, 0, *family))
                .collect(),
            second: families
                .iter()
                .filter(|_| self.second && !self.overlay)
                .filter_map(|family| on_second(2 + index, *family))
                .collect(),
        }
    }

    /// Returns the pods of the recipe, then the calling pods.
    fn pod_places(&self, nodes: &[NodeMachine], families: &[Family]) -> Vec<PodMachine> {
        let mut places: Vec<PodMachine> = Vec::new();
        let callers = (0..nodes.len()).map(|node| (node, false, format!("caller-{}", letter(node))));
        let own = self.pods.iter().enumerate().map(|(index, pod)| {
            (usize::from(pod.node) % nodes.len().max(1), pod.host_network, format!("web-{}", index + 1))
        });
        for (number, (node, host, name)) in own.chain(callers).enumerate() {
            let Some(place) = nodes.get(node) else { continue };
            let host = host && !places.iter().any(|pod| pod.host_network && pod.node == place.name);
            let addresses = if host {
                families.iter().filter_map(|family| on_segment(2 + node, *family)).collect()
            } else {
                families.iter().filter_map(|family| in_pod_range(node, 10 + number, *family)).collect()
            };
            let name = PodName { namespace: "default".to_owned(), name };
            places.push(PodMachine { name, node: place.name.clone(), addresses, host_network: host });
        }
        places
    }

    fn settings(&self, families: &[Family]) -> ProxySettings {
        let ranges = |of: fn(Family) -> Option<IpNet>| families.iter().filter_map(move |family| of(*family));
        let as_ranges = |of: Vec<IpNet>| of.into_iter().map(NodePortAddress::Range).collect::<Vec<_>>();
        let node_port_addresses = match self.proxy.node_ports {
            NodePortsRecipe::Unset => Vec::new(),
            NodePortsRecipe::Word(word) => vec![word],
            NodePortsRecipe::NodeNetwork => as_ranges(ranges(segment).collect()),
            NodePortsRecipe::FirstNode => {
                as_ranges(families.iter().filter_map(|family| on_segment(2, *family)).map(IpNet::from).collect())
            }
            NodePortsRecipe::WithLoopback => {
                let loopback = |family| range(["127.0.0.0/8", "::1/128"], family);
                as_ranges(ranges(segment).chain(ranges(loopback)).collect())
            }
        };
        ProxySettings {
            detect_local: match (self.proxy.detect, self.point_to_point) {
                (DetectRecipe::ClusterCidr, _) => DetectLocalMode::ClusterCidr(ranges(pod_range).collect()),
                (DetectRecipe::NodeCidr, _) => DetectLocalMode::NodeCidr,
                (DetectRecipe::Interface, false) => DetectLocalMode::BridgeInterface("cni0".to_owned()),
                (DetectRecipe::Interface, true) => DetectLocalMode::InterfaceNamePrefix("veth".to_owned()),
                (DetectRecipe::Off, _) => DetectLocalMode::Off,
            },
            masquerade_all: self.proxy.masquerade_all,
            node_port_addresses,
            localhost_node_ports: self.proxy.localhost_node_ports,
            ..ProxySettings::default()
        }
    }
}

fn node_object(recipe: &NodeRecipe, place: &NodeMachine, index: usize, families: &[Family]) -> Option<Node> {
    let ranges = families.iter().filter_map(|family| {
        range([&format!("10.244.{}.0/24", index + 1), &format!("fd00:10:244:{:x}::/64", index + 1)], *family)
    });
    let ranges: Vec<IpNet> = ranges.collect();
    let entry = |kind: &str, address: IpAddr| json!({"type": kind, "address": address});
    let first = || families.iter().filter_map(|family| address::first_of(&place.addresses, *family));
    let of_family = |family: Family| place.addresses.iter().copied().filter(move |own| Family::of(*own) == family);
    let last = || families.iter().filter_map(|family| of_family(*family).next_back());
    let mut addresses: Vec<_> = match recipe.declared {
        DeclaredAddresses::Firsts | DeclaredAddresses::OddName => {
            first().map(|address| entry("InternalIP", address)).collect()
        }
        DeclaredAddresses::External => last().map(|address| entry("ExternalIP", address)).collect(),
        DeclaredAddresses::All => {
            let all = place.addresses.iter().map(|address| entry("InternalIP", *address));
            last().map(|address| entry("ExternalIP", address)).chain(all).collect()
        }
    };
    if recipe.declared == DeclaredAddresses::OddName {
        addresses.push(json!({"type": "Hostname", "address": "node_1"}));
    }
    let mut spec = json!({ "podCIDRs": ranges });
    if recipe.declared != DeclaredAddresses::All {
        spec["podCIDR"] = json!(ranges.first());
    }
    let labels = recipe.zone.map(|zone| json!({ super::ZONE_LABEL: zone_name(zone) })).unwrap_or_else(|| json!({}));
    serde_json::from_value(json!({
        "metadata": {"name": place.name, "labels": labels},
        "spec": spec,
        "status": {"addresses": addresses},
    }))
    .ok()
}

fn service_cidr(families: &[Family]) -> Option<ServiceCIDR> {
    let ranges: Vec<IpNet> = families.iter().filter_map(|family| service_range(*family)).collect();
    serde_json::from_value(json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ranges}})).ok()
}

pub(super) fn node_name(index: usize) -> String {
    format!("node-{}", letter(index))
}

pub(super) fn zone_name(zone: u8) -> String {
    format!("zone-{}", letter(usize::from(zone)))
}

fn letter(index: usize) -> char {
    u8::try_from(index % 26).map_or('z', |index| char::from(b'a' + index))
}
