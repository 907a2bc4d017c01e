//! Finds the service ports whose conntrack entries may be stale. Unchanged service ports and added endpoints cost
//! nothing; a walk of the kernel's conntrack table takes milliseconds even if it is empty.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::stale_flows::{Frontend, needs_conntrack_cleanup};
use crate::model::{Protocol, ServicePortName};
use crate::state::service::ServicePort;

type FrontendKey = (Protocol, Frontend);

#[derive(Debug, Default)]
pub struct ConntrackIndex {
    of_port: BTreeMap<ServicePortName, IndexedPort>,
    /// A frontend has one owner ([`crate::state::claims`]).
    owner: BTreeMap<FrontendKey, ServicePortName>,
    due: BTreeMap<FrontendKey, DueFlows>,
}

#[derive(Debug, Default)]
struct IndexedPort {
    frontends: BTreeSet<FrontendKey>,
    servers: BTreeSet<SocketAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DueFlows {
    /// All flows to the frontend: it was added or removed, or had no server.
    All,
    ToServers(BTreeSet<SocketAddr>),
}

impl DueFlows {
    fn and(&mut self, other: DueFlows) {
        match (&mut *self, other) {
            (DueFlows::ToServers(servers), DueFlows::ToServers(more)) => servers.extend(more),
            (all, _) => *all = DueFlows::All,
        }
    }
}

impl ConntrackIndex {
    /// Records servers. `None`: the service port was deleted.
    pub fn record(&mut self, name: &ServicePortName, now: Option<(&ServicePort, BTreeSet<SocketAddr>)>) {
        if !needs_conntrack_cleanup(name.protocol) {
            return;
        }
        let now = now.map(|(port, servers)| {
            let frontends = port.frontends().map(|frontend| (name.protocol, frontend)).collect();
            IndexedPort { frontends, servers }
        });
        let (now, before) = (now.unwrap_or_default(), self.of_port.remove(name).unwrap_or_default());
        let lost: BTreeSet<SocketAddr> = before.servers.difference(&now.servers).copied().collect();
        for key in &before.frontends {
            // A new owner may already be recorded.
            if self.owner.get(key) == Some(name) {
                self.owner.remove(key);
            }
        }
        for key in before.frontends.union(&now.frontends) {
            let stays = before.frontends.contains(key) && now.frontends.contains(key);
            let due =
                if stays && !before.servers.is_empty() { DueFlows::ToServers(lost.clone()) } else { DueFlows::All };
            if due != DueFlows::ToServers(BTreeSet::new()) {
                self.due.entry(*key).or_insert_with(|| DueFlows::ToServers(BTreeSet::new())).and(due);
            }
        }
        self.owner.extend(now.frontends.iter().map(|key| (*key, name.clone())));
        if !now.frontends.is_empty() {
            self.of_port.insert(name.clone(), now);
        }
    }

    /// Replaces all records, and makes all flows due.
    pub fn record_all(&mut self, ports: impl Iterator<Item = (impl Borrow<ServicePort>, BTreeSet<SocketAddr>)>) {
        self.of_port.values_mut().for_each(|known| known.servers.clear());
        let mut gone: BTreeSet<ServicePortName> = self.of_port.keys().cloned().collect();
        for (port, servers) in ports {
            let port = port.borrow();
            gone.remove(&port.name);
            self.record(&port.name, Some((port, servers)));
        }
        gone.iter().for_each(|name| self.record(name, None));
    }

    pub fn add_previous(&mut self, found: impl IntoIterator<Item = FrontendKey>) {
        self.due.extend(found.into_iter().map(|key| (key, DueFlows::All)));
    }

    pub fn due(&self) -> &BTreeMap<FrontendKey, DueFlows> {
        &self.due
    }

    pub fn ports_due(&self) -> BTreeSet<&ServicePortName> {
        self.due.keys().filter_map(|key| self.owner.get(key)).collect()
    }

