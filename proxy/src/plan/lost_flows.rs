//! Established TCP connections that lost their endpoint, for modes that reset them by rules. A connection is known by
//! its frontend and its endpoint, so that other Services' connections to the endpoint, and those of clients that use
//! its own address, are not touched.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::ServicePortPlan;
use crate::model::{FlowFate, Frontend, Protocol, ServicePortName};

/// The most lost flows that are remembered. Connections beyond are kept.
const MOST: usize = 65_536;

pub type LostFlow = (Frontend, SocketAddr);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackedPort {
    fate: FlowFate,
    frontends: Vec<Frontend>,
    /// Sorted. Empty if the fate is [`FlowFate::Keep`].
    serving: Vec<SocketAddr>,
}

impl TrackedPort {
    /// `None`: the plan is not of TCP.
    pub fn of(plan: &ServicePortPlan) -> Option<TrackedPort> {
        (plan.protocol() == Protocol::Tcp).then(|| TrackedPort {
            fate: plan.flow_fate,
            frontends: plan.frontends().collect(),
            serving: plan.serving.clone(),
        })
    }

    #[cfg(test)]
    pub fn new(fate: FlowFate, frontends: Vec<Frontend>, serving: Vec<SocketAddr>) -> TrackedPort {
        TrackedPort { fate, frontends, serving }
    }

    pub fn fate(&self) -> FlowFate {
        self.fate
    }

    pub fn frontends(&self) -> impl Iterator<Item = Frontend> {
        self.frontends.iter().copied()
    }

    fn allows(&self, endpoint: &SocketAddr) -> bool {
        self.fate == FlowFate::Keep || self.serving.binary_search(endpoint).is_ok()
    }

    fn flows(&self) -> impl Iterator<Item = LostFlow> {
        self.frontends.iter().flat_map(|frontend| self.serving.iter().map(|endpoint| (*frontend, *endpoint)))
    }
}

/// Flows to reset from now on, and flows not to reset any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostFlowChange {
    pub added: Vec<LostFlow>,
    pub removed: Vec<LostFlow>,
}

#[derive(Debug, Clone, Copy)]
struct Loss {
    /// Until then the flow is kept.
    drained: Instant,
    is_reset: bool,
}

#[derive(Debug, Clone, Default)]
pub struct LostFlows {
    ports: BTreeMap<ServicePortName, TrackedPort>,
    owners: BTreeMap<Frontend, ServicePortName>,
    lost: BTreeMap<Frontend, BTreeMap<SocketAddr, Loss>>,
    count: usize,
}

impl LostFlows {
    /// Replaces service ports; `None`: deleted. A flow is lost if its old port allowed it and its frontend's present
    /// owner does not.
    pub fn replace(&mut self, changed: Vec<(ServicePortName, Option<TrackedPort>)>, now: Instant) -> LostFlowChange {
        let before: Vec<(TrackedPort, ServicePortName)> =
            changed.into_iter().filter_map(|(name, port)| Some((self.replace_port(&name, port)?, name))).collect();
        let mut change = LostFlowChange::default();
        for (port, name) in &before {
            let fate = self.ports.get(name).map_or(port.fate, |port| port.fate);
            port.flows().for_each(|flow| self.lose(flow, fate, now, &mut change));
        }
        change.removed = self.take_allowed();
        change
    }

    /// Replaces all service ports.
    pub fn replace_all(&mut self, ports: BTreeMap<ServicePortName, TrackedPort>, now: Instant) -> LostFlowChange {
        let deleted: Vec<ServicePortName> =
            self.ports.keys().filter(|name| !ports.contains_key(*name)).cloned().collect();
        let deleted = deleted.into_iter().map(|name| (name, None));
        self.replace(deleted.chain(ports.into_iter().map(|(name, port)| (name, Some(port)))).collect(), now)
    }

