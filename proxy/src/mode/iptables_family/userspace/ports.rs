//! Assigns ports to listeners. The search starts at a hash of the listener's name: services have the same ports on
//! every node and after every restart. A previous proxy's port takes precedence.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::model::{Protocol, ServicePortName};
use crate::plan::BackendSet;
use crate::port_range::PortRange;
use crate::relay::Listener;

#[derive(Debug, Clone, Default)]
pub struct ListenerPorts {
    range: PortRange,
    by_listener: BTreeMap<Listener, u16>,
    used: BTreeSet<(Protocol, u16)>,
    found: BTreeMap<Listener, u16>,
    found_ports: BTreeMap<(Protocol, u16), usize>,
}

impl ListenerPorts {
    pub fn new(range: PortRange) -> ListenerPorts {
        ListenerPorts { range, ..ListenerPorts::default() }
    }

    /// Adopts a previous proxy's ports: other listeners avoid them until its rules are rewritten.
    pub fn adopt(&mut self, found: BTreeMap<Listener, u16>) {
        self.found_ports.clear();
        for (listener, port) in &found {
            *self.found_ports.entry((listener.name.protocol, *port)).or_default() += 1;
        }
        self.found = found;
    }

    pub fn forget_found(&mut self) {
        self.found.clear();
        self.found_ports.clear();
    }

    pub fn get(&self, listener: &Listener) -> Option<u16> {
        self.by_listener.get(listener).copied()
    }

    pub fn of(&self, name: &ServicePortName) -> AssignedPorts {
        let port = |set| self.get(&Listener { name: name.clone(), set });
        AssignedPorts { cluster: port(BackendSet::Cluster), local: port(BackendSet::Local) }
    }

    pub fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.by_listener.keys()
    }

    /// Returns possible ports, best first. Lazy: full syncs call it for each listener.
    pub fn candidates(&self, listener: &Listener) -> impl Iterator<Item = u16> {
        let protocol = listener.name.protocol;
        let own = self.found.get(listener).copied();
        let is_found_by_another = move |port: &u16| {
            let listeners = self.found_ports.get(&(protocol, *port)).copied().unwrap_or_default();
            listeners > usize::from(own == Some(*port))
        };
        let (first, length) = (u32::from(self.range.first()), self.range.len());
        let start = start(listener) % length;
        let all = (0..length).filter_map(move |step| u16::try_from(first + (start + step) % length).ok());
        let unused = all.filter(move |port| !self.used.contains(&(protocol, *port)));
        let (free, at_last) = (unused.clone(), unused);
        let own = own.into_iter().filter(|port| self.range.contains(*port));
        own.chain(free.filter(move |port| !is_found_by_another(port))).chain(at_last.filter(is_found_by_another))
    }

    pub fn assign(&mut self, listener: Listener, port: u16) {
        self.used.insert((listener.name.protocol, port));
        self.by_listener.insert(listener, port);
    }

    pub fn release(&mut self, listener: &Listener) {
        if let Some(port) = self.by_listener.remove(listener) {
            self.used.remove(&(listener.name.protocol, port));
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AssignedPorts {
    pub cluster: Option<u16>,
    pub local: Option<u16>,
}

impl AssignedPorts {
    pub fn get(self, set: BackendSet) -> Option<u16> {
        match set {
            BackendSet::Cluster => self.cluster,
            BackendSet::Local => self.local,
        }
    }

    pub fn all(self) -> impl Iterator<Item = u16> {
        self.cluster.into_iter().chain(self.local)
    }
}

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
    use proptest::collection::btree_map;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::port_name;

    fn listener(service: &str) -> Listener {
        Listener { name: port_name(service, Protocol::Tcp), set: BackendSet::Cluster }
    }

    fn ports(first: u16, last: u16) -> ListenerPorts {
        ListenerPorts::new(format!("{first}-{last}").parse().unwrap())
    }

    #[test]
    fn the_search_starts_at_a_hash_of_the_name_and_tries_every_free_port() {
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
    fn a_previous_proxys_port_goes_to_the_same_listener_first() {
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

    proptest! {
        #[test]
        fn candidates_are_in_the_specified_order(
            found in btree_map("[a-h]", 100u16..112, 0..8),
            used in btree_map("[i-p]", 100u16..110, 0..8),
            asks in "[a-p]",
        ) {
            let mut ports = ports(100, 109);
            let found: BTreeMap<Listener, u16> = found.iter().map(|(name, port)| (listener(name), *port)).collect();
            ports.adopt(found.clone());
            used.iter().for_each(|(name, port)| ports.assign(listener(name), *port));
            let asks = listener(&asks);

            let start = 100 + start(&asks) % 10;
            let all = (0..10).map(|step| u16::try_from(100 + (start + step) % 10).unwrap());
            let unused: Vec<u16> = all.filter(|port| !used.values().any(|other| other == port)).collect();
            let is_anothers = |port: &u16| found.iter().any(|(other, theirs)| *other != asks && theirs == port);
            let (last, free): (Vec<u16>, Vec<u16>) = unused.into_iter().partition(is_anothers);
            let own = found.get(&asks).copied().filter(|port| (100..=109).contains(port));
            let expected: Vec<u16> = own.into_iter().chain(free).chain(last).collect();
            prop_assert_eq!(ports.candidates(&asks).collect::<Vec<_>>(), expected);
        }
    }
}