    pub fn clear_due(&mut self) {
        self.due.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{port_name, service_port};

    fn port(service: &str, protocol: Protocol, cluster_ip: &str) -> ServicePort {
        ServicePort { port: 53, ..service_port(port_name(service, protocol), cluster_ip) }
    }

    fn due(index: &ConntrackIndex) -> Vec<String> {
        let text = |((protocol, frontend), due): (&FrontendKey, &DueFlows)| {
            let frontend = match frontend {
                Frontend::Address(address) => address.to_string(),
                Frontend::NodePort(port) => format!("node port {port}"),
            };
            match due {
                DueFlows::All => format!("{protocol} {frontend}"),
                DueFlows::ToServers(servers) => {
                    let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
                    format!("{protocol} {frontend} to {}", servers.join(", "))
                }
            }
        };
        index.due().iter().map(text).collect()
    }

    fn servers(hosts: &[u8]) -> BTreeSet<SocketAddr> {
        hosts.iter().map(|host| SocketAddr::from(([10, 244, 0, *host], 53))).collect()
    }

    #[test]
    fn only_changed_frontends_are_due_with_their_new_owner() {
        let mut index = ConntrackIndex::default();
        let (dns, log) = (port("dns", Protocol::Udp, "10.96.0.10"), port("log", Protocol::Udp, "10.96.0.11"));
        index.record_all(
            [&dns, &log, &port("web", Protocol::Tcp, "10.96.0.12")].map(|port| (port, servers(&[1]))).into_iter(),
        );
        assert_eq!(due(&index), ["udp 10.96.0.10:53", "udp 10.96.0.11:53"]);
        index.clear_due();
        assert!(index.due().is_empty() && index.ports_due().is_empty());
        index.record(&dns.name, Some((&dns, servers(&[2]))));
        assert_eq!(due(&index), ["udp 10.96.0.10:53 to 10.244.0.1:53"]);
        assert_eq!(index.ports_due(), [&dns.name].into());
        index.clear_due();
        let (moved, without) =
            (port("dns", Protocol::Udp, "10.96.0.11"), ServicePort { cluster_ip: None, ..log.clone() });
        for order in [[&moved, &without], [&without, &moved]] {
            index.record_all([&dns, &log].map(|port| (port, servers(&[1]))).into_iter());
            index.clear_due();
            order.into_iter().for_each(|port| index.record(&port.name, Some((port, servers(&[1])))));
            assert_eq!(due(&index), ["udp 10.96.0.10:53", "udp 10.96.0.11:53"], "where it was, too");
            assert_eq!(index.ports_due(), [&dns.name].into(), "who has it now, and no other");
            index.clear_due();
        }
        index.record_all([(&log, servers(&[1]))].into_iter());
        assert_eq!(due(&index), ["udp 10.96.0.11:53"], "of the one that is gone, too");
        assert_eq!(index.ports_due(), [&log.name].into());
        index.clear_due();
        index.add_previous([(Protocol::Sctp, Frontend::NodePort(30_053))]);
        assert_eq!(due(&index), ["sctp node port 30053"]);
    }
    #[test]
    fn flows_are_due_after_a_lost_or_a_first_server() {
        let dns = port("dns", Protocol::Udp, "10.96.0.10");
        let mut index = ConntrackIndex::default();
        let record = |index: &mut ConntrackIndex, hosts: &[u8]| {
            index.record(&dns.name, Some((&dns, servers(hosts))));
            due(index)
        };
        assert_eq!(record(&mut index, &[]), ["udp 10.96.0.10:53"], "it comes");
        index.clear_due();
        assert_eq!(record(&mut index, &[1, 2]), ["udp 10.96.0.10:53"], "it led nowhere");
        index.clear_due();
        assert_eq!(record(&mut index, &[1, 2]), [""; 0], "the same");
        assert_eq!(record(&mut index, &[1, 2, 3]), [""; 0], "one more");
        assert_eq!(record(&mut index, &[1, 3]), ["udp 10.96.0.10:53 to 10.244.0.2:53"], "one less");
        let both = ["udp 10.96.0.10:53 to 10.244.0.1:53, 10.244.0.2:53"];
        assert_eq!(record(&mut index, &[3, 2]), both, "another one, before anybody has looked");
        assert_eq!(index.ports_due(), [&dns.name].into());
        index.record_all([(&dns, servers(&[3, 2]))].into_iter());
        assert_eq!(due(&index), ["udp 10.96.0.10:53"], "when all are required");
        index.clear_due();
        assert_eq!(record(&mut index, &[]), ["udp 10.96.0.10:53 to 10.244.0.2:53, 10.244.0.3:53"], "scaled to zero");
        index.record(&dns.name, None);
        assert_eq!(due(&index), ["udp 10.96.0.10:53"], "it goes");
    }
}
