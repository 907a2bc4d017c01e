//! A machine with rules only: interfaces and routes are invented, and matches of interface names are unknown.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use svclab_sim::cluster::NodeState;
use svclab_sim::host::MAIN_TABLE;
use svclab_snapshot::Snapshot;
use svclab_snapshot::network::{Address, Hop, Link, Network, Route};

use crate::error::NodeError;
use crate::machines::{Around, Machines, Peer};

const OUTSIDE: &str = "outside";
const PODS: &str = "pods";
const INPUT: &str = "input";
/// IPVS mode's device for services' addresses.
const SERVICE_ADDRESSES: &str = "kube-ipvs0";

/// The gateway of the default route of both families (RFC 5737, TEST-NET-2).
const BEYOND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 254));

/// The user's description of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bare {
    /// The machine's addresses.
    pub own: Vec<IpNet>,
    /// Whether a dump of IP sets was given.
    pub has_sets: bool,
}

impl Bare {
    pub(super) fn machines(
        &self,
        state: &NodeState,
        around: &Around,
        caller: Option<&Peer>,
        named: Option<&str>,
    ) -> Result<Machines, NodeError> {
        let input = named.unwrap_or(INPUT);
        let mut network = Network::default();
        link(&mut network, "lo", None);
        link(&mut network, OUTSIDE, None);
        link(&mut network, PODS, None);
        let mut around = around.clone();
        let near = self.near(caller, named);
        for own in &self.own {
            address(&mut network, if near.contains(own) { input } else { OUTSIDE }, *own);
        }
        let virtual_addresses: BTreeSet<IpAddr> =
            state.servers.services.iter().map(|service| service.address.ip()).collect();
        let bound = virtual_addresses.iter().filter(|own| !self.is_own(**own));
        if !virtual_addresses.is_empty() {
            link(&mut network, SERVICE_ADDRESSES, Some("dummy"));
            bound.clone().for_each(|own| address(&mut network, SERVICE_ADDRESSES, IpNet::from(*own)));
        }
        let is_here = |address: &IpAddr| self.is_own(*address) || virtual_addresses.contains(address);
        for (index, peer) in around.peers.iter().enumerate() {
            let name = if Some(peer) == caller { input.to_owned() } else { format!("{PODS}{index}") };
            link(&mut network, &name, Some("veth"));
            peer.addresses
                .iter()
                .filter(|address| !is_here(address))
                .for_each(|to| route(&mut network, IpNet::from(*to), &name));
        }
        let of_peers: BTreeSet<IpAddr> = around.peers.iter().flat_map(|peer| peer.addresses.iter().copied()).collect();
        let others = around.crowd.difference(&of_peers).filter(|address| !is_here(address));
        others.for_each(|to| route(&mut network, IpNet::from(*to), PODS));
        for family in [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())] {
            route(&mut network, family, OUTSIDE);
        }
        // The real gateway is unknown.
        for hop in
            network.routes.iter_mut().filter(|route| route.to.prefix_len() == 0).flat_map(|route| &mut route.hops)
        {
            hop.via = Some(BEYOND);
        }
        let known = [Some("lo"), Some(SERVICE_ADDRESSES), named];
        let links = network.links.iter().map(|link| link.name.clone());
        around.invented = links.filter(|name| !known.contains(&Some(name.as_str()))).collect();
        let snapshot =
            Snapshot { network: Some(network), sets: self.has_sets.then(String::new), ..Snapshot::default() };
        let mut machines = Machines::build(&snapshot, state, &around)?;
        machines.assumed.extend(self.assumed(named));
        if !near.is_empty() {
            let near: Vec<String> = near.iter().map(ToString::to_string).collect();
            machines.assumed.insert(format!("addresses: {} on the caller's interface", near.join(", ")));
        }
        Ok(machines)
    }

    /// Returns the addresses of the caller's interface: those in the caller's network, else all if `--in` names it.
    fn near(&self, caller: Option<&Peer>, named: Option<&str>) -> Vec<IpNet> {
        let peers = caller.map(|peer| peer.addresses.as_slice()).unwrap_or_default();
        let near: Vec<IpNet> =
            self.own.iter().copied().filter(|own| peers.iter().any(|peer| own.contains(peer))).collect();
        if near.is_empty() && named.is_some() { self.own.clone() } else { near }
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.own.iter().any(|own| own.addr() == address)
    }

    fn assumed(&self, input: Option<&str>) -> Vec<String> {
        let mut assumed = vec![
            "routes: every machine to which rules lead is on a link of its own, and everything else beyond a default route"
                .to_owned(),
        ];
        assumed.push(match input {
            Some(name) => format!("interfaces: the caller is on {name}, the others' names are not known"),
            None => "interfaces: no name is known (--in names the caller's)".to_owned(),
        });
        if self.own.is_empty() {
            assumed.push("addresses: the machine has none but loopback's (--address adds one)".to_owned());
        }
        assumed
    }
}

fn link(network: &mut Network, name: &str, kind: Option<&str>) {
    if network.links.iter().any(|link| link.name == name) {
        return;
    }
    let index = u32::try_from(network.links.len() + 1).unwrap_or(u32::MAX);
    network.links.push(Link {
        index,
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        up: true,
        carrier: Some(true),
        ..Link::default()
    });
}

fn address(network: &mut Network, interface: &str, address: IpNet) {
    network.addresses.push(Address {
        interface: interface.to_owned(),
        address,
        scope: "global".to_owned(),
        ..Address::default()
    });
}

fn route(network: &mut Network, to: IpNet, interface: &str) {
    // Local packets have an address of the outside interface if there is one, else of the caller's.
    let mut all: Vec<&Address> = network.addresses.iter().filter(|own| own.interface != SERVICE_ADDRESSES).collect();
    all.sort_by_key(|own| own.interface != OUTSIDE);
    let own = all.into_iter().find(|own| own.address.addr().is_ipv4() == to.addr().is_ipv4());
    let source = own.map(|own| own.address.addr());
    let hops = vec![Hop { interface: Some(interface.to_owned()), weight: 1, ..Hop::default() }];
    network.routes.push(Route { table: MAIN_TABLE, to, kind: "unicast".to_owned(), hops, source, ..Route::default() });
}
