//! The health checks that Services ask for, as of the last sync.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tracing::warn;

use crate::events::{About, Event, Recorder};
use crate::health::{HealthState, ServiceHealth, ServiceHealthServers};
use crate::mode::Mode;
use crate::mode::family::FamilyProxy;
use crate::model::Family;
use crate::plan::NodePortScope;

/// Listeners of the `healthCheckNodePort`s, and what was said about those that could not be opened.
#[derive(Debug)]
pub struct HealthChecks {
    servers: ServiceHealthServers,
    told: BTreeSet<String>,
}

impl HealthChecks {
    /// None yet.
    pub fn new(proxy: HealthState) -> HealthChecks {
        HealthChecks { servers: ServiceHealthServers::new(proxy), told: BTreeSet::new() }
    }

    /// Brings the listeners to what the families' last syncs planned.
    pub(super) fn sync<M: Mode>(&mut self, families: &[FamilyProxy<M>], events: &Recorder) {
        let addresses = families.iter().flat_map(node_port_addresses).collect();
        let mut told = BTreeSet::new();
        for unserved in self.servers.sync(wanted(families), &addresses) {
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
}

fn wanted<M: Mode>(families: &[FamilyProxy<M>]) -> BTreeMap<u16, ServiceHealth> {
    let mut wanted: BTreeMap<u16, ServiceHealth> = BTreeMap::new();
    for (name, check) in families.iter().flat_map(FamilyProxy::health_checks) {
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

/// Health-check node ports listen where node ports do.
fn node_port_addresses<M: Mode>(family: &FamilyProxy<M>) -> Vec<IpAddr> {
    match (family.node_plan().node_ports, family.family()) {
        (NodePortScope::Addresses(addresses), _) => addresses,
        (NodePortScope::EveryLocalAddress { .. }, Family::V4) => vec![Ipv4Addr::UNSPECIFIED.into()],
        (NodePortScope::EveryLocalAddress { .. }, Family::V6) => vec![Ipv6Addr::UNSPECIFIED.into()],
    }
}
