//! Which port each listener has.
//!
//! A listener begins its search at a port that follows from its name, so that the same services have the same ports on every
//! node and after every restart; a port that a predecessor's rules lead to goes before it.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::model::{Protocol, ServicePortName};
use crate::plan::BackendSet;
use crate::port_range::PortRange;
use crate::relay::Listener;

/// The ports of all listeners of a family.
#[derive(Debug, Clone, Default)]
pub struct Ports {
    range: PortRange,
    by_listener: BTreeMap<Listener, u16>,
    used: BTreeSet<(Protocol, u16)>,
    /// What a predecessor's rules lead to.
    found: BTreeMap<Listener, u16>,
}

impl Ports {
    /// None yet, of this range.
    pub fn new(range: PortRange) -> Ports {
        Ports { range, ..Ports::default() }
    }

    /// A predecessor had these: its rules lead to them until they are written anew, so no other service port gets them, as long as there
    /// are others.
    pub fn adopt(&mut self, found: BTreeMap<Listener, u16>) {
        self.found = found;
    }

    /// The rules are written anew: nothing leads to a predecessor's ports any more.
    pub fn forget_found(&mut self) {
        self.found.clear();
    }

    /// The port of a listener.
    pub fn get(&self, listener: &Listener) -> Option<u16> {
        self.by_listener.get(listener).copied()
    }

    /// The ports of a service port.
    pub fn of(&self, name: &ServicePortName) -> Assigned {
        let port = |set| self.get(&Listener { name: name.clone(), set });
        Assigned { cluster: port(BackendSet::Cluster), local: port(BackendSet::Local) }
    }

    /// The listeners.
    pub fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.by_listener.keys()
    }

    /// The ports that a listener may try, best first.
    pub fn candidates(&self, listener: &Listener) -> impl Iterator<Item = u16> + use<> {
        let protocol = listener.name.protocol;
        let own = self.found.get(listener).copied().filter(|port| self.range.contains(*port));
        let of_others: BTreeSet<u16> = self
            .found
            .iter()
            .filter(|(other, _)| other.name.protocol == protocol && *other != listener)
            .map(|(_, port)| *port)
            .collect();
        let used: BTreeSet<u16> =
            self.used.iter().filter(|(other, _)| *other == protocol).map(|(_, port)| *port).collect();
        let (first, length) = (u32::from(self.range.first()), self.range.len());
        let start = start(listener) % length;
        let all = move || (0..length).filter_map(move |step| u16::try_from(first + (start + step) % length).ok());
        let (used_too, theirs) = (used.clone(), of_others.clone());
        let free = all().filter(move |port| !used.contains(port) && !of_others.contains(port));
        let at_last = all().filter(move |port| !used_too.contains(port) && theirs.contains(port));
        own.into_iter().chain(free).chain(at_last)
    }

    /// A listener has this port now.
    pub fn assign(&mut self, listener: Listener, port: u16) {
        self.used.insert((listener.name.protocol, port));
        self.by_listener.insert(listener, port);
    }

    /// A listener is gone.
    pub fn release(&mut self, listener: &Listener) {
        if let Some(port) = self.by_listener.remove(listener) {
            self.used.remove(&(listener.name.protocol, port));
        }
    }
}

/// The ports of one service port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Assigned {
    /// For [`BackendSet::Cluster`].
    pub cluster: Option<u16>,
    /// For [`BackendSet::Local`].
    pub local: Option<u16>,
}

impl Assigned {
    /// The port for a set.
    pub fn get(self, set: BackendSet) -> Option<u16> {
        match set {
            BackendSet::Cluster => self.cluster,
            BackendSet::Local => self.local,
        }
    }

    /// Both.
    pub fn all(self) -> impl Iterator<Item = u16> {
        self.cluster.into_iter().chain(self.local)
    }
}

/// A number that follows from a listener's name.
fn start(listener: &Listener) -> u32 {
    let set = match listener.set {
        BackendSet::Cluster => "",
        BackendSet::Local => " local",
    };
    let digest = Sha256::digest(format!("{}{}{set}", listener.name, listener.name.protocol));
    digest.iter().take(4).fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ObjectKey;

    fn listener(service: &str) -> Listener {
        let service = ObjectKey { namespace: "default".into(), name: service.into() };
        let name = ServicePortName { service, port: String::new(), protocol: Protocol::Tcp };
        Listener { name, set: BackendSet::Cluster }
    }

    fn ports(first: u16, last: u16) -> Ports {
        Ports::new(format!("{first}-{last}").parse().unwrap())
    }

    #[test]
    fn the_search_begins_at_a_port_of_the_names_own_and_meets_every_free_one() {
        let mut ports = ports(100, 109);
        let first: Vec<u16> = ports.candidates(&listener("web")).collect();
        assert_eq!(first.len(), 10);
        ports.assign(listener("web"), first[0]);
        ports.assign(listener("other"), first[1]);
        assert_eq!(ports.candidates(&listener("web")).collect::<Vec<_>>(), &first[2..]);
        ports.release(&listener("web"));
        assert_eq!(ports.candidates(&listener("web")).next(), Some(first[0]));
        let udp =
            Listener { name: ServicePortName { protocol: Protocol::Udp, ..listener("web").name }, ..listener("web") };
        assert_eq!(ports.candidates(&udp).count(), 10, "a protocol's ports are its own");
    }

    #[test]
    fn a_predecessors_ports_go_to_its_own_successors_or_last() {
        let mut ports = ports(100, 103);
        let preferred = ports.candidates(&listener("web")).next().unwrap();
        let found = BTreeMap::from([(listener("other"), preferred), (listener("far"), 40_000)]);
        ports.adopt(found);
        assert_eq!(ports.candidates(&listener("other")).next(), Some(preferred));
        assert_eq!(ports.candidates(&listener("web")).last(), Some(preferred), "rules lead there still");
        assert!(!ports.candidates(&listener("far")).any(|port| port == 40_000), "the range has changed");
        ports.forget_found();
        assert_eq!(ports.candidates(&listener("web")).next(), Some(preferred));
    }
}
