//! The frontends of UDP and SCTP service ports, kept up to date as service ports change, and which of them conntrack's entries
//! must be looked at for. What did not change costs nothing.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use super::flows::{Frontend, needs_conntrack_cleanup};
use crate::model::{Protocol, ServicePortName};
use crate::state::service::ServicePort;

type Key = (Protocol, Frontend);

/// The index, and what is due.
#[derive(Debug, Default)]
pub struct ConntrackFrontends {
    of_port: BTreeMap<ServicePortName, BTreeSet<Key>>,
    /// A frontend has one owner ([`crate::state::claims`]).
    owner: BTreeMap<Key, ServicePortName>,
    due: BTreeSet<Key>,
}

impl ConntrackFrontends {
    /// A service port stands so now, or is gone: flows to its frontends, earlier and present, must be looked at.
    pub fn note(&mut self, name: &ServicePortName, port: Option<&ServicePort>) {
        if !needs_conntrack_cleanup(name.protocol) {
            return;
        }
        let keys = |port: &ServicePort| port.frontends().map(|frontend| (name.protocol, frontend)).collect();
        let now: BTreeSet<Key> = port.map(keys).unwrap_or_default();
        for key in self.of_port.remove(name).unwrap_or_default() {
            // Its new owner may have been noted before.
            if self.owner.get(&key) == Some(name) {
                self.owner.remove(&key);
            }
            self.due.insert(key);
        }
        for key in &now {
            self.owner.insert(*key, name.clone());
            self.due.insert(*key);
        }
        if !now.is_empty() {
            self.of_port.insert(name.clone(), now);
        }
    }

    /// These are all service ports; those that were known besides are gone.
    pub fn note_all(&mut self, ports: impl Iterator<Item = impl Borrow<ServicePort>>) {
        let mut gone: BTreeSet<ServicePortName> = self.of_port.keys().cloned().collect();
        for port in ports {
            let port = port.borrow();
            gone.remove(&port.name);
            self.note(&port.name, Some(port));
        }
        gone.iter().for_each(|name| self.note(name, None));
    }

    /// A predecessor's rules led these somewhere.
    pub fn found(&mut self, found: impl IntoIterator<Item = Key>) {
        self.due.extend(found);
    }

    /// What must be looked at.
    pub fn due(&self) -> &BTreeSet<Key> {
        &self.due
    }

    /// The service ports with a frontend that is due.
    pub fn ports_due(&self) -> BTreeSet<&ServicePortName> {
        self.due.iter().filter_map(|key| self.owner.get(key)).collect()
    }

    /// It was looked at.
    pub fn judged(&mut self) {
        self.due.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ObjectKey;
    use crate::state::service::TrafficPolicy;

    fn port(service: &str, protocol: Protocol, cluster_ip: &str) -> ServicePort {
        let service = ObjectKey { namespace: "default".into(), name: service.into() };
        ServicePort {
            name: ServicePortName { service, port: String::new(), protocol },
            cluster_ip: Some(cluster_ip.parse().unwrap()),
            port: 53,
            node_port: None,
            external_ips: Vec::new(),
            load_balancer_ips: Vec::new(),
            source_ranges: Vec::new(),
            internal_policy: TrafficPolicy::Cluster,
            external_policy: TrafficPolicy::Cluster,
            affinity: None,
            health_check_node_port: None,
        }
    }

    fn due(index: &ConntrackFrontends) -> Vec<String> {
        let text = |(protocol, frontend): &Key| match frontend {
            Frontend::Address(address) => format!("{protocol} {address}"),
            Frontend::NodePort(port) => format!("{protocol} node port {port}"),
        };
        index.due().iter().map(text).collect()
    }

    #[test]
    fn only_what_changed_is_due_with_who_has_its_address_now() {
        let mut index = ConntrackFrontends::default();
        let (dns, log) = (port("dns", Protocol::Udp, "10.96.0.10"), port("log", Protocol::Udp, "10.96.0.11"));
        index.note_all([&dns, &log, &port("web", Protocol::Tcp, "10.96.0.12")].into_iter());
        assert_eq!(due(&index), ["udp 10.96.0.10:53", "udp 10.96.0.11:53"]);
        index.judged();
        assert!(index.due().is_empty() && index.ports_due().is_empty());
        index.note(&dns.name, Some(&dns));
        assert_eq!(due(&index), ["udp 10.96.0.10:53"]);
        assert_eq!(index.ports_due(), [&dns.name].into());
        index.judged();
        // It gets the other one's address, which is noted after it or before.
        let (moved, without) =
            (port("dns", Protocol::Udp, "10.96.0.11"), ServicePort { cluster_ip: None, ..log.clone() });
        for order in [[&moved, &without], [&without, &moved]] {
            index.note_all([&dns, &log].into_iter());
            index.judged();
            order.into_iter().for_each(|port| index.note(&port.name, Some(port)));
            assert_eq!(due(&index), ["udp 10.96.0.10:53", "udp 10.96.0.11:53"], "where it was, too");
            assert_eq!(index.ports_due(), [&dns.name].into(), "who has it now, and no other");
            index.judged();
        }
        index.note_all([&log].into_iter());
        assert_eq!(due(&index), ["udp 10.96.0.11:53"], "of the one that is gone, too");
        assert_eq!(index.ports_due(), [&log.name].into());
        index.judged();
        index.found([(Protocol::Sctp, Frontend::NodePort(30_053))]);
        assert_eq!(due(&index), ["sctp node port 30053"]);
    }
}
