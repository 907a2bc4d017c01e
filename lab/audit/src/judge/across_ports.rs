//! Whether the ports of a Service remember clients together, and only where the Service asks for it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use svclab_oracle::{AffinityScope, Delivery, Mode, PromisedAffinity, World};
use svclab_sim::chance::Chance;
use svclab_sim::network::{Flow, Network};

use super::affinity::{endpoint, endpoints};
use super::{FaultKind, OtherPort};

/// The number of endpoints whose clients call other ports: [`super::affinity`] checks the lists of all endpoints.
const ENOUGH: usize = 3;

/// Checks other ports for the clients of each endpoint; where ports remember clients on their own, for one endpoint.
pub(super) fn faults(
    world: &World,
    network: &Network,
    flow: &Flow,
    delivery: &Delivery,
    others: &[OtherPort],
) -> Vec<(FaultKind, String)> {
    // In IPVS mode every frontend is a virtual server with clients of its own.
    let by_rules = matches!(world.proxy.mode, Mode::Iptables | Mode::Nftables);
    let Some(affinity) = delivery.affinity.filter(|_| by_rules && !others.is_empty()) else { return Vec::new() };
    let enough = match affinity.scope {
        AffinityScope::Service => delivery.backends.len().min(ENOUGH),
        AffinityScope::ServicePort | AffinityScope::Frontend => 1,
    };
    let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
    let checked = network.each_way(flow, |journey, after| {
        if let Some(met) = endpoint(&journey.verdict).filter(|met| seen.insert(*met)) {
            faults.extend(others.iter().filter_map(|other| Client { flow, affinity, other, met }.fault(&after)));
        }
        faults.is_empty() && seen.len() < enough
    });
    checked.map(|()| faults).unwrap_or_default()
}

/// A client that has met an endpoint by one port, and calls another one.
struct Client<'a> {
    flow: &'a Flow,
    affinity: PromisedAffinity,
    other: &'a OtherPort,
    met: SocketAddr,
}

impl Client<'_> {
    fn fault(&self, network: &Network) -> Option<(FaultKind, String)> {
        let shares = |affinity: PromisedAffinity| affinity.scope == AffinityScope::Service;
        let share = shares(self.affinity) && self.other.delivery.affinity.is_some_and(shares);
        let mut backends = self.other.delivery.backends.iter().map(|backend| backend.address);
        match backends.find(|backend| backend.ip() == self.met.ip()) {
            Some(same) if share => self.kept(network, same).map(|says| (FaultKind::AffinityAcrossPorts, says)),
            _ => self.free(network, "at once").map(|says| (FaultKind::Affinity, says)),
        }
    }

    fn kept(&self, network: &Network, same: SocketAddr) -> Option<String> {
        let found = endpoints(&network.outcomes(&self.other.flow).ok()?);
        if found != [same] {
            return Some(format!("the client that met {} meets {found:?} by {}", self.met, self.other.flow.to));
        }
        let PromisedAffinity { timeout, .. } = self.affinity;
        let mut later = network.clone();
        later.advance(timeout / 2);
        later.send(&self.other.flow, &mut Chance::seeded(u64::from(self.met.port()))).ok()?;
        later.advance(timeout / 4 * 3);
        let again = self.flow.port(self.flow.source_port + 1);
        let found = endpoints(&later.outcomes(&again).ok()?);
        if found != [self.met] {
            let other = self.other.flow.to;
            return Some(format!("the client that met {}, and renewed this by {other}, meets {found:?}", self.met));
        }
        let mut forgotten = network.clone();
        forgotten.advance(timeout + Duration::from_secs(1));
        self.free(&forgotten, "after the time-out")
    }

    /// The other port chooses as for a new client.
    fn free(&self, network: &Network, when: &str) -> Option<String> {
        let found = endpoints(&network.outcomes(&self.other.flow).ok()?);
        let (all, to) = (self.other.delivery.backends.len(), self.other.flow.to);
        let bound = found.len() != all;
        bound.then(|| format!("{when} the client that met {} may meet {} of {all} by {to}", self.met, found.len()))
    }
}
