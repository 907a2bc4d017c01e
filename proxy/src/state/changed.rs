//! What a sync has to bring to the kernel.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{ObjectKey, Protocol, ServicePortName};

/// What changed since it was last asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Service ports that appeared, changed or went.
    pub service_ports: BTreeSet<ServicePortName>,
    /// The Node object changed, which may concern every service port.
    pub node: bool,
    /// The ranges that cluster IPs come from changed.
    pub service_cidrs: bool,
}

impl Changed {
    /// Nothing changed.
    pub fn is_empty(&self) -> bool {
        !self.node && !self.service_cidrs && self.service_ports.is_empty()
    }

    /// Adds what changed later.
    pub fn merge(&mut self, mut later: Changed) {
        self.service_ports.append(&mut later.service_ports);
        self.node |= later.node;
        self.service_cidrs |= later.service_cidrs;
    }

    /// Takes out all but service ports that together weigh more than `most`: of the heaviest Services those that are left when the others
    /// have theirs. One service port at least is taken.
    pub(super) fn take_part(&mut self, most: usize, weight: impl Fn(&ServicePortName) -> usize) -> Changed {
        let mut services: BTreeMap<&ObjectKey, usize> = BTreeMap::new();
        for name in &self.service_ports {
            *services.entry(&name.service).or_default() += weight(name);
        }
        if services.values().sum::<usize>() <= most {
            return std::mem::take(self);
        }
        let mut lightest: Vec<_> = services.into_iter().map(|(service, weight)| (weight, service)).collect();
        lightest.sort_unstable();
        let mut taken = 0;
        let names = lightest.into_iter().flat_map(|(_, service)| {
            let first = ServicePortName { service: service.clone(), port: String::new(), protocol: Protocol::Tcp };
            self.service_ports.range(first..).take_while(move |name| name.service == *service)
        });
        let fits = |name: &&ServicePortName| {
            let is_first = taken == 0;
            taken += weight(name);
            is_first || taken <= most
        };
        let service_ports: BTreeSet<ServicePortName> = names.take_while(fits).cloned().collect();
        self.service_ports.retain(|name| !service_ports.contains(name));
        let (node, service_cidrs) = (std::mem::take(&mut self.node), std::mem::take(&mut self.service_cidrs));
        Changed { service_ports, node, service_cidrs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(service: &str, ports: std::ops::Range<u32>) -> impl Iterator<Item = ServicePortName> {
        let service = ObjectKey { namespace: "default".into(), name: service.into() };
        let name = move |port: u32| (service.clone(), port.to_string());
        ports.map(name).map(|(service, port)| ServicePortName { service, port, protocol: Protocol::Tcp })
    }

    #[test]
    fn services_with_little_to_send_go_first_and_the_rest_in_pieces() {
        let all: BTreeSet<_> = names("a-large", 0..50).chain(names("b", 0..2)).chain(names("c", 0..1)).collect();
        let mut changed = Changed { service_ports: all.clone(), service_cidrs: true, node: false };
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
    fn one_that_is_too_heavy_alone_is_taken_alone() {
        let mut changed = Changed { service_ports: names("a", 0..2).collect(), ..Changed::default() };
        assert_eq!(changed.take_part(1, |_| 5).service_ports.len(), 1);
        assert_eq!(changed.service_ports.len(), 1);
    }
}
