//! node-a (172.18.0.2, pods a and b), node-b (172.18.0.3, pod c), a client (172.18.0.100) on one switch.

use std::net::{IpAddr, SocketAddr};

use svclab_sim::host::{Host, HostBuilder, HostInterface, Route, Sysctls};
use svclab_sim::ipvs::VirtualServices;
use svclab_sim::masked::Masked;
use svclab_sim::network::{Flow, HostId, Network, PacketVerdict};
use svclab_sim::nft::Ruleset;
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::rules::Rules;
use svclab_sim::set::Sets;

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn net(text: &str) -> Masked {
    Masked::parse(text).unwrap()
}

#[derive(Clone)]
pub struct Plan {
    pub rules: String,
    pub nft: String,
    pub sets: String,
    pub services: String,
    pub virtual_addresses: Vec<&'static str>,
    pub sysctls: Sysctls,
    pub hairpin: bool,
    pub point_to_point: bool,
}

impl Plan {
    pub fn new(rules: &str) -> Plan {
        Plan {
            rules: rules.to_owned(),
            nft: String::new(),
            sets: String::new(),
            services: String::new(),
            virtual_addresses: Vec::new(),
            sysctls: Sysctls::node(),
            hairpin: true,
            point_to_point: false,
        }
    }

    pub fn web() -> Plan {
        Plan::new(include_str!("../../data/service-iptables.txt"))
    }

    fn node(&self, name: &str, own: &str, other: &str, pods: &[&str], other_range: &str) -> HostBuilder {
        let mut host = Host::builder(name)
            .interface(HostInterface::new("eth0").address(ip(own), 16))
            .route(Route::via(net("0.0.0.0/0"), ip("172.18.0.1"), "eth0").from_address(ip(own)))
            .route(Route::via(net(other_range), ip(other), "eth0").from_address(ip(own)))
            .sysctls(self.sysctls)
            .rules(Rules::read(Family::V4, &self.rules).unwrap())
            .nft(Ruleset::read(&self.nft).unwrap())
            .sets(Sets::read(&self.sets).unwrap())
            .virtual_services(VirtualServices::read(&self.services).unwrap())
            .listen(Protocol::TCP, 22);
        let gateway = format!("{}.1", pods[0].rsplit_once('.').unwrap().0);
        if !self.point_to_point {
            host = host.interface(HostInterface::new("cni0").address(ip(&gateway), 24));
        }
        for (number, pod) in pods.iter().enumerate() {
            let veth = format!("veth{number}");
            let interface = HostInterface::new(&veth);
            host = if self.point_to_point {
                host.interface(interface).route(Route::link(net(pod), &veth)).neighbour(&veth, ip(pod))
            } else {
                host.interface(interface.port_of("cni0", self.hairpin))
            };
        }
        if !self.virtual_addresses.is_empty() {
            let dummy = self.virtual_addresses.iter();
            host = host.interface(dummy.fold(HostInterface::new("kube-ipvs0"), |one, own| one.address(ip(own), 32)));
        }
        host
    }

    fn pod(&self, name: &str, own: &str) -> HostBuilder {
        let gateway = if self.point_to_point {
            "169.254.1.1".to_owned()
        } else {
            format!("{}.1", own.rsplit_once('.').unwrap().0)
        };
        let length = if self.point_to_point { 32 } else { 24 };
        Host::builder(name)
            .interface(HostInterface::new("eth0").address(ip(own), length))
            .route(Route::via(net("0.0.0.0/0"), ip(&gateway), "eth0"))
            .neighbour("eth0", ip("169.254.1.1"))
            .listen(Protocol::TCP, 8080)
            .listen(Protocol::UDP, 5353)
    }

    pub fn build(&self) -> Network {
        let mut network = Network::new();
        let a = self.node("node-a", "172.18.0.2", "172.18.0.3", &["10.244.0.2", "10.244.0.3"], "10.244.1.0/24");
        let b = self.node("node-b", "172.18.0.3", "172.18.0.2", &["10.244.1.2"], "10.244.0.0/24");
        let a = network.add(a.build().unwrap());
        let b = network.add(b.build().unwrap());
        let pods = [("pod-a", "10.244.0.2"), ("pod-b", "10.244.0.3"), ("pod-c", "10.244.1.2")];
        let pods = pods.map(|(name, own)| network.add(self.pod(name, own).build().unwrap()));
        let client = Host::builder("client")
            .interface(HostInterface::new("eth0").address(ip("172.18.0.100"), 16))
            .route(Route::via(net("10.96.0.0/16"), ip("172.18.0.2"), "eth0"))
            .route(Route::via(net("10.244.0.0/24"), ip("172.18.0.2"), "eth0"))
            .route(Route::via(net("10.244.1.0/24"), ip("172.18.0.3"), "eth0"));
        let client = network.add(client.build().unwrap());
        network.link(&[(a, "eth0"), (b, "eth0"), (client, "eth0")]).unwrap();
        network.link(&[(a, "veth0"), (pods[0], "eth0")]).unwrap();
        network.link(&[(a, "veth1"), (pods[1], "eth0")]).unwrap();
        network.link(&[(b, "veth0"), (pods[2], "eth0")]).unwrap();
        network
    }
}

pub fn id(network: &Network, name: &str) -> HostId {
    network.find(name).unwrap()
}

pub fn tcp(network: &Network, from: &str, to: &str) -> Flow {
    Flow::tcp(id(network, from), at(to))
}

pub fn say(network: &Network, verdict: &PacketVerdict) -> String {
    let name = |id: &HostId| network.host(*id).name().to_owned();
    match verdict {
        PacketVerdict::Answered { by, saw, .. } => format!("{} answers, saw {}", name(by), saw.ip()),
        PacketVerdict::Unanswered { by, saw, why, .. } => {
            format!("{} answers in vain, saw {}: {why:?}", name(by), saw.ip())
        }
        PacketVerdict::Refused { by, at, delivered } => {
            format!("refused by {} at {at}, delivered {delivered}", name(by))
        }
        PacketVerdict::Rejected { by, with, delivered } => {
            format!("rejected by {} with {with}, delivered {delivered}", name(by))
        }
        PacketVerdict::Dropped { by, why } => format!("dropped by {}: {why:?}", name(by)),
    }
}

pub fn outcomes(network: &Network, flow: &Flow) -> String {
    let all = network.outcomes(flow).unwrap();
    let lines = all.outcomes.iter().map(|one| format!("{} {}\n", one.probability, say(network, &one.verdict)));
    lines.collect()
}
