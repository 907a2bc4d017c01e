//! Decides which Service owns a frontend that several Services claim.
//!
//! A cluster IP wins over external and load-balancer addresses, because any author of a Service can claim these
//! (CVE-2020-8554). Then the older object wins, then the first by name. The loser keeps its other frontends, and gets
//! the disputed one when it becomes free. A change costs as much as the Service's own claims.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use jiff::Timestamp;

use super::service::{Frontend, ServicePort};
use crate::model::{ObjectKey, Protocol, ServicePortName, ShortString};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    Frontend(Protocol, Frontend),
    /// A health check's node port, shared by all ports of a Service.
    HealthCheck(u16),
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::Frontend(protocol, Frontend::Address(address)) => write!(f, "{address}/{protocol}"),
            Claim::Frontend(protocol, Frontend::NodePort(port)) => write!(f, "node port {port}/{protocol}"),
            Claim::HealthCheck(port) => write!(f, "health check node port {port}"),
        }
    }
}

/// Kinds of claims, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimRank {
    ClusterIp,
    Other,
}

/// When an object was created; without a time, as in a manifest, it counts as youngest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CreationTime {
    Since(Timestamp),
    Unknown,
}

/// A service port that claims a frontend; the first in order wins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Claimant {
    rank: ClaimRank,
    age: CreationTime,
    name: ServicePortName,
}

#[derive(Debug, Clone)]
pub(super) struct KnownService {
    pub(super) age: CreationTime,
    pub(super) ports: Vec<ServicePort>,
}

impl KnownService {
    pub(super) fn port(&self, name: &ServicePortName) -> Option<&ServicePort> {
        self.ports.get(self.ports.partition_point(|port| port.name < *name)).filter(|port| port.name == *name)
    }
}

/// A claim that is lost, or was until now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispute {
    /// The service port that lost; for a health check only its Service matters.
    pub loser: ServicePortName,
    pub claim: Claim,
    /// The service port that owns the frontend; `None` when the dispute is over.
    pub winner: Option<(ServicePortName, ClaimRank)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Claims {
    /// The strongest claimant first. Most claims have one: a set would be larger.
    claimants: BTreeMap<Claim, Vec<Claimant>>,
    lost: BTreeMap<ServicePortName, BTreeSet<Claim>>,
    reported: BTreeMap<ServicePortName, BTreeSet<Claim>>,
    /// Service ports whose `lost` may differ from `reported`.
    unreported: BTreeSet<ServicePortName>,
}

impl Claims {
    /// Replaces a Service's claims; returns the service ports that won or lost one.
    pub(super) fn replace(
        &mut self,
        before: Option<&KnownService>,
        after: &KnownService,
    ) -> Vec<(Claim, ServicePortName)> {
        let (before, after) = (before.map(KnownService::claims).unwrap_or_default(), after.claims());
        if before.is_empty() && self.are_unclaimed(&after) {
            // Fast path for the first list of a large cluster.
            let given = after.into_iter().map(|(claim, claimant)| {
                let name = claimant.name.clone();
                self.insert(claim, claimant);
                (claim, name)
            });
            return given.collect();
        }
        let mut winners: BTreeMap<Claim, Option<ServicePortName>> = BTreeMap::new();
        for (claim, claimant) in before.difference(&after) {
            winners.entry(*claim).or_insert_with(|| self.winner(*claim).map(|winner| winner.name.clone()));
            self.remove(*claim, claimant);
        }
        for (claim, claimant) in after.difference(&before) {
            winners.entry(*claim).or_insert_with(|| self.winner(*claim).map(|winner| winner.name.clone()));
            self.insert(*claim, claimant.clone());
        }
        let moved = winners
            .into_iter()
            .flat_map(|(claim, was)| self.ownership_change(claim, was).map(move |name| (claim, name)));
        moved.collect()
    }

    fn are_unclaimed(&self, claims: &BTreeSet<(Claim, Claimant)>) -> bool {
        let alike = claims.iter().zip(claims.iter().skip(1)).any(|((one, _), (other, _))| one == other);
        !alike && claims.iter().all(|(claim, _)| !self.claimants.contains_key(claim))
    }

    /// Returns the previous and current owner, if they differ.
    fn ownership_change(
        &mut self,
        claim: Claim,
        was: Option<ServicePortName>,
    ) -> impl Iterator<Item = ServicePortName> + use<> {
        let now = self.winner(claim).map(|winner| winner.name.clone());
        let changed = now != was;
        if let Some(winner) = now.as_ref().filter(|_| changed) {
            self.set_lost(winner, claim, false);
        }
        if let Some(loser) = was.as_ref().filter(|_| changed) {
            let still =
                self.claimants.get(&claim).is_some_and(|all| all.iter().any(|claimant| claimant.name == *loser));
            self.set_lost(loser, claim, still);
        }
        was.into_iter().chain(now).filter(move |_| changed)
    }

