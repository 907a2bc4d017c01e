use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde_json::{Value, json};
use svclab_oracle::{ClusterModel, Cni, DetectLocalMode, NodeMachine, PodMachine, ReversePath, World};
use svclab_sim::protocol::{Family, Protocol};
use svclab_snapshot::network::{Address, Forwarding, Hop, Link, Neighbour, Network, Route};
use svclab_snapshot::{ListeningSocket, Objects, Snapshot};

use crate::node;
use crate::proxies::Dump;

/// `RT_TABLE_MAIN`.
const MAIN: u32 = 254;
const TAKEN: &str = "2030-01-01T00:00:00Z";

pub fn snapshot(cluster: &ClusterModel, node: &str, dump: &Dump) -> Snapshot {
    let world = &cluster.world;
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let place = world.nodes.iter().find(|place| place.name == node);
    let network = place.map(|place| Wiring { cluster, place, dump }.network());
    Snapshot {
        host: node.to_owned(),
        taken: TAKEN.to_owned(),
        kernel: "6.12.0".to_owned(),
        nft_v4: some(&dump.v4),
        nft_v6: some(&dump.v6),
        nft: some(&dump.nft),
        sets: some(&dump.sets),
        servers: some(&dump.servers),
        network,
        sockets: Some(sockets(dump)),
        programs: Some(Vec::new()),
        sysctls: sysctls(world),
        objects: Some(Objects {
            services: cluster.objects.services.clone(),
            slices: cluster.objects.slices.clone(),
            nodes: cluster.objects.nodes.clone(),
            service_cidrs: cluster.objects.service_cidrs.clone(),
        }),
        node_name: Some(node.to_owned()),
        proxy_config: Some(configuration(world).to_string()),
        ..Snapshot::default()
    }
}

fn sockets(dump: &Dump) -> Vec<ListeningSocket> {
    let sockets = dump.relays.iter().map(|((family, protocol, port), relay)| {
        let everywhere: IpAddr = match family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let protocol = if *protocol == Protocol::UDP { "udp" } else { "tcp" };
        ListeningSocket { protocol: protocol.to_owned(), address: relay.address.unwrap_or(everywhere), port: *port }
    });
    sockets.collect()
}

fn sysctls(world: &World) -> BTreeMap<String, String> {
    let filter = match world.reverse_path {
        ReversePath::Off => "0",
        ReversePath::Loose => "2",
    };
    let localnet = if svcproxy::plan::node::routes_loopback(&node::config(world, "")) { "1" } else { "0" };
    let all = [
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv6.conf.all.forwarding", "1"),
        ("net.ipv4.conf.all.rp_filter", filter),
        ("net.ipv4.conf.all.route_localnet", localnet),
        ("net.bridge.bridge-nf-call-iptables", "1"),
        ("net.bridge.bridge-nf-call-ip6tables", "1"),
        ("net.ipv4.vs.conntrack", "1"),
        ("net.ipv4.vs.expire_nodest_conn", "1"),
        ("net.ipv4.vs.expire_quiescent_template", "1"),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn configuration(world: &World) -> Value {
    let settings = &world.proxy;
    let ranges = |ranges: &[IpNet]| ranges.iter().map(IpNet::to_string).collect::<Vec<_>>();
    let (mode, cidr, inner) = match &settings.detect_local {
        DetectLocalMode::Off => ("ClusterCIDR", String::new(), json!({})),
        DetectLocalMode::ClusterCidr(all) => ("ClusterCIDR", ranges(all).join(","), json!({})),
        DetectLocalMode::NodeCidr => ("NodeCIDR", String::new(), json!({})),
        DetectLocalMode::BridgeInterface(name) => {
            ("BridgeInterface", String::new(), json!({ "bridgeInterface": name }))
        }
        DetectLocalMode::InterfaceNamePrefix(prefix) => {
            ("InterfaceNamePrefix", String::new(), json!({ "interfaceNamePrefix": prefix }))
        }
    };
    let addresses = settings.node_port_addresses.iter().map(ToString::to_string);
    let localhost = settings.localhost_node_ports;
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": settings.mode.name(),
        "detectLocalMode": mode,
        "clusterCIDR": cidr,
        "detectLocal": inner,
        "nodePortAddresses": addresses.collect::<Vec<_>>(),
        "masqueradeSource": settings.chosen_source().to_string(),
        "noMasqueradeCIDRs": settings.exempt_ranges(),
        "iptables": { "masqueradeAll": settings.masquerade_all, "localhostNodePorts": localhost },
        "nftables": { "masqueradeAll": settings.masquerade_all },
        "ipvs": { "scheduler": settings.scheduler.name() },
    })
}

struct Wiring<'a> {
    cluster: &'a ClusterModel,
    place: &'a NodeMachine,
    dump: &'a Dump,
}

fn shared(address: IpAddr) -> IpNet {
    IpNet::new_assert(address, if address.is_ipv4() { 24 } else { 64 })
}

fn everything(like: IpAddr) -> IpNet {
    if like.is_ipv4() { Ipv4Net::default().into() } else { Ipv6Net::default().into() }
}

/// Returns a router address that no machine has.
fn router(own: IpAddr) -> IpAddr {
    match shared(own).network() {
        IpAddr::V4(network) => Ipv4Addr::from_bits(network.to_bits() | 254).into(),
        IpAddr::V6(network) => Ipv6Addr::from_bits(network.to_bits() | 0xfffe).into(),
    }
}

fn mac(number: usize) -> String {
    format!("02:00:00:00:{:02x}:{:02x}", number / 256, number % 256)
}

