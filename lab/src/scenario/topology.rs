//! Converts `cluster:` to nodes, networks and addresses.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_saphyr::{Location, Spanned};
use svclab_spec::nth_address;
use svclab_spec::{ClientSpec, ClusterSpec, Cni, LoadBalancerSpec, NodeSpec, ReversePath};

use super::error::Problem;
use super::file::{ClusterFamily, ClusterFile, CniFile, Ip, Net, NodeFile, Nodes, OverlayFile, ReversePathFile};
use super::values::OneOrMany;

/// The most nodes that have default addresses.
const MOST_NODES: usize = 90;
/// The first node's host number on the node network (.1 is the segment itself, as in kind).
const FIRST_NODE: u64 = 2;
const FIRST_CLIENT: u64 = 100;
const LOAD_BALANCER: u64 = 200;

/// Default ranges, IPv4 and IPv6: nodes, pods, services, load-balancer addresses (RFC 5737, RFC 3849).
const NODE_NETWORKS: [&str; 2] = ["172.18.0.0/24", "fd00:172:18::/64"];
const POD_NETWORKS: [&str; 2] = ["10.244.0.0/16", "fd00:10:244::/56"];
const SERVICE_NETWORKS: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];
const VIP_NETWORKS: [&str; 2] = ["203.0.113.0/24", "2001:db8:113::/112"];
const SECOND_NETWORKS: [&str; 2] = ["172.19.0.0/24", "fd00:172:19::/64"];
/// Prefix length of a node's pod range, IPv4 and IPv6.
const NODE_POD_PREFIX: [u8; 2] = [24, 64];

pub(super) fn build(file: &ClusterFile, problems: &mut Vec<Problem>) -> (ClusterSpec, Vec<IpNet>) {
    let mut plan = TopologyBuilder { family: file.family, problems };
    let node_network = plan.ranges(file.node_network.as_ref(), NODE_NETWORKS, "nodeNetwork");
    let cluster_cidrs = plan.ranges(file.pod_cidr.as_ref(), POD_NETWORKS, "podCIDR");
    let service_cidrs = plan.ranges(file.service_cidr.as_ref(), SERVICE_NETWORKS, "serviceCIDR");
    let nodes = plan.nodes(file, &node_network, &cluster_cidrs);
    let clients = plan.clients(file, &node_network);
    let load_balancer = file.load_balancer.then(|| LoadBalancerSpec {
        addresses: node_network.iter().filter_map(|range| nth_address(*range, LOAD_BALANCER)).collect(),
    });
    plan.no_address_twice(&nodes, &clients, load_balancer.as_ref());
    let second_network = plan.second_network(file, &node_network);
    let vip_ranges = if file.load_balancer { plan.defaults(VIP_NETWORKS) } else { Vec::new() };
    let cni = match file.cni {
        CniFile::Bridge => Cni::Bridge,
        CniFile::PointToPoint => Cni::PointToPoint,
        CniFile::Ptp => Cni::Ptp,
    };
    (
        ClusterSpec {
            cni,
            overlay: file.overlay == OverlayFile::Vxlan,
            second_network,
            reverse_path: match file.reverse_path {
                ReversePathFile::Off => ReversePath::Off,
                ReversePathFile::Strict => ReversePath::Strict,
                ReversePathFile::Loose => ReversePath::Loose,
            },
            node_network,
            service_cidrs,
            cluster_cidrs,
            nodes,
            pods: Vec::new(),
            clients,
            load_balancer,
        },
        vip_ranges,
    )
}

struct TopologyBuilder<'a> {
    family: ClusterFamily,
    problems: &'a mut Vec<Problem>,
}

