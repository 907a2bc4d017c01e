//! Addresses of other machines that Services publish, as k3s' ServiceLB does with those of nodes. IPVS answers on addresses that are bound
//! to the node, with all of their ports: to bind another machine's cuts the node off from it (kubernetes#127410, #104679, #93175).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::ServicePortPlan;
use crate::config::{Config, Mode, NodeAddresses};
use crate::model::{Family, ObjectKey, ServicePortName};
use crate::state::State;

/// The addresses of one family that are known to be another machine's: of other Node objects, as far as the source has them, of the
/// API servers, and those that the kernel sends packets to. Empty where no mode binds addresses.
pub fn other_machines(config: &Config, state: &State, addresses: &NodeAddresses) -> BTreeSet<IpAddr> {
    if config.mode != Mode::Ipvs {
        return BTreeSet::new();
    }
    let next_hops = addresses.next_hops.iter().copied().filter(|ip| Family::of(ip) == state.family());
    let known = state.other_machines().chain(next_hops);
    let own = |ip: &IpAddr| addresses.local.contains(ip) || state.node().addresses.contains(ip);
    known.filter(|ip| !own(ip)).collect()
}

/// The service ports that publish such addresses, kept up to date one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published(BTreeMap<ServicePortName, Vec<IpAddr>>);

impl Published {
    /// A service port is planned anew, or is gone.
    pub fn note(&mut self, name: &ServicePortName, plan: Option<&ServicePortPlan>) {
        let external = plan.and_then(|plan| plan.external.as_ref());
        match external.map(|external| &external.of_other_machines).filter(|addresses| !addresses.is_empty()) {
            Some(addresses) => drop(self.0.insert(name.clone(), addresses.clone())),
            None => drop(self.0.remove(name)),
        }
    }

    /// Each Service with the other machines' addresses that it publishes.
    pub fn by_service(&self) -> BTreeMap<&ObjectKey, BTreeSet<IpAddr>> {
        let mut services: BTreeMap<&ObjectKey, BTreeSet<IpAddr>> = BTreeMap::new();
        for (name, addresses) in &self.0 {
            services.entry(&name.service).or_default().extend(addresses);
        }
        services
    }
}