impl Wiring<'_> {
    fn network(&self) -> Network {
        let mut network = Network::default();
        let mut link = |name: &str, kind: Option<&str>, controller: Option<&str>| {
            network.links.push(Link {
                index: u32::try_from(network.links.len() + 1).unwrap_or(0),
                name: name.to_owned(),
                kind: kind.map(str::to_owned),
                up: true,
                carrier: Some(true),
                controller: controller.map(str::to_owned),
                hairpin: controller.is_some(),
                ..Link::default()
            });
        };
        let bridged = self.cluster.world.cni == Cni::Bridge;
        link("lo", None, None);
        link("eth0", None, None);
        if !self.place.overlay.is_empty() {
            link("flannel.1", Some("vxlan"), None);
        }
        if !self.place.second.is_empty() {
            link("eth1", None, None);
        }
        if !self.dump.addresses.is_empty() {
            link("kube-ipvs0", Some("dummy"), None);
        }
        if bridged {
            link("cni0", Some("bridge"), None);
        }
        for index in 0..self.pods().count() {
            link(&veth(index), Some("veth"), bridged.then_some("cni0"));
        }
        self.nodes_network(&mut network);
        self.service_addresses(&mut network);
        self.pods_networks(&mut network);
        network
    }

    fn pods(&self) -> impl Iterator<Item = &PodMachine> {
        let pods = self.cluster.world.pods.iter();
        pods.filter(|pod| pod.node == self.place.name && !pod.host_network)
    }

    fn nodes_network(&self, network: &mut Network) {
        let mut first = BTreeMap::new();
        for own in &self.place.addresses {
            first.entry(own.is_ipv4()).or_insert(*own);
        }
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = self.place.addresses.iter().partition(|own| own.is_ipv4());
        // The kernel lists the newest IPv6 address first.
        for own in v4.into_iter().chain(v6.into_iter().rev()) {
            let further = first.get(&own.is_ipv4()) != Some(&own);
            address(network, "eth0", shared(own), further);
        }
        for own in first.into_values() {
            route(network, shared(own).trunc(), "eth0", None, own.is_ipv4().then_some(own));
            route(network, everything(own), "eth0", Some(router(own)), Some(own));
        }
        for own in &self.place.second {
            address(network, "eth1", shared(*own), false);
            route(network, shared(*own).trunc(), "eth1", None, own.is_ipv4().then_some(*own));
        }
        for own in &self.place.overlay {
            address(network, "flannel.1", IpNet::from(*own), false);
        }
        for other in self.cluster.world.nodes.iter().filter(|other| other.name != self.place.name) {
            self.towards(network, other);
        }
    }

    fn towards(&self, network: &mut Network, other: &NodeMachine) {
        for range in self.cluster.objects.pod_ranges(&other.name) {
            let like = |addresses: &[IpAddr]| {
                addresses.iter().copied().find(|address| address.is_ipv4() == range.addr().is_ipv4())
            };
            let (Some(own), Some(via)) = (like(&self.place.addresses), like(&other.addresses)) else { continue };
            match (like(&other.overlay), like(&other.second)) {
                (Some(end), _) => {
                    route(network, range.trunc(), "flannel.1", Some(end), None);
                    route(network, IpNet::from(end), "flannel.1", None, None);
                }
                (None, Some(second)) => route(network, range.trunc(), "eth1", Some(second), None),
                (None, None) => route(network, range.trunc(), "eth0", Some(via), Some(own)),
            }
        }
    }

    fn service_addresses(&self, network: &mut Network) {
        for line in self.dump.addresses.lines() {
            let Ok(own) = line.parse::<svclab_sim::host::Address>() else { continue };
            address(network, "kube-ipvs0", IpNet::new_assert(own.ip, own.prefix), own.secondary);
        }
    }

    fn pods_networks(&self, network: &mut Network) {
        let bridged = self.cluster.world.cni == Cni::Bridge;
        if bridged {
            for own in &self.place.gateways {
                address(network, "cni0", shared(*own), false);
                route(network, shared(*own).trunc(), "cni0", None, own.is_ipv4().then_some(*own));
            }
        }
        for (index, pod) in self.pods().enumerate() {
            let link = veth(index);
            for own in &pod.addresses {
                let interface = if bridged { "cni0" } else { &link };
                network.neighbours.push(Neighbour {
                    interface: interface.to_owned(),
                    address: *own,
                    mac: mac(index),
                    permanent: false,
                });
                if !bridged {
                    route(network, IpNet::from(*own), &link, None, None);
                }
            }
            if bridged {
                network.forwarding.push(Forwarding { port: link, mac: mac(index) });
                continue;
            }
            let near = |gateway: &&IpAddr| pod.addresses.iter().any(|own| own.is_ipv4() == gateway.is_ipv4());
            for gateway in self.place.gateways.iter().filter(near) {
                address(network, &link, IpNet::from(*gateway), false);
            }
        }
    }
}

fn veth(index: usize) -> String {
    format!("veth{index}")
}

fn address(network: &mut Network, interface: &str, own: IpNet, further: bool) {
    network.addresses.push(Address {
        interface: interface.to_owned(),
        address: own,
        secondary: further && own.addr().is_ipv4(),
        deprecated: further && !own.addr().is_ipv4(),
        scope: "global".to_owned(),
        ..Address::default()
    });
}

fn route(network: &mut Network, to: IpNet, interface: &str, via: Option<IpAddr>, source: Option<IpAddr>) {
    let hop = Hop { via, interface: Some(interface.to_owned()), weight: 1, ..Hop::default() };
    let route = Route { table: MAIN, to, kind: "unicast".to_owned(), hops: vec![hop], source, ..Route::default() };
    if !network.routes.contains(&route) {
        network.routes.push(route);
    }
}
