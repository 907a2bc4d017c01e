use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use svclab_oracle::{Balancing, Delivery, FrontendKind, Mode, Scheduler, World};
use svclab_sim::chance::Chance;
use svclab_sim::network::{Flow, Network, Outcomes, PacketVerdict};

/// IPVS' timeout of silent TCP connections (`net/netfilter/ipvs/ip_vs_proto_tcp.c`), plus the minute by which a
/// template with connections is extended.
const CONNECTIONS: Duration = Duration::from_secs(15 * 60 + 60);

pub(super) fn endpoint(verdict: &PacketVerdict) -> Option<SocketAddr> {
    match verdict {
        PacketVerdict::Answered { at, .. } | PacketVerdict::Unanswered { at, .. } => Some(*at),
        _ => None,
    }
}

pub(super) fn endpoints(outcomes: &Outcomes) -> Vec<SocketAddr> {
    let mut all: Vec<SocketAddr> = outcomes.outcomes.iter().filter_map(|one| endpoint(&one.verdict)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn somebody_else(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() ^ 1).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() ^ 1).into(),
    }
}

/// Relays keep affinity in memory: in userspace mode, and for loopback node ports in nftables mode.
pub(super) fn is_relayed(world: &World, flow: &Flow) -> bool {
    match world.proxy.mode {
        Mode::Userspace => true,
        Mode::Nftables => flow.to.ip().is_loopback(),
        Mode::Iptables | Mode::Ipvs | Mode::Other => false,
    }
}

/// Checks the clients of each endpoint. Without affinity, those of one.
pub(super) fn faults(world: &World, network: &Network, flow: &Flow, delivery: &Delivery) -> Vec<String> {
    if delivery.backends.len() < 2 {
        return Vec::new();
    }
    let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
    let checked = network.each_way(flow, |journey, after| {
        if let Some(met) = endpoint(&journey.verdict).filter(|met| seen.insert(*met)) {
            let client = Client { world, delivery, again: flow.port(flow.source_port + 1), met };
            faults.extend(client.faults(&after, seen.len() <= CROWDED));
        }
        let enough = if delivery.affinity.is_some() { delivery.backends.len() } else { 1 };
        faults.is_empty() && seen.len() < enough
    });
    checked.map(|()| faults).unwrap_or_default()
}

/// The number of endpoints at which a second client is tried: its search costs a walk per endpoint.
const CROWDED: usize = 16;

/// A client that has met an endpoint.
struct Client<'a> {
    world: &'a World,
    delivery: &'a Delivery,
    /// Its next connection.
    again: Flow,
    met: SocketAddr,
}

impl Client<'_> {
    fn faults(&self, network: &Network, crowded: bool) -> Vec<String> {
        let Some(affinity) = self.delivery.affinity else {
            return self.moves(network, "without affinity").into_iter().collect();
        };
        let mut faults: Vec<String> = self.stays(network, "at once").into_iter().collect();
        faults.extend(self.neighbour(network, crowded));
        faults.extend(self.renewed(network, affinity.timeout));
        let mut network = network.clone();
        network.advance(affinity.timeout.saturating_sub(Duration::from_secs(1)));
        faults.extend(self.stays(&network, "a second before the time-out"));
        network.advance(Duration::from_secs(2));
        if self.world.proxy.mode == Mode::Ipvs {
            // IPVS remembers a client while one of its connections exists, and then for the timeout.
            network.advance(CONNECTIONS + affinity.timeout);
        }
        faults.extend(self.moves(&network, "after the time-out"));
        faults
    }

    fn stays(&self, network: &Network, when: &str) -> Option<String> {
        match network.outcomes(&self.again) {
            Ok(found) if endpoints(&found) == [self.met] => None,
            Ok(found) => Some(format!("{when} the client that met {} meets {:?}", self.met, endpoints(&found))),
            Err(error) => Some(error.to_string()),
        }
    }

    fn moves(&self, network: &Network, when: &str) -> Option<String> {
        let found = network.outcomes(&self.again).map(|found| endpoints(&found)).unwrap_or_default();
        let all = self.delivery.backends.len();
        if let Balancing::Consistent { with_port } = self.delivery.balancing {
            let leaves = !with_port && found != [self.met];
            return leaves.then(|| format!("{when} the client that met {} meets {found:?}", self.met));
        }
        match self.world.proxy.mode {
            Mode::Iptables | Mode::Nftables => {
                (found.len() != all).then(|| format!("{when} the client may meet {} of {all}", found.len()))
            }
            // Without affinity, only rr and wrr must change the destination.
            Mode::Ipvs if self.takes_turns() => {
                (found == [self.met]).then(|| format!("{when} the client still meets {}", self.met))
            }
            _ => None,
        }
    }

    fn takes_turns(&self) -> bool {
        matches!(self.world.proxy.scheduler, Scheduler::RoundRobin | Scheduler::WeightedRoundRobin)
    }

    /// One client's affinity must not bind another, here one with a neighbouring address, and many clients may meet one
    /// endpoint.
    fn neighbour(&self, network: &Network, crowded: bool) -> Option<String> {
        // A node's packets with another's source do not come back.
        let source = network.first_packet(&self.again).ok()?.source;
        let is_node = self.world.nodes.iter().any(|node| node.has(source));
        // In IPVS mode every frontend is a virtual server with a persistence netmask of its own.
        let is_remote = !network.host(self.again.from).is_local(self.again.to.ip());
        let is_asked =
            self.delivery.frontend == FrontendKind::ClusterIp || self.world.proxy.mode == Mode::Ipvs && is_remote;
        if is_node || !is_asked {
            return None;
        }
        let other = self.again.source(somebody_else(source));
        let outcomes = network.outcomes(&other).ok()?;
        let found = endpoints(&outcomes);
        let all = self.delivery.backends.len();
        let is_bound = match self.world.proxy.mode {
            Mode::Iptables | Mode::Nftables => found.len() != all,
            Mode::Ipvs => {
                let all_arrive = outcomes.outcomes.iter().all(|one| endpoint(&one.verdict).is_some());
                self.takes_turns() && all_arrive && found == [self.met]
            }
            Mode::Userspace | Mode::Other => false,
        };
        // A reverse-path filter may drop the neighbour's packet.
        if is_bound && !found.is_empty() {
            return Some(format!("after one client met {} others may meet {} of {all}", self.met, found.len()));
        }
        let mut fault = None;
        let searched = network.each_way(&other, |journey, after| {
            let is_same = endpoint(&journey.verdict) == Some(self.met);
            if is_same {
                let second = Client { again: other.port(other.source_port + 1), ..*self };
                fault = self
                    .stays(&after, "after another client has met the same endpoint")
                    .or_else(|| second.stays(&after, "as the second at this endpoint"));
            }
            crowded && !is_same
        });
        fault.filter(|_| searched.is_ok())
    }

    /// A new connection renews the time.
    fn renewed(&self, network: &Network, timeout: Duration) -> Option<String> {
        let mut network = network.clone();
        network.advance(timeout / 2);
        let second = self.again.port(self.again.source_port + 1);
        network.send(&second, &mut Chance::seeded(u64::from(second.source_port))).ok()?;
        network.advance(timeout / 4 * 3);
        self.stays(&network, "after a second connection, within the time-out,")
    }
}
