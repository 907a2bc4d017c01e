//! `healthCheckNodePort`s of one family, by Service, and their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{HealthCheck, ServicePortPlan};
use crate::model::{ObjectKey, Protocol, ServicePortName, ShortString};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCheck {
    pub port: u16,
    /// The number of local pods with a ready endpoint, each counted once (upstream's `LocalReadyEndpoints` in
    /// pkg/proxy/endpointschangetracker.go).
    pub local_endpoints: usize,
}

#[derive(Debug, Default)]
pub struct HealthCheckTracker {
    ports: BTreeMap<ServicePortName, HealthCheck>,
    changed: BTreeSet<ObjectKey>,
}

impl HealthCheckTracker {
    /// Records a plan; `None`: the service port was deleted.
    pub fn record(&mut self, name: &ServicePortName, plan: Option<&ServicePortPlan>) {
        let check = plan.and_then(|plan| plan.health_check.as_ref());
        if self.ports.get(name) == check {
            return;
        }
        match check {
            Some(check) => self.ports.insert(name.clone(), check.clone()),
            None => self.ports.remove(name),
        };
        self.changed.insert(name.service.clone());
    }

    pub fn retain(&mut self, exists: impl Fn(&ServicePortName) -> bool) {
        let gone: Vec<ServicePortName> = self.ports.keys().filter(|name| !exists(name)).cloned().collect();
        gone.iter().for_each(|name| self.record(name, None));
    }

    /// Returns the checks changed since the last call. `None`: the check was removed.
    pub fn take_changed(&mut self) -> Vec<(ObjectKey, Option<ServiceCheck>)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|service| (self.of(&service), service))
            .map(|(check, service)| (service, check))
            .collect()
    }

    /// Returns the Service's check. All its ports have the same `healthCheckNodePort`.
    fn of(&self, service: &ObjectKey) -> Option<ServiceCheck> {
        let first = ServicePortName { service: service.clone(), port: ShortString::default(), protocol: Protocol::Tcp };
        let ports = self.ports.range(first..).take_while(|(name, _)| name.service == *service);
        let mut ports = ports.map(|(_, check)| check).peekable();
        let port = ports.peek()?.port;
        let pods: BTreeSet<IpAddr> = ports.flat_map(|check| check.local_ready.iter().copied()).collect();
        Some(ServiceCheck { port, local_endpoints: pods.len() })
    }
}
