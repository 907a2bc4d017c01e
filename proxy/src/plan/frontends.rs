//! The frontends of UDP and SCTP service ports and the servers behind them, kept up to date as service ports change, and which
//! of conntrack's entries must be looked at. What did not change costs nothing, and neither does an endpoint that comes: a look
//! walks the kernel's whole table, some milliseconds even where it is empty.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::flows::{Frontend, needs_conntrack_cleanup};
use crate::model::{Protocol, ServicePortName};
use crate::state::service::ServicePort;

type Key = (Protocol, Frontend);

/// The index, and what is due.
#[derive(Debug, Default)]
pub struct ConntrackFrontends {
    of_port: BTreeMap<ServicePortName, Known>,
    /// A frontend has one owner ([`crate::state::claims`]).
    owner: BTreeMap<Key, ServicePortName>,
    due: BTreeMap<Key, Due>,
}

/// A service port, as it was noted last.
#[derive(Debug, Default)]
struct Known {
    frontends: BTreeSet<Key>,
    /// To which its flows may lead.
    servers: BTreeSet<SocketAddr>,
}

/// Which flows to a frontend may be wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// All of them: the frontend came or went, or led nowhere.
    All,
    /// Those to servers that it no longer has.
    To(BTreeSet<SocketAddr>),
}

impl Due {
    fn and(&mut self, other: Due) {
        match (&mut *self, other) {
            (Due::To(servers), Due::To(more)) => servers.extend(more),
            (all, _) => *all = Due::All,
        }
    }
}

impl ConntrackFrontends {
    /// A service port stands so now, with these servers, or is gone.
    pub fn note(&mut self, name: &ServicePortName, now: Option<(&ServicePort, BTreeSet<SocketAddr>)>) {
        if !needs_conntrack_cleanup(name.protocol) {
            return;
        }
        let now = now.map(|(port, servers)| {
            let frontends = port.frontends().map(|frontend| (name.protocol, frontend)).collect();
            Known { frontends, servers }
        });
        let (now, before) = (now.unwrap_or_default(), self.of_port.remove(name).unwrap_or_default());
        let lost: BTreeSet<SocketAddr> = before.servers.difference(&now.servers).copied().collect();
        for key in &before.frontends {
            // Its new owner may have been noted before.
            if self.owner.get(key) == Some(name) {
                self.owner.remove(key);
            }
        }
        for key in before.frontends.union(&now.frontends) {
            let stays = before.frontends.contains(key) && now.frontends.contains(key);
            let due = if stays && !before.servers.is_empty() { Due::To(lost.clone()) } else { Due::All };
            if due != Due::To(BTreeSet::new()) {
                self.due.entry(*key).or_insert_with(|| Due::To(BTreeSet::new())).and(due);
            }
        }
        self.owner.extend(now.frontends.iter().map(|key| (*key, name.clone())));
        if !now.frontends.is_empty() {
            self.of_port.insert(name.clone(), now);
        }
    }

    /// These are all service ports; those that were known besides are gone. Nothing is taken for granted: all flows are due.
    pub fn note_all(&mut self, ports: impl Iterator<Item = (impl Borrow<ServicePort>, BTreeSet<SocketAddr>)>) {
        self.of_port.values_mut().for_each(|known| known.servers.clear());
        let mut gone: BTreeSet<ServicePortName> = self.of_port.keys().cloned().collect();
        for (port, servers) in ports {
            let port = port.borrow();
            gone.remove(&port.name);
            self.note(&port.name, Some((port, servers)));
        }
        gone.iter().for_each(|name| self.note(name, None));
    }

    /// A predecessor's rules led these somewhere.
    pub fn found(&mut self, found: impl IntoIterator<Item = Key>) {
        self.due.extend(found.into_iter().map(|key| (key, Due::All)));
    }

    /// What must be looked at.
    pub fn due(&self) -> &BTreeMap<Key, Due> {
        &self.due
    }

    /// The service ports with a frontend that is due.
    pub fn ports_due(&self) -> BTreeSet<&ServicePortName> {
        self.due.keys().filter_map(|key| self.owner.get(key)).collect()
    }