impl TopologyBuilder<'_> {
    fn problem(&mut self, at: Location, message: impl Into<String>) {
        self.problems.push(Problem::new(at, message));
    }

    fn families(&self) -> &'static [usize] {
        match self.family {
            ClusterFamily::Ipv4 => &[0],
            ClusterFamily::Ipv6 => &[1],
            ClusterFamily::Dual => &[0, 1],
        }
    }

    fn defaults(&self, table: [&str; 2]) -> Vec<IpNet> {
        self.families().iter().filter_map(|index| table[*index].parse().ok()).collect()
    }

    fn second_network(&mut self, file: &ClusterFile, node_network: &[IpNet]) -> Vec<IpNet> {
        let Some(wanted) = file.second_network.as_ref().filter(|wanted| wanted.value) else { return Vec::new() };
        if file.overlay != OverlayFile::None {
            self.problem(wanted.referenced, "secondNetwork: other nodes' pods are behind the overlay already");
        }
        let ranges = self.defaults(SECOND_NETWORKS);
        let wider = node_network.iter().find(|own| {
            ranges
                .iter()
                .any(|range| range.addr().is_ipv4() == own.addr().is_ipv4() && own.prefix_len() < range.prefix_len())
        });
        if let Some(own) = wider {
            let message =
                format!("secondNetwork: has as many addresses as {NODE_NETWORKS:?}, and nodeNetwork {own} has more");
            self.problem(wanted.referenced, message);
        }
        ranges
    }

    /// Returns one range per family, by default those of `table`.
    fn ranges(&mut self, written: Option<&OneOrMany<Net>>, table: [&str; 2], key: &str) -> Vec<IpNet> {
        let Some(OneOrMany(written)) = written else { return self.defaults(table) };
        let ranges: Vec<IpNet> = written.iter().map(|net| net.value.0.trunc()).collect();
        let at = written.first().map_or(Location::UNKNOWN, |net| net.referenced);
        self.one_per_family(ranges.iter().map(IpNet::network), at, key);
        ranges
    }

    /// Checks that there is one value per cluster family, primary first.
    fn one_per_family(&mut self, values: impl Iterator<Item = IpAddr>, at: Location, key: &str) -> bool {
        let has: Vec<usize> = values.map(|address| usize::from(address.is_ipv6())).collect();
        let right = has == self.families();
        if !right {
            let wanted: Vec<&str> = self.families().iter().map(|index| ["IPv4", "IPv6"][*index]).collect();
            self.problem(at, format!("{key}: expected one of {}, in this order", wanted.join(" and one of ")));
        }
        right
    }

    fn nodes(&mut self, file: &ClusterFile, network: &[IpNet], pods: &[IpNet]) -> Vec<NodeSpec> {
        let named = |name: String| NodeFile { name, zone: None, address: None, extra_addresses: None, pod_cidr: None };
        match &file.nodes {
            None => {
                (0..2).map(|index| self.node(&named(letter(index)), index, Location::UNKNOWN, network, pods)).collect()
            }
            Some(Spanned { value: Nodes::Count(count), referenced, .. }) => {
                let count = usize::try_from(*count).unwrap_or(usize::MAX);
                if count == 0 || count > 26 {
                    self.problem(*referenced, "expected 1 to 26 nodes; more of them need names of their own");
                    return Vec::new();
                }
                (0..count).map(|index| self.node(&named(letter(index)), index, *referenced, network, pods)).collect()
            }
            Some(Spanned { value: Nodes::Listed(listed), referenced, .. }) => {
                if listed.is_empty() || listed.len() > MOST_NODES {
                    self.problem(*referenced, format!("expected 1 to {MOST_NODES} nodes"));
                }
                let nodes = listed.iter().enumerate().take(MOST_NODES);
                nodes.map(|(index, node)| self.node(&node.value, index, node.referenced, network, pods)).collect()
            }
        }
    }

    fn node(&mut self, file: &NodeFile, index: usize, at: Location, network: &[IpNet], pods: &[IpNet]) -> NodeSpec {
        self.check_name(&file.name, at);
        let number = index as u64;
        let addresses = self.addresses(file.address.as_ref(), network, FIRST_NODE + number, at);
        let extra_addresses: Vec<IpAddr> =
            file.extra_addresses.iter().flat_map(|list| &list.0).map(|ip| ip.value.0).collect();
        for extra in &extra_addresses {
            if !network.iter().any(|range| range.contains(extra)) {
                self.problem(at, format!("extraAddresses: {extra} is not on the node network"));
            }
        }
        let pod_cidrs = match &file.pod_cidr {
            Some(OneOrMany(written)) => {
                let ranges: Vec<IpNet> = written.iter().map(|net| net.value.0.trunc()).collect();
                self.one_per_family(ranges.iter().map(IpNet::network), at, "podCIDR");
                if let Some(stray) = ranges.iter().find(|range| !pods.iter().any(|all| all.contains(*range))) {
                    self.problem(at, format!("podCIDR: {stray} is not within the cluster's {pods:?}"));
                }
                ranges
            }
            None => self
                .families()
                .iter()
                .zip(pods)
                .filter_map(|(family, all)| self.slice(*family, *all, index + 1, at))
                .collect(),
        };
        NodeSpec { name: file.name.clone(), zone: file.zone.clone(), addresses, extra_addresses, pod_cidrs }
    }

    fn slice(&mut self, family: usize, all: IpNet, index: usize, at: Location) -> Option<IpNet> {
        let found =
            all.subnets(NODE_POD_PREFIX[family].max(all.prefix_len())).ok().and_then(|mut subnets| subnets.nth(index));
        if found.is_none() {
            let problem = format!(
                "podCIDR: {all} has no room for another node's /{}; give the nodes their own",
                NODE_POD_PREFIX[family]
            );
            self.problem(at, problem);
        }
        found
    }

    fn addresses(
        &mut self,
        written: Option<&OneOrMany<Ip>>,
        network: &[IpNet],
        number: u64,
        at: Location,
    ) -> Vec<IpAddr> {
        let Some(OneOrMany(written)) = written else {
            return network.iter().filter_map(|range| nth_address(*range, number)).collect();
        };
        let addresses: Vec<IpAddr> = written.iter().map(|ip| ip.value.0).collect();
        if self.one_per_family(addresses.iter().copied(), at, "address") {
            for (address, range) in addresses.iter().zip(network) {
                if !range.contains(address) {
                    self.problem(at, format!("address: {address} is not on the node network {range}"));
                }
            }
        }
        addresses
    }

    fn clients(&mut self, file: &ClusterFile, network: &[IpNet]) -> Vec<ClientSpec> {
        let mut clients = Vec::new();
        for (index, client) in file.clients.iter().enumerate() {
            let (at, number) = (client.referenced, FIRST_CLIENT + index as u64);
            self.check_name(&client.value.name, at);
            let addresses = self.addresses(client.value.address.as_ref(), network, number, at);
            clients.push(ClientSpec { name: client.value.name.clone(), addresses });
        }
        clients
    }

    /// Checks that a name is an RFC 1123 subdomain, as Kubernetes requires.
    fn check_name(&mut self, name: &str, at: Location) {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let inner = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.');
        if !inner || !edge(name.chars().next()) || !edge(name.chars().last()) || name.len() > 63 {
            self.problem(at, format!("{name:?}: expected a name of lower-case letters, digits and '-'"));
        }
    }

    fn no_address_twice(
        &mut self,
        nodes: &[NodeSpec],
        clients: &[ClientSpec],
        load_balancer: Option<&LoadBalancerSpec>,
    ) {
        let mut seen: Vec<(IpAddr, &str)> = Vec::new();
        let of_nodes = nodes
            .iter()
            .flat_map(|node| node.addresses.iter().chain(&node.extra_addresses).map(|ip| (*ip, node.name.as_str())));
        let of_clients =
            clients.iter().flat_map(|client| client.addresses.iter().map(|ip| (*ip, client.name.as_str())));
        let of_balancer =
            load_balancer.into_iter().flat_map(|lb| lb.addresses.iter().map(|ip| (*ip, "the load balancer")));
        for (address, owner) in of_nodes.chain(of_clients).chain(of_balancer) {
            if let Some((_, other)) = seen.iter().find(|(taken, _)| *taken == address) {
                self.problem(Location::UNKNOWN, format!("cluster: {other} and {owner} both have address {address}"));
            }
            seen.push((address, owner));
        }
        for (index, node) in nodes.iter().enumerate() {
            if nodes[..index].iter().any(|other| other.name == node.name) {
                self.problem(Location::UNKNOWN, format!("cluster.nodes: two nodes are named {}", node.name));
            }
        }
    }
}

fn letter(index: usize) -> String {
    let letter = u8::try_from(index).ok().and_then(|index| b'a'.checked_add(index)).unwrap_or(b'z');
    format!("node-{}", char::from(letter))
}
