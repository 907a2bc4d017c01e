//! One machine from what its commands print, whoever made the rules: not this project's cluster, nor any known one.
//!
//! A dump says nothing of interfaces and routes. So the caller hangs on an interface of its own, and everybody whom rules or
//! virtual servers lead to on another; both are routed by way of the machine, as pods are by way of their node.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use svclab_sim::host::{Host, HostBuilder, HostError, Interface, Listener, Route, Sysctls};
use svclab_sim::masked::Masked;
use svclab_sim::network::{Flow, HostId, Network, NetworkError, Outcomes};
use svclab_sim::protocol::Protocol;
use svclab_sim::rules::Rules;
use svclab_sim::rules::target::Target;

use svclab_sim::cluster::NodeState;

/// The interface by which callers outside come, unless it is told.
pub const OUTSIDE: &str = "eth0";
/// The interface of those whom rules lead to.
const BACKENDS: &str = "pods0";
/// The names of the machines in what is told.
const NODE: &str = "node";
const CALLER: &str = "caller";
const POD: &str = "pod";

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// The machine itself.
    Itself,
    /// Somebody with this address, whose packets come in by this interface.
    Address(IpAddr, String),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// Rules, sets and virtual servers do not go together, or something is not modelled.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The packet cannot be.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// A machine with its rules, a caller, and those whom rules lead to.
#[derive(Debug)]
pub struct Dump {
    network: Network,
    from: HostId,
    source: Option<IpAddr>,
}

impl Dump {
    /// Puts the machine together: `own` are its addresses.
    ///
    /// # Errors
    /// When the parts do not go together.
    pub fn build(program: &NodeState, own: &[(IpAddr, u8)], caller: &Caller) -> Result<Dump, DumpError> {
        let backends = backends(program);
        let mut eth0 = Interface::new(OUTSIDE);
        for (address, length) in own {
            eth0 = eth0.address(*address, *length);
        }
        let device = Interface::new("kube-ipvs0");
        let device = program.addresses.iter().fold(device, |device, own| device.with(*own));
        let mut node = Host::builder(NODE).sysctls(Sysctls::node()).interface(eth0);
        node = node.interface(Interface::new(BACKENDS)).interface(device);
        node = node.rules(program.v4.clone()).rules(program.v6.clone());
        node = node.nft(program.nft.clone());
        node = node.sets(program.sets.clone()).virtual_services(program.servers.clone());
        for backend in &backends {
            node = node.route(Route::link(range(*backend, single(*backend)), BACKENDS));
        }
        let (caller_address, interface) = match caller {
            Caller::Itself => (None, OUTSIDE),
            Caller::Address(address, interface) => (Some(*address), interface.as_str()),
        };
        if ![OUTSIDE, BACKENDS].contains(&interface) {
            node = node.interface(Interface::new(interface));
        }
        for address in caller_address.iter().filter(|address| !backends.contains(address)) {
            node = node.route(Route::link(range(*address, single(*address)), interface));
        }
        for like in [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)] {
            let from = own.iter().map(|(address, _)| *address).find(|own| own.is_ipv4() == like.is_ipv4());
            let route = Route::link(range(like, 0), OUTSIDE);
            node = node.route(match from {
                Some(from) => route.from_address(from),
                None => route,
            });
        }
        let mut network = Network::new();
        let node = network.add(node.build()?);
        let pods = network.add(behind(POD, &backends)?);
        network.link(&[(node, BACKENDS), (pods, "eth0")])?;
        let from = match caller_address {
            None => node,
            Some(address) if backends.contains(&address) => pods,
            Some(address) => {
                let caller = network.add(behind(CALLER, &BTreeSet::from([address]))?);
                network.link(&[(node, interface), (caller, "eth0")])?;
                caller
            }
        };
        Ok(Dump { network, from, source: caller_address })
    }

    /// Everything that can become of a call.
    ///
    /// # Errors
    /// When no packet can be made of it.
    pub fn outcomes(&self, to: SocketAddr, protocol: Protocol) -> Result<Outcomes, DumpError> {
        let flow = Flow { source: self.source, protocol, ..Flow::tcp(self.from, to) };
        Ok(self.network.outcomes(&flow)?)
    }

    /// The machines.
    pub fn network(&self) -> &Network {
        &self.network
    }
}

