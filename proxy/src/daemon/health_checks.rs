//! The health checks that Services ask for, as of the last sync.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tracing::warn;

use crate::events::{About, Event, Recorder};
use crate::health::{HealthState, ServiceHealth, ServiceHealthServers};
use crate::mode::Mode;
use crate::mode::family::FamilyProxy;
use crate::model::{Family, ServicePortName};
use crate::plan::{HealthCheck, NodePortScope};

/// Listeners of the `healthCheckNodePort`s, and what was said about those that could not be opened.
#[derive(Debug)]
pub struct HealthChecks {
    servers: ServiceHealthServers,
    told: BTreeSet<String>,
    families: BTreeMap<Family, Wanted>,
}

/// What one family's last sync planned.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    checks: BTreeMap<ServicePortName, HealthCheck>,
    addresses: Vec<IpAddr>,
}

impl HealthChecks {
    /// None yet.
    pub fn new(proxy: HealthState) -> HealthChecks {
        HealthChecks { servers: ServiceHealthServers::new(proxy), told: BTreeSet::new(), families: BTreeMap::new() }
    }

    /// Brings the listeners to what this family's last sync planned, and the others'.
    pub(super) fn sync<M: Mode>(&mut self, family: &FamilyProxy<M>, events: &Recorder) {
        let wanted = Wanted { checks: family.health_checks().clone(), addresses: node_port_addresses(family) };
        if self.told.is_empty() && self.families.get(&family.family()) == Some(&wanted) {
            return;
        }
        self.families.insert(family.family(), wanted);
        let addresses = self.families.values().flat_map(|wanted| wanted.addresses.iter().copied()).collect();
        let mut told = BTreeSet::new();
        for unserved in self.servers.sync(self.wanted(), &addresses) {
            let line = unserved.error.to_string();
            if !self.told.contains(&line) {
                warn!("{line}; load balancers will take this node for unhealthy");
                events.tell(Event {
                    about: About::Service(unserved.service),
                    reason: "FailedToStartServiceHealthcheck",
                    action: "Listen",
                    note: line.clone(),
                });
            }
            told.insert(line);
        }
        self.told = told;
    }

    fn wanted(&self) -> BTreeMap<u16, ServiceHealth> {
        let mut wanted: BTreeMap<u16, ServiceHealth> = BTreeMap::new();
        for (name, check) in self.families.values().flat_map(|wanted| &wanted.checks) {
            // A dual-stack Service has the same pods in both families.
            let entry = wanted.entry(check.port).or_insert_with(|| ServiceHealth {
                namespace: name.service.namespace.clone(),
                name: name.service.name.clone(),
                local_endpoints: 0,
            });
            entry.local_endpoints = entry.local_endpoints.max(check.local_endpoints);
        }
        wanted
    }
}

/// Health-check node ports listen where node ports do.
fn node_port_addresses<M: Mode>(family: &FamilyProxy<M>) -> Vec<IpAddr> {
    match (family.node_plan().node_ports, family.family()) {
        (NodePortScope::Addresses(addresses), _) => addresses,
        (NodePortScope::EveryLocalAddress { .. }, Family::V4) => vec![Ipv4Addr::UNSPECIFIED.into()],
        (NodePortScope::EveryLocalAddress { .. }, Family::V6) => vec![Ipv6Addr::UNSPECIFIED.into()],
    }
}
