//! Other machines' addresses that Services publish, such as node addresses by k3s' ServiceLB. IPVS mode binds frontend
//! addresses, and would cut the node off from the other machine (kubernetes#127410, #104679, #93175).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::ServicePortPlan;
use crate::config::{Config, Mode, NodeAddresses};
use crate::model::{Family, ObjectKey, ServicePortName};
use crate::state::State;

/// Returns the addresses of other known Node objects and of API servers, and routes' next hops. Empty unless the mode
/// binds addresses.
pub fn other_machines(config: &Config, state: &State, addresses: &NodeAddresses) -> BTreeSet<IpAddr> {
    if config.mode != Mode::Ipvs {
        return BTreeSet::new();
    }
    let next_hops = addresses.next_hops.iter().copied().filter(|ip| Family::of(ip) == state.family());
    let known = state.other_machines().chain(next_hops);
    let own = |ip: &IpAddr| addresses.local.contains(ip) || state.node().addresses.contains(ip);
    known.filter(|ip| !own(ip)).collect()
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedAddresses(BTreeMap<ServicePortName, Vec<IpAddr>>);

impl PublishedAddresses {
    /// Records a plan; `None`: the service port was deleted.
    pub fn record(&mut self, name: &ServicePortName, plan: Option<&ServicePortPlan>) {
        let external = plan.and_then(|plan| plan.external.as_ref());
        match external.map(|external| &external.of_other_machines).filter(|addresses| !addresses.is_empty()) {
            Some(addresses) => drop(self.0.insert(name.clone(), addresses.clone())),
            None => drop(self.0.remove(name)),
        }
    }

    pub fn by_service(&self) -> BTreeMap<&ObjectKey, BTreeSet<IpAddr>> {
        let mut services: BTreeMap<&ObjectKey, BTreeSet<IpAddr>> = BTreeMap::new();
        for (name, addresses) in &self.0 {
            services.entry(&name.service).or_default().extend(addresses);
        }
        services
    }
}
