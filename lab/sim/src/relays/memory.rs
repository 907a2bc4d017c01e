use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{Relay, RelayPort};
use crate::network::Flow;
use crate::protocol::Family;

/// Idle timeouts of UDP associations.
#[derive(Debug, Clone, Copy)]
pub struct UdpTimeouts {
    /// The timeout after a single exchange.
    pub single: Duration,
    /// The timeout once packets are exchanged for two seconds.
    pub conversation: Duration,
}

const CONVERSATION: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
struct UdpAssociation {
    call: Flow,
    begun: Duration,
    last: Duration,
}

/// The state of a node's relays. Times are by the network's clock.
#[derive(Debug, Clone, Default)]
pub struct RelayMemory {
    /// The last chosen backend.
    last: BTreeMap<RelayPort, SocketAddr>,
    clients: BTreeMap<(Family, String, IpAddr), (SocketAddr, Duration)>,
    associations: BTreeMap<(RelayPort, SocketAddr), UdpAssociation>,
}

impl RelayMemory {
    /// Returns backends in the order of attempts. Rotates unless session affinity holds.
    pub fn candidates(&mut self, port: RelayPort, relay: &Relay, client: IpAddr, now: Duration) -> Vec<SocketAddr> {
        let known = relay.affinity.and_then(|timeout| {
            let (backend, at) = self.clients.get(&key(port, relay, client))?;
            let is_known = |known: &&SocketAddr| match relay.clients {
                Some(_) => known.ip() == backend.ip(),
                None => *known == backend,
            };
            relay.to.iter().copied().find(|known| now < *at + timeout && is_known(&known))
        });
        let start = self.last.get(&port).map_or(0, |last| relay.to.partition_point(|backend| backend <= last));
        let mut turns: Vec<SocketAddr> = relay.to.clone();
        turns.rotate_left(start % relay.to.len().max(1));
        match known {
            Some(known) => turns.sort_by_key(|backend| *backend != known),
            None => {
                if let Some(first) = turns.first() {
                    self.last.insert(port, *first);
                }
            }
        }
        turns
    }

    /// Records a connection's backend.
    pub fn took(&mut self, port: RelayPort, relay: &Relay, client: IpAddr, backend: SocketAddr, now: Duration) {
        if relay.affinity.is_some() {
            self.clients.insert(key(port, relay, client), (backend, now));
        }
    }

    /// Ends affinity after a backend refused the connection.
    pub fn refused(&mut self, port: RelayPort, relay: &Relay, client: IpAddr) {
        self.clients.remove(&key(port, relay, client));
    }

    /// Returns a UDP association; `None` after the timeout, or if the backend no longer serves.
    pub fn association(
        &mut self,
        (port, relay): (RelayPort, &Relay),
        client: SocketAddr,
        silence: UdpTimeouts,
        now: Duration,
    ) -> Option<Flow> {
        let one = self.associations.get_mut(&(port, client))?;
        let talks = one.last - one.begun >= CONVERSATION;
        let end = one.last + if talks { silence.conversation } else { silence.single };
        if now >= end || !relay.serving.contains(&one.call.to) {
            self.associations.remove(&(port, client));
            return None;
        }
        one.last = now;
        Some(one.call)
    }

    /// Adds an association, unless one exists.
    pub fn associate(&mut self, port: RelayPort, client: SocketAddr, call: Flow, now: Duration) {
        self.associations.entry((port, client)).or_insert(UdpAssociation { call, begun: now, last: now });
    }
}

fn key(port: RelayPort, relay: &Relay, client: IpAddr) -> (Family, String, IpAddr) {
    (port.0, relay.clients.as_ref().unwrap_or(&relay.name).clone(), client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Protocol;

    const PORT: RelayPort = (Family::V4, Protocol::TCP, 61_000);

    fn relay(text: &str) -> Relay {
        Relay::parse(text).unwrap().2
    }

    #[test]
    fn backends_rotate_and_affinity_returns_clients() {
        let client = |number: u8| IpAddr::from([192, 0, 2, number]);
        let (mut memory, plain) = (RelayMemory::default(), relay("tcp 61000 a to 10.0.0.1:1 10.0.0.2:1 10.0.0.3:1"));
        let first = |memory: &mut RelayMemory, relay: &Relay, number: u8, second: u64| {
            let now = Duration::from_secs(second);
            let met = memory.candidates(PORT, relay, client(number), now)[0];
            memory.took(PORT, relay, client(number), met, now);
            met.ip().to_string()
        };
        let met: Vec<String> = (0..4).map(|_| first(&mut memory, &plain, 1, 0)).collect();
        assert_eq!(met, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1"]);
        let sticky = Relay { affinity: Some(Duration::from_secs(10)), ..plain };
        let met = [(1, 0), (2, 0), (1, 9), (1, 18), (1, 28)].map(|(who, when)| first(&mut memory, &sticky, who, when));
        assert_eq!(met, ["10.0.0.2", "10.0.0.3", "10.0.0.2", "10.0.0.2", "10.0.0.1"]);
        memory.refused(PORT, &sticky, client(1));
        assert_eq!(first(&mut memory, &sticky, 1, 28), "10.0.0.2");
        let shared = Relay { clients: Some("a".to_owned()), ..sticky };
        let mut other = relay("tcp 61001 a:b to 10.0.0.1:2 10.0.0.2:2 10.0.0.3:2 affinity 10 clients a");
        assert_eq!(
            (first(&mut memory, &shared, 3, 30), first(&mut memory, &other, 3, 39)),
            ("10.0.0.3".into(), "10.0.0.3".into())
        );
        assert_eq!(first(&mut memory, &shared, 3, 48), "10.0.0.3", "the other port has renewed the time");
        other.to.pop();
        assert_ne!(first(&mut memory, &other, 3, 48), "10.0.0.3");
    }

    #[test]
    fn associations_end_after_the_timeout_or_with_their_backend() {
        let silence = UdpTimeouts { single: Duration::from_secs(30), conversation: Duration::from_secs(120) };
        let port = (Family::V4, Protocol::UDP, 61_000);
        let lead = relay("udp 61000 a to 10.0.0.1:1 serving 10.0.0.1:1");
        let client: SocketAddr = "192.0.2.1:5353".parse().unwrap();
        let mut network = crate::network::Network::new();
        let node = network.add(crate::host::Host::builder("node").build().unwrap());
        let mut memory = RelayMemory::default();
        memory.associate(port, client, Flow::tcp(node, lead.to[0]), Duration::ZERO);
        let known = |memory: &mut RelayMemory, relay: &Relay, second| {
            memory.association((port, relay), client, silence, Duration::from_secs(second)).is_some()
        };
        assert!(known(&mut memory, &lead, 29) && known(&mut memory, &lead, 148) && !known(&mut memory, &lead, 268));
        memory.associate(port, client, Flow::tcp(node, lead.to[0]), Duration::ZERO);
        memory.associate(port, client, Flow::tcp(node, lead.to[0]), Duration::from_secs(5));
        assert!(known(&mut memory, &lead, 5) && known(&mut memory, &lead, 124), "a conversation since second 0");
        assert!(!known(&mut memory, &Relay { serving: Vec::new(), ..lead }, 125));
    }
}
