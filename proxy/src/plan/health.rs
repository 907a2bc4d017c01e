//! `healthCheckNodePort`s of one family, by Service: kept as its service ports are planned, reported as changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{HealthCheck, ServicePortPlan};
use crate::model::{ObjectKey, Protocol, ServicePortName};

/// What a Service's health check is to answer on this node, in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCheck {
    /// The port.
    pub port: u16,
    /// Pods of this node with a ready endpoint: each address counts once, whatever ports lead to it (upstream's
    /// `LocalReadyEndpoints` in pkg/proxy/endpointschangetracker.go).
    pub local_endpoints: usize,
}

/// The checks, and of which Services they changed.
#[derive(Debug, Default)]
pub struct Checks {
    ports: BTreeMap<ServicePortName, HealthCheck>,
    changed: BTreeSet<ObjectKey>,
}

impl Checks {
    /// A service port was planned, or is gone. The cost is that of the one port.
    pub fn note(&mut self, name: &ServicePortName, plan: Option<&ServicePortPlan>) {
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

    /// Service ports that are `there` no more are gone.
    pub fn keep(&mut self, there: impl Fn(&ServicePortName) -> bool) {
        let gone: Vec<ServicePortName> = self.ports.keys().filter(|name| !there(name)).cloned().collect();
        gone.iter().for_each(|name| self.note(name, None));
    }

    /// What changed since the last call: by Service the check, or nothing where there is none any more.
    pub fn take_changed(&mut self) -> Vec<(ObjectKey, Option<ServiceCheck>)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|service| (self.of(&service), service))
            .map(|(check, service)| (service, check))
            .collect()
    }

    /// All of a Service's ports have the same number to be asked by, as it stands in the Service.
    fn of(&self, service: &ObjectKey) -> Option<ServiceCheck> {
        let first = ServicePortName { service: service.clone(), port: String::new(), protocol: Protocol::Tcp };
        let ports = self.ports.range(first..).take_while(|(name, _)| name.service == *service);
        let mut ports = ports.map(|(_, check)| check).peekable();
        let port = ports.peek()?.port;
        let pods: BTreeSet<IpAddr> = ports.flat_map(|check| check.local_ready.iter().copied()).collect();
        Some(ServiceCheck { port, local_endpoints: pods.len() })
    }
}