/// A machine that is reached by way of the node, at whatever port.
fn behind(name: &str, addresses: &BTreeSet<IpAddr>) -> Result<Host, HostError> {
    let mut host: HostBuilder = Host::builder(name);
    let eth0 = Interface::new("eth0");
    host = host.interface(addresses.iter().fold(eth0, |eth0, own| eth0.address(*own, single(*own))));
    for like in [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)] {
        let via: IpAddr = match like {
            IpAddr::V4(_) => Ipv4Addr::new(169, 254, 1, 1).into(),
            IpAddr::V6(_) => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into(),
        };
        host = host.route(Route::via(range(like, 0), via, "eth0")).neighbour("eth0", via);
    }
    for protocol in [Protocol::TCP, Protocol::UDP, Protocol::SCTP] {
        host = host.listener(Listener { protocol, address: None, port: None });
    }
    host.build()
}

/// Everybody whom a rule or a virtual server leads to.
fn backends(program: &NodeState) -> BTreeSet<IpAddr> {
    let servers = program.servers.services.iter().flat_map(|service| &service.servers);
    let mut found: BTreeSet<IpAddr> = servers.map(|server| server.address.ip()).collect();
    for rules in [&program.v4, &program.v6] {
        found.extend(translated(rules));
    }
    found.extend(program.nft.translated_to());
    found
}

fn translated(rules: &Rules) -> impl Iterator<Item = IpAddr> {
    let all = rules.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
    all.filter_map(|rule| match &rule.target {
        // Of a range, its first address.
        Target::Dnat(range) => range.addresses.map(|(first, _)| first),
        _ => None,
    })
}

fn single(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Lengths are constants that fit.
fn range(address: IpAddr, length: u8) -> Masked {
    Masked::network(address, length).unwrap_or_else(|| range(address, single(address)))
}

#[cfg(test)]
mod tests {
    use svclab_sim::protocol::Family;

    use super::*;

    /// As another's program would write them: no chain of Kubernetes' is in it.
    const RULES: &str = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:WEB - [0:0]\n\
        -A PREROUTING -d 10.0.0.10/32 -p tcp -m tcp --dport 80 -j WEB\n-A OUTPUT -d 10.0.0.10/32 -p tcp -m tcp --dport 80 -j WEB\n\
        -A WEB -m statistic --mode random --probability 0.25000000000 -j DNAT --to-destination 10.1.0.1:8080\n\
        -A WEB -p tcp -j DNAT --to-destination 10.1.0.2:8080\nCOMMIT\n";

    fn ways(caller: &Caller, to: &str) -> Vec<String> {
        let mut program = NodeState::default();
        program.read_rules("a file", Family::V4, RULES).unwrap();
        let dump = Dump::build(&program, &[("192.0.2.1".parse().unwrap(), 24)], caller).unwrap();
        let all = dump.outcomes(to.parse().unwrap(), Protocol::TCP).unwrap();
        super::super::outcome_text::outcomes(dump.network(), &all)
    }

    #[test]
    fn a_dump_from_anywhere_is_enough() {
        let outside = Caller::Address("198.51.100.7".parse().unwrap(), OUTSIDE.to_owned());
        let split = |saw: &str| {
            [
                format!("1/4  pod answers at 10.1.0.1:8080 and sees {saw}"),
                format!("3/4  pod answers at 10.1.0.2:8080 and sees {saw}"),
            ]
        };
        assert_eq!(ways(&outside, "10.0.0.10:80"), split("198.51.100.7"));
        assert_eq!(ways(&Caller::Itself, "10.0.0.10:80"), split("192.0.2.1"));
        assert_eq!(ways(&outside, "192.0.2.1:22"), ["always  refused by node at 192.0.2.1:22"]);
    }
}