    fn replace_port(&mut self, name: &ServicePortName, port: Option<TrackedPort>) -> Option<TrackedPort> {
        let before = self.ports.remove(name);
        for frontend in before.iter().flat_map(|port| &port.frontends) {
            if self.owners.get(frontend) == Some(name) {
                self.owners.remove(frontend);
            }
        }
        if let Some(port) = port {
            self.owners.extend(port.frontends.iter().map(|frontend| (*frontend, name.clone())));
            self.ports.insert(name.clone(), port);
        }
        before
    }

    fn owner(&self, frontend: &Frontend) -> Option<&TrackedPort> {
        self.ports.get(self.owners.get(frontend)?)
    }

    fn is_allowed(&self, (frontend, endpoint): &LostFlow) -> bool {
        self.owner(frontend).is_some_and(|owner| owner.allows(endpoint))
    }

    fn lose(&mut self, flow: LostFlow, fate: FlowFate, now: Instant, change: &mut LostFlowChange) {
        let Some(delay) = fate.delay().filter(|_| self.count < MOST && !self.is_allowed(&flow)) else { return };
        if let Entry::Vacant(place) = self.lost.entry(flow.0).or_default().entry(flow.1) {
            place.insert(Loss { drained: now + delay, is_reset: delay.is_zero() });
            self.count += 1;
            change.added.extend(delay.is_zero().then_some(flow));
        }
    }

    /// Forgets flows that are allowed again. Returns those that were reset.
    fn take_allowed(&mut self) -> Vec<LostFlow> {
        let LostFlows { ports, owners, lost, count } = self;
        let mut taken = Vec::new();
        for (frontend, flows) in lost.iter_mut() {
            let Some(owner) = owners.get(frontend).and_then(|name| ports.get(name)) else { continue };
            flows.retain(|endpoint, loss| {
                let is_allowed = owner.allows(endpoint);
                *count -= usize::from(is_allowed);
                taken.extend((is_allowed && loss.is_reset).then_some((*frontend, *endpoint)));
                !is_allowed
            });
        }
        lost.retain(|_, flows| !flows.is_empty());
        taken
    }

    /// Begins to reset drained flows, and forgets flows that have been reset for as long as `memory`.
    pub fn advance(&mut self, now: Instant, memory: Duration) -> LostFlowChange {
        let (mut change, count) = (LostFlowChange::default(), &mut self.count);
        for (frontend, flows) in &mut self.lost {
            flows.retain(|endpoint, loss| {
                let flow = (*frontend, *endpoint);
                let is_over = loss.is_reset && loss.drained + memory <= now;
                if is_over {
                    change.removed.push(flow);
                    *count -= 1;
                } else if !loss.is_reset && loss.drained <= now {
                    loss.is_reset = true;
                    change.added.push(flow);
                }
                !is_over
            });
        }
        self.lost.retain(|_, flows| !flows.is_empty());
        change
    }

    /// Returns when [`LostFlows::advance`] has work.
    pub fn next(&self, memory: Duration) -> Option<Instant> {
        let losses = self.lost.values().flat_map(BTreeMap::values);
        losses.map(|loss| if loss.is_reset { loss.drained + memory } else { loss.drained }).min()
    }

    pub fn port(&self, name: &ServicePortName) -> Option<&TrackedPort> {
        self.ports.get(name)
    }

    /// Forgets flows whose drain has ended, and returns them: for a mode that ends a flow once.
    pub fn take_drained(&mut self, now: Instant) -> Vec<LostFlow> {
        let (mut taken, count) = (Vec::new(), &mut self.count);
        for (frontend, flows) in &mut self.lost {
            flows.retain(|endpoint, loss| {
                let is_over = loss.drained <= now;
                *count -= usize::from(is_over);
                taken.extend(is_over.then_some((*frontend, *endpoint)));
                !is_over
            });
        }
        self.lost.retain(|_, flows| !flows.is_empty());
        taken
    }

    /// Returns when [`LostFlows::take_drained`] has work.
    pub fn next_drained(&self) -> Option<Instant> {
        self.lost.values().flat_map(BTreeMap::values).map(|loss| loss.drained).min()
    }

