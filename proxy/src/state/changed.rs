use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::{ObjectKey, ServicePortName};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedPorts {
    pub service_ports: BTreeSet<ServicePortName>,
    /// Whether the Node changed, which may affect every service port.
    pub node: bool,
    pub service_cidrs: bool,
    /// How many parts (see [`ChangedPorts::take_part`]) left out a service port.
    pub(super) left: BTreeMap<ServicePortName, u32>,
}

impl ChangedPorts {
    pub fn is_empty(&self) -> bool {
        !self.node && !self.service_cidrs && self.service_ports.is_empty()
    }

    pub fn merge(&mut self, mut later: ChangedPorts) {
        self.service_ports.append(&mut later.service_ports);
        self.node |= later.node;
        self.service_cidrs |= later.service_cidrs;
    }

    /// Takes service ports with a total weight of at most `most`, but at least one: half for those left out before,
    /// oldest first, the rest for the lightest Services.
    pub(super) fn take_part(&mut self, most: usize, weight: impl Fn(&ServicePortName) -> usize) -> ChangedPorts {
        let mut services: BTreeMap<&ObjectKey, usize> = BTreeMap::new();
        for name in &self.service_ports {
            *services.entry(&name.service).or_default() += weight(name);
        }
        if services.values().sum::<usize>() <= most {
            return std::mem::take(self);
        }
        let of_service = |name: &ServicePortName| services.get(&name.service).copied().unwrap_or_default();
        let mut lightest: Vec<_> = self.service_ports.iter().map(|name| (of_service(name), name)).collect();
        lightest.sort_unstable();
        let mut oldest: Vec<_> =
            self.left.iter().map(|(name, parts)| (Reverse(*parts), of_service(name), name)).collect();
        oldest.sort_unstable();
        let oldest = oldest.into_iter().map(|(.., name)| (name, most / 2));
        let (mut service_ports, mut taken) = (BTreeSet::new(), 0);
        for (name, limit) in oldest.chain(lightest.into_iter().map(|(_, name)| (name, most))) {
            let heavier = taken + weight(name);
            if (taken == 0 || heavier <= limit) && service_ports.insert(name.clone()) {
                taken = heavier;
            }
        }
        self.service_ports.retain(|name| !service_ports.contains(name));
        let parts = |name: &ServicePortName| self.left.get(name).map_or(1, |parts| parts.saturating_add(1));
        self.left = self.service_ports.iter().map(|name| (name.clone(), parts(name))).collect();
        let (node, service_cidrs) = (std::mem::take(&mut self.node), std::mem::take(&mut self.service_cidrs));
        ChangedPorts { service_ports, node, service_cidrs, left: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Protocol;

    fn names(service: &str, ports: std::ops::Range<u32>) -> impl Iterator<Item = ServicePortName> {
        let service = crate::testing::key(service);
        let port = |port: u32| port.to_string().into();
        ports.map(move |number| ServicePortName {
            service: service.clone(),
            port: port(number),
            protocol: Protocol::Tcp,
        })
    }

    #[test]
    fn light_services_go_first_and_the_rest_in_parts() {
        let all: BTreeSet<_> = names("a-large", 0..50).chain(names("b", 0..2)).chain(names("c", 0..1)).collect();
        let mut changed = ChangedPorts { service_ports: all.clone(), service_cidrs: true, ..ChangedPorts::default() };
        let mut parts = Vec::new();
        while !changed.is_empty() {
            parts.push(changed.take_part(20, |_| 1));
        }
        assert_eq!(parts.iter().map(|part| part.service_ports.len()).collect::<Vec<_>>(), [20, 20, 13]);
        assert!(names("b", 0..2).chain(names("c", 0..1)).all(|name| parts[0].service_ports.contains(&name)));
        assert!(parts[0].service_cidrs && !parts[1].service_cidrs);
        assert_eq!(parts.into_iter().flat_map(|part| part.service_ports).collect::<BTreeSet<_>>(), all);
    }

    #[test]
    fn left_out_service_ports_get_half_of_the_next_part() {
        let mut changed = ChangedPorts { service_ports: names("heavy", 0..30).collect(), ..ChangedPorts::default() };
        for round in 0..4 {
            for index in 0..30 {
                changed.service_ports.extend(names(&format!("light-{round}-{index}"), 0..1));
            }
            let part = changed.take_part(20, |_| 1).service_ports;
            let of_heavy = part.iter().filter(|name| name.service.name == "heavy").count();
            assert_eq!((part.len(), of_heavy), (20, [0, 0, 10, 10][round]), "{round}");
        }
    }

    #[test]
    fn a_service_port_heavier_than_the_limit_is_taken_alone() {
        let mut changed = ChangedPorts { service_ports: names("a", 0..2).collect(), ..ChangedPorts::default() };
        assert_eq!(changed.take_part(1, |_| 5).service_ports.len(), 1);
        assert_eq!(changed.service_ports.len(), 1);
    }
}
