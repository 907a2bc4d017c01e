use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tracing::warn;

use crate::events::{Event, EventSubject, Recorder};
use crate::health::{HealthState, ServiceHealthServers};
use crate::http::ConnectionLimit;
use crate::mode::Mode;
use crate::mode::family::FamilyProxy;
use crate::model::{Family, ObjectKey};
use crate::plan::NodePortScope;
use crate::plan::health::ServiceCheck;

/// Each family has its own listeners: a load balancer that checks over IPv6 sends over IPv6.
#[derive(Debug)]
pub struct HealthChecks {
    proxy: HealthState,
    limit: ConnectionLimit,
    families: BTreeMap<Family, FamilyChecks>,
}

#[derive(Debug)]
struct FamilyChecks {
    servers: ServiceHealthServers,
    reported: BTreeSet<String>,
}

impl HealthChecks {
    pub fn new(proxy: HealthState, limit: ConnectionLimit) -> HealthChecks {
        HealthChecks { proxy, limit, families: BTreeMap::new() }
    }

    /// Visits only changed Services.
    pub fn sync<M: Mode>(&mut self, proxy: &mut FamilyProxy<M>, events: &Recorder) {
        let changed = proxy.take_health_changes();
        let family = proxy.family();
        let nothing = self.families.get(&family).is_none_or(|of| of.servers.is_empty());
        if !(changed.is_empty() && nothing) {
            self.sync_family(family, changed, node_port_addresses(proxy), events);
        }
    }

    fn sync_family(
        &mut self,
        family: Family,
        changed: Vec<(ObjectKey, Option<ServiceCheck>)>,
        addresses: BTreeSet<IpAddr>,
        events: &Recorder,
    ) {
        let servers = || ServiceHealthServers::new(self.proxy.clone(), self.limit.clone());
        let fresh = || FamilyChecks { servers: servers(), reported: BTreeSet::new() };
        let of = self.families.entry(family).or_insert_with(fresh);
        let mut reported = BTreeSet::new();
        for unserved in of.servers.update(changed, addresses) {
            let line = unserved.error.to_string();
            if !of.reported.contains(&line) {
                warn!("{line}; load balancers will treat this node as unhealthy");
                events.record(Event::warning(
                    EventSubject::Service(unserved.service),
                    "FailedToStartServiceHealthcheck",
                    "Listen",
                    line.clone(),
                ));
            }
            reported.insert(line);
        }
        of.reported = reported;
    }
}

fn node_port_addresses<M: Mode>(proxy: &FamilyProxy<M>) -> BTreeSet<IpAddr> {
    match (proxy.node_plan().node_ports, proxy.family()) {
        (NodePortScope::Addresses(addresses), _) => addresses.into_iter().collect(),
        (NodePortScope::EveryLocalAddress { .. }, Family::V4) => [Ipv4Addr::UNSPECIFIED.into()].into(),
        (NodePortScope::EveryLocalAddress { .. }, Family::V6) => [Ipv6Addr::UNSPECIFIED.into()].into(),
    }
}
