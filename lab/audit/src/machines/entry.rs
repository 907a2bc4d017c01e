//! A caller whose answers leave by another interface: it is on both links.

use std::net::IpAddr;

use svclab_sim::host::{Host, HostBuilder, HostInterface, LOCAL_TABLE, MAIN_TABLE, PolicyAction, PolicyRule, Route};
use svclab_sim::masked::Masked;
use svclab_sim::protocol::Family;
use svclab_snapshot::network::Network;

use super::node::{LOOPBACK, is_bridge};
use super::stations::{Station, StationWay};
use super::{everything, is_link_local, link_local};
use crate::error::NodeError;

pub(super) const ENTRY: &str = "entry";
const TABLE: u32 = 1000;

#[derive(Debug, Clone)]
pub(super) struct IngressLink {
    pub(super) address: IpAddr,
    /// The node's interface, or its port if it is a bridge.
    pub(super) end: String,
    /// The node's address on the link, if it has one.
    via: Option<IpAddr>,
}

impl IngressLink {
    /// `None` if answers to `address` leave by `interface`.
    pub(super) fn find(
        address: IpAddr,
        interface: &str,
        listed: &Network,
        node: &Host,
        stations: &[Station],
    ) -> Result<Option<IngressLink>, NodeError> {
        let wrong = |problem: String| NodeError::Wrong { what: format!("--in {interface}"), problem };
        if !listed.links.iter().any(|link| link.name == interface) {
            let names = listed.links.iter().map(|link| link.name.as_str()).filter(|name| *name != LOOPBACK);
            let names: Vec<&str> = names.collect();
            return Err(wrong(format!("the node has no interface of that name (it has: {})", names.join(", "))));
        }
        if interface == LOOPBACK {
            return Err(wrong("by loopback come only the node's own packets: use --from node".to_owned()));
        }
        let answers = stations.iter().find(|station| station.own().any(|own| own == address));
        if answers.is_some_and(|station| is_first(interface, station, stations)) {
            return Ok(None);
        }
        let mut ports = listed.links.iter().filter(|link| link.controller.as_deref() == Some(interface));
        let end = match is_bridge(listed, interface) {
            false => interface.to_owned(),
            true => match ports.next() {
                Some(port) => port.name.clone(),
                None => return Err(wrong("it is a bridge without a port by which anything could come in".to_owned())),
            },
        };
        let bridge = listed.links.iter().find(|link| link.name == end).and_then(|link| link.controller.as_deref());
        let holder = bridge.filter(|bridge| is_bridge(listed, bridge)).unwrap_or(interface);
        let on = |name: &str| node.addresses_of(name).iter().map(|own| own.ip).collect::<Vec<_>>();
        let fits = |own: &IpAddr| own.is_ipv4() == address.is_ipv4();
        let own = on(holder);
        // A global address reads better in the output.
        let via = own.iter().copied().filter(fits).find(|own| !is_link_local(*own));
        let via = via.or_else(|| own.iter().copied().find(fits));
        Ok(Some(IngressLink { address, end, via }))
    }

    pub(super) fn onto(&self, host: HostBuilder) -> HostBuilder {
        let host = host.interface(HostInterface::new(ENTRY));
        let all = everything(self.address);
        let (route, host) = match self.via {
            Some(via) => (Route::via(all, via, ENTRY), host),
            // Without an own address, the route leads to any machine at the far end.
            None => {
                let via = link_local(self.address);
                (Route::via(all, via, ENTRY), host.neighbour(ENTRY, via))
            }
        };
        host.route(Route { table: TABLE, ..route })
    }

    pub(super) fn rule(&self) -> PolicyRule {
        let action = PolicyAction::Lookup { table: TABLE, suppress: None };
        PolicyRule { from: Some(Masked::from(self.address)), ..plain(self.address, 1, action) }
    }

    pub(super) fn rules(&self) -> [PolicyRule; 3] {
        let lookup = |table| PolicyAction::Lookup { table, suppress: None };
        [plain(self.address, 0, lookup(LOCAL_TABLE)), self.rule(), plain(self.address, 2, lookup(MAIN_TABLE))]
    }
}

/// Whether the machine's first way uses the interface or bridge port.
fn is_first(interface: &str, station: &Station, stations: &[Station]) -> bool {
    match station.ways.first() {
        Some(StationWay::Link(link)) => link.interface == interface || link.port.as_deref() == Some(interface),
        Some(StationWay::Behind(gateway)) => {
            let gateway = stations.iter().find(|one| one.name == *gateway);
            let mut links = gateway.into_iter().flat_map(Station::links);
            links.next().is_some_and(|link| link.interface == interface || link.port.as_deref() == Some(interface))
        }
        None => false,
    }
}

fn plain(like: IpAddr, priority: u32, action: PolicyAction) -> PolicyRule {
    PolicyRule::of_all(if like.is_ipv4() { Family::V4 } else { Family::V6 }, priority, action)
}