    /// Returns the endpoints to which flows to a frontend may stay: they serve, or drain. `None`: any.
    pub fn allowed(&self, frontend: &Frontend) -> Option<BTreeSet<SocketAddr>> {
        let owner = self.owner(frontend);
        if owner.is_some_and(|owner| owner.fate == FlowFate::Keep) {
            return None;
        }
        let draining = self.lost.get(frontend).into_iter().flat_map(BTreeMap::keys);
        Some(owner.into_iter().flat_map(|owner| &owner.serving).chain(draining).copied().collect())
    }

    /// Returns the flows to reset.
    pub fn reset(&self) -> impl Iterator<Item = LostFlow> {
        let losses = self.lost.iter().flat_map(|(frontend, flows)| flows.iter().map(move |flow| (*frontend, flow)));
        losses.filter(|(_, (_, loss))| loss.is_reset).map(|(frontend, (endpoint, _))| (frontend, *endpoint))
    }

    /// Adopts what a previous proxy reset: destinations and endpoints. Node ports have one of `node_addresses`.
    pub fn adopt(
        &mut self,
        found: impl Iterator<Item = (SocketAddr, SocketAddr)>,
        node_addresses: &[IpAddr],
        now: Instant,
    ) {
        for (destination, endpoint) in found {
            let address = Frontend::Address(destination);
            let on_node = node_addresses.contains(&destination.ip()) && self.owner(&address).is_none();
            let frontend = if on_node { Frontend::NodePort(destination.port()) } else { address };
            self.lose((frontend, endpoint), FlowFate::Reset, now, &mut LostFlowChange::default());
        }
    }