    fn insert(&mut self, claim: Claim, claimant: Claimant) {
        let all = self.claimants.entry(claim).or_default();
        let at = all.partition_point(|other| *other < claimant);
        all.reserve_exact(1);
        let name = claimant.name.clone();
        all.insert(at, claimant);
        let second = all.get(1).filter(|_| at == 0).map(|claimant| claimant.name.clone());
        self.set_lost(&name, claim, at > 0);
        second.iter().for_each(|name| self.set_lost(name, claim, true));
    }

    fn remove(&mut self, claim: Claim, claimant: &Claimant) {
        if let Some(all) = self.claimants.get_mut(&claim) {
            if let Ok(at) = all.binary_search(claimant) {
                all.remove(at);
            }
            if all.is_empty() {
                self.claimants.remove(&claim);
            }
        }
        self.set_lost(&claimant.name, claim, false);
    }

    fn set_lost(&mut self, name: &ServicePortName, claim: Claim, lost: bool) {
        let changed = if lost {
            self.lost.entry(name.clone()).or_default().insert(claim)
        } else {
            let Some(claims) = self.lost.get_mut(name) else { return };
            let had = claims.remove(&claim);
            if claims.is_empty() {
                self.lost.remove(name);
            }
            had
        };
        if changed {
            self.unreported.insert(name.clone());
        }
    }

    fn winner(&self, claim: Claim) -> Option<&Claimant> {
        self.claimants.get(&claim)?.first()
    }

    /// Returns the service port with only the frontends that it owns.
    pub(super) fn granted<'a>(&self, port: &'a ServicePort) -> Cow<'a, ServicePort> {
        if self.lost.is_empty() {
            return Cow::Borrowed(port);
        }
        let check = self.lost.get(&whole_service(&port.name.service)).into_iter().flatten();
        let check = check.filter(|claim| matches!(claim, Claim::HealthCheck(_)));
        let own = self.lost.get(&port.name).into_iter().flatten();
        let own = own.filter(|claim| matches!(claim, Claim::Frontend(..)));
        own.chain(check).fold(Cow::Borrowed(port), |port, claim| Cow::Owned(without(port.into_owned(), *claim)))
    }

    pub(super) fn take_disputes(&mut self) -> Vec<Dispute> {
        let mut disputes = Vec::new();
        for name in std::mem::take(&mut self.unreported) {
            let now = self.lost.get(&name).cloned().unwrap_or_default();
            let before = self.reported.remove(&name).unwrap_or_default();
            let dispute = |claim: &Claim, winner| Dispute { loser: name.clone(), claim: *claim, winner };
            disputes.extend(before.difference(&now).map(|claim| dispute(claim, None)));
            for claim in now.difference(&before) {
                let winner = self.winner(*claim).map(|winner| (winner.name.clone(), winner.rank));
                disputes.push(dispute(claim, winner));
            }
            if !now.is_empty() {
                self.reported.insert(name, now);
            }
        }
        disputes
    }
}

impl KnownService {
    /// Returns the port's claims: one per address, the strongest.
    fn claims(&self) -> BTreeSet<(Claim, Claimant)> {
        let mut best: BTreeMap<(Claim, ServicePortName), ClaimRank> = BTreeMap::new();
        for port in &self.ports {
            let of_cluster_ip = port.cluster_ip.map(|ip| Frontend::Address(SocketAddr::new(ip, port.port)));
            for frontend in port.frontends() {
                let rank = if Some(frontend) == of_cluster_ip { ClaimRank::ClusterIp } else { ClaimRank::Other };
                best.entry((Claim::Frontend(port.name.protocol, frontend), port.name.clone())).or_insert(rank);
            }
            let check = port.health_check_node_port.map(Claim::HealthCheck);
            best.extend(check.map(|check| ((check, whole_service(&port.name.service)), ClaimRank::Other)));
        }
        let age = self.age;
        best.into_iter().map(|((claim, name), rank)| (claim, Claimant { rank, age, name })).collect()
    }
}

/// Returns the claimant of a claim that a Service's ports share.
fn whole_service(service: &ObjectKey) -> ServicePortName {
    ServicePortName { service: service.clone(), port: ShortString::default(), protocol: Protocol::Tcp }
}

fn without(mut port: ServicePort, claim: Claim) -> ServicePort {
    match claim {
        Claim::Frontend(_, Frontend::Address(address)) => {
            let others = |ip: &std::net::IpAddr| *ip != address.ip();
            port.cluster_ip = port.cluster_ip.filter(others);
            port.external_ips.retain(others);
            port.load_balancer_ips.retain(others);
        }
        Claim::Frontend(_, Frontend::NodePort(_)) => port.node_port = None,
        Claim::HealthCheck(_) => port.health_check_node_port = None,
    }
    port
}