    /// It was looked at.
    pub fn judged(&mut self) {
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

    fn due(index: &ConntrackFrontends) -> Vec<String> {
        let text = |((protocol, frontend), due): (&Key, &Due)| {
            let frontend = match frontend {
                Frontend::Address(address) => address.to_string(),
                Frontend::NodePort(port) => format!("node port {port}"),
            };
            match due {
                Due::All => format!("{protocol} {frontend}"),
                Due::To(servers) => {
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
    fn only_what_changed_is_due_with_who_has_its_address_now() {
        let mut index = ConntrackFrontends::default();
        let (dns, log) = (port("dns", Protocol::Udp, "10.96.0.10"), port("log", Protocol::Udp, "10.96.0.11"));
        index.note_all(
            [&dns, &log, &port("web", Protocol::Tcp, "10.96.0.12")].map(|port| (port, servers(&[1]))).into_iter(),
        );
        assert_eq!(due(&index), ["udp 10.96.0.10:53", "udp 10.96.0.11:53"]);
        index.judged();
        assert!(index.due().is_empty() && index.ports_due().is_empty());
        index.note(&dns.name, Some((&dns, servers(&[2]))));
        assert_eq!(due(&index), ["udp 10.96.0.10:53 to 10.244.0.1:53"]);
        assert_eq!(index.ports_due(), [&dns.name].into());
        index.judged();
        // It gets the other one's address, which is noted after it or before.
        let (moved, without) =
            (port("dns", Protocol::Udp, "10.96.0.11"), ServicePort { cluster_ip: None, ..log.clone() });
        for order in [[&moved, &without], [&without, &moved]] {
            index.note_all([&dns, &log].map(|port| (port, servers(&[1]))).into_iter());
            index.judged();
            order.into_iter().for_each(|port| index.note(&port.name, Some((port, servers(&[1])))));
            assert_eq!(due(&index), ["udp 10.96.0.10:53", "udp 10.96.0.11:53"], "where it was, too");
            assert_eq!(index.ports_due(), [&dns.name].into(), "who has it now, and no other");
            index.judged();
        }
        index.note_all([(&log, servers(&[1]))].into_iter());
        assert_eq!(due(&index), ["udp 10.96.0.11:53"], "of the one that is gone, too");
        assert_eq!(index.ports_due(), [&log.name].into());
        index.judged();
        index.found([(Protocol::Sctp, Frontend::NodePort(30_053))]);
        assert_eq!(due(&index), ["sctp node port 30053"]);
    }
    #[test]
    fn flows_are_due_where_a_server_is_lost_and_where_there_was_none() {
        let dns = port("dns", Protocol::Udp, "10.96.0.10");
        let mut index = ConntrackFrontends::default();
        let note = |index: &mut ConntrackFrontends, hosts: &[u8]| {
            index.note(&dns.name, Some((&dns, servers(hosts))));
            due(index)
        };
        assert_eq!(note(&mut index, &[]), ["udp 10.96.0.10:53"], "it comes");
        index.judged();
        assert_eq!(note(&mut index, &[1, 2]), ["udp 10.96.0.10:53"], "it led nowhere");
        index.judged();
        assert_eq!(note(&mut index, &[1, 2]), [""; 0], "the same");
        assert_eq!(note(&mut index, &[1, 2, 3]), [""; 0], "one more");
        assert_eq!(note(&mut index, &[1, 3]), ["udp 10.96.0.10:53 to 10.244.0.2:53"], "one less");
        let both = ["udp 10.96.0.10:53 to 10.244.0.1:53, 10.244.0.2:53"];
        assert_eq!(note(&mut index, &[3, 2]), both, "another one, before anybody has looked");
        assert_eq!(index.ports_due(), [&dns.name].into());
        index.note_all([(&dns, servers(&[3, 2]))].into_iter());
        assert_eq!(due(&index), ["udp 10.96.0.10:53"], "when all are required");
        index.judged();
        assert_eq!(note(&mut index, &[]), ["udp 10.96.0.10:53 to 10.244.0.2:53, 10.244.0.3:53"], "scaled to zero");
        index.note(&dns.name, None);
        assert_eq!(due(&index), ["udp 10.96.0.10:53"], "it goes");
    }
}