    /// Adopts flows to which a previous proxy's rules led, with the fate of the frontend's present owner.
    pub fn adopt_served(&mut self, found: impl Iterator<Item = LostFlow>, now: Instant) {
        for flow in found {
            let fate = self.owner(&flow.0).map_or(FlowFate::Keep, |owner| owner.fate);
            self.lose(flow, fate, now, &mut LostFlowChange::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::port_name;

    const MEMORY: Duration = Duration::from_secs(100);
    const ONE: &str = "10.244.1.5:80";
    const TWO: &str = "10.244.2.6:80";

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    fn frontend(address: &str) -> Frontend {
        Frontend::Address(at(address))
    }

    const CLUSTER_IP: &str = "10.96.0.1:80";

    fn port(fate: FlowFate, serving: &[&str]) -> Option<TrackedPort> {
        let serving = if fate == FlowFate::Keep { &[] } else { serving };
        let serving = serving.iter().map(|address| at(address)).collect();
        Some(TrackedPort { fate, frontends: vec![frontend(CLUSTER_IP), Frontend::NodePort(30_080)], serving })
    }

    fn name(service: &str) -> ServicePortName {
        port_name(service, Protocol::Tcp)
    }

    fn both(endpoint: &str) -> Vec<LostFlow> {
        vec![(frontend(CLUSTER_IP), at(endpoint)), (Frontend::NodePort(30_080), at(endpoint))]
    }

    fn lost(flows: &LostFlows) -> Vec<LostFlow> {
        flows.reset().collect()
    }

    #[test]
    fn flows_of_a_lost_endpoint_are_reset_until_it_serves_again() {
        let (mut flows, now) = (LostFlows::default(), Instant::now());
        let mut change = |serving: &[&str]| {
            let change = flows.replace(vec![(name("web"), port(FlowFate::Reset, serving))], now);
            (change.added, change.removed)
        };
        assert_eq!(change(&[ONE, TWO]), (vec![], vec![]));
        assert_eq!(change(&[TWO]), (both(ONE), vec![]));
        assert_eq!(change(&[TWO]), (vec![], vec![]));
        assert_eq!(change(&[]), (both(TWO), vec![]));
        assert_eq!(change(&[ONE]), (vec![], both(ONE)));
        assert_eq!(lost(&flows), both(TWO));
        assert_eq!(flows.advance(now + MEMORY, MEMORY).removed, both(TWO), "no entry of conntrack is as old");
        assert_eq!((flows.count, flows.next(MEMORY)), (0, None));
    }

    #[test]
    fn a_drain_resets_what_has_not_returned_in_time() {
        let (mut flows, now) = (LostFlows::default(), Instant::now());
        let later = |seconds| now + Duration::from_secs(seconds);
        let fate = FlowFate::Drain(30);
        flows.replace(vec![(name("web"), port(fate, &[ONE, TWO]))], now);
        assert_eq!(flows.replace(vec![(name("web"), None)], now), LostFlowChange::default());
        assert_eq!(flows.next(MEMORY), Some(later(30)));
        assert_eq!(flows.advance(later(29), MEMORY), LostFlowChange::default());
        let back = flows.replace(vec![(name("web"), port(fate, &[TWO]))], later(29));
        assert_eq!(back, LostFlowChange::default());
        assert_eq!(flows.advance(later(30), MEMORY).added, both(ONE));
        assert_eq!(flows.next(MEMORY), Some(later(130)));
    }

    #[test]
    fn a_service_that_keeps_connections_or_has_taken_the_address_is_not_touched() {
        let (mut flows, now) = (LostFlows::default(), Instant::now());
        flows.replace(vec![(name("web"), port(FlowFate::Reset, &[ONE, TWO]))], now);
        assert_eq!(flows.replace(vec![(name("web"), port(FlowFate::Keep, &[]))], now), LostFlowChange::default());
        flows.replace(vec![(name("web"), port(FlowFate::Reset, &[ONE, TWO]))], now);
        for taker in ["aaa", "zzz"] {
            let mut flows = flows.clone();
            let moved = vec![(name("web"), None), (name(taker), port(FlowFate::Keep, &[]))];
            assert_eq!(flows.replace(moved, now), LostFlowChange::default(), "{taker}");
            // A taker in an earlier sync.
            let mut flows = LostFlows::default();
            flows.replace(vec![(name("web"), port(FlowFate::Reset, &[ONE, TWO]))], now);
            flows.replace(vec![(name(taker), port(FlowFate::Reset, &[ONE]))], now);
            assert_eq!(flows.replace(vec![(name("web"), None)], now).added, both(TWO), "{taker}");
        }
        let all = flows.replace_all(BTreeMap::from([(name("zzz"), port(FlowFate::Reset, &[ONE]).unwrap())]), now);
        assert_eq!(all.added, both(TWO), "the endpoint that both have keeps its connections");
    }

    #[test]
    fn a_successor_adopts_what_was_reset_and_what_was_lost_meanwhile() {
        let (mut flows, now) = (LostFlows::default(), Instant::now());
        flows.replace(vec![(name("web"), port(FlowFate::Reset, &[TWO]))], now);
        let node: IpAddr = "172.18.0.2".parse().unwrap();
        let found = [(at(CLUSTER_IP), at(ONE)), (SocketAddr::new(node, 30_080), at(ONE)), (at(CLUSTER_IP), at(TWO))];
        flows.adopt(found.into_iter(), &[node], now);
        assert_eq!(lost(&flows), both(ONE));
        let served = [ONE, TWO, "10.244.3.7:80"].map(|endpoint| (frontend(CLUSTER_IP), at(endpoint)));
        let other = (frontend("10.96.0.2:80"), at(ONE));
        flows.adopt_served(served.into_iter().chain([other]), now);
        let added = (frontend(CLUSTER_IP), at("10.244.3.7:80"));
        assert_eq!(lost(&flows), [both(ONE)[0], added, both(ONE)[1]]);
    }

    #[test]
    fn memory_is_bounded() {
        let (mut flows, now) = (LostFlows::default(), Instant::now());
        let serving = (0..MOST).map(|number| {
            let octets = u32::try_from(number).unwrap().to_be_bytes();
            SocketAddr::new([10, octets[1], octets[2], octets[3]].into(), 80)
        });
        let all = TrackedPort {
            fate: FlowFate::Reset,
            frontends: vec![frontend(CLUSTER_IP), Frontend::NodePort(1)],
            serving: serving.collect(),
        };
        flows.replace(vec![(name("web"), Some(all))], now);
        assert_eq!(flows.replace(vec![(name("web"), None)], now).added.len(), MOST);
    }
}
