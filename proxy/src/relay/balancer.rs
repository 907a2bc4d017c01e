use std::net::{IpAddr, SocketAddr};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::RelayBackends;
use super::clients::{AffinityClients, SharedClients};
use crate::model::FlowFate;
use crate::plan::BackendSet;

pub const MOST_TRIES: usize = 8;

#[derive(Debug, Default)]
pub struct Balancer {
    backends: RelayBackends,
    last: [Option<SocketAddr>; 2],
    clients: AffinityClients,
    /// Replaces `clients`. Locked while the balancer is, never the other way round.
    shared: Option<SharedClients>,
    /// Tells connections of changes, unless all of them are kept.
    changes: watch::Sender<()>,
}

impl Balancer {
    /// `shared`: the memory of a Service whose ports remember clients together.
    pub fn set_backends(&mut self, backends: RelayBackends, shared: Option<SharedClients>) {
        if backends.affinity.is_none() || shared.is_some() {
            self.clients.clear();
        }
        self.shared = shared;
        self.clients.retain(|backend| {
            // Binary search: clients may outnumber backends a thousandfold.
            [BackendSet::Cluster, BackendSet::Local].iter().any(|set| backends.set(*set).binary_search(backend).is_ok())
        });
        let may_end = [&self.backends, &backends].iter().any(|backends| backends.flow_fate != FlowFate::Keep);
        self.backends = backends;
        if may_end {
            self.changes.send_replace(());
        }
    }

    /// Ends what a deleted service port has: it keeps no backend, and its connections' fate.
    pub fn remove_backends(&mut self) {
        let flow_fate = self.backends.flow_fate;
        self.set_backends(RelayBackends { flow_fate, ..RelayBackends::default() }, None);
    }

    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Returns how long connections to this backend are kept, if it is lost and they are not kept for good.
    pub fn delay_of_lost(&self, backend: &SocketAddr) -> Option<Duration> {
        self.backends.flow_fate.delay().filter(|_| !self.serves(backend))
    }

    pub fn serves(&self, backend: &SocketAddr) -> bool {
        // Binary search: changed backends cause a check of every association.
        self.backends.serving.binary_search(backend).is_ok()
    }

    /// Returns backends in order of attempts. Advances the round robin unless the client has a backend.
    pub fn candidates(&mut self, set: BackendSet, client: IpAddr, now: Instant) -> Vec<SocketAddr> {
        let known = self.backends.affinity.and_then(|timeout| self.with_clients(|all| all.get(client, timeout, now)));
        let backends = self.backends.set(set);
        let is_known = |backend: &&SocketAddr| match known {
            Some(known) if self.shared.is_some() => known.ip() == backend.ip(),
            _ => known == Some(**backend),
        };
        let known = backends.iter().copied().find(|backend| is_known(&backend));
        let last = &mut self.last[match set {
            BackendSet::Cluster => 0,
            BackendSet::Local => 1,
        }];
        // Starts after the last backend, even if that was removed.
        let start = last.map_or(0, |last| backends.partition_point(|backend| *backend <= last));
        let by_turns = (0..backends.len()).map(|step| backends[(start + step) % backends.len()]);
        let candidates = match known {
            Some(known) => {
                let others = by_turns.filter(|backend| *backend != known);
                [known].into_iter().chain(others).take(MOST_TRIES).collect()
            }
            None => by_turns.take(MOST_TRIES).collect::<Vec<_>>(),
        };
        if known.is_none() {
            *last = candidates.first().copied().or(*last);
        }
        candidates
    }

    pub fn record_connection(&mut self, client: IpAddr, backend: SocketAddr, now: Instant) {
        if self.backends.affinity.is_some() {
            self.with_clients(|all| all.record(client, backend, now));
        }
    }

    pub fn refused(&mut self, client: IpAddr) {
        self.with_clients(|all| all.forget(client));
    }

    /// Returns the addresses of backends, if the port shares its clients.
    pub fn addresses_of_shared(&self) -> Vec<IpAddr> {
        let backends = [BackendSet::Cluster, BackendSet::Local].into_iter().flat_map(|set| self.backends.set(set));
        let addresses = backends.map(SocketAddr::ip);
        addresses.filter(|_| self.shared.is_some()).collect()
    }

    fn with_clients<T>(&mut self, work: impl FnOnce(&mut AffinityClients) -> T) -> T {
        match &self.shared {
            Some(shared) => work(&mut shared.lock().unwrap_or_else(PoisonError::into_inner)),
            None => work(&mut self.clients),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn backend(number: u8) -> SocketAddr {
        SocketAddr::new([10, 0, 0, number].into(), 80)
    }

    fn backends(numbers: &[u8], affinity: Option<u64>) -> RelayBackends {
        let cluster = numbers.iter().map(|number| backend(*number)).collect();
        RelayBackends { cluster, affinity: affinity.map(Duration::from_secs), ..RelayBackends::default() }
    }

    fn first(balancer: &mut Balancer, client: u8, now: Instant) -> u8 {
        let client = IpAddr::from([192, 0, 2, client]);
        let chosen = balancer.candidates(BackendSet::Cluster, client, now)[0];
        balancer.record_connection(client, chosen, now);
        match chosen.ip() {
            IpAddr::V4(ip) => ip.octets()[3],
            IpAddr::V6(_) => 0,
        }
    }

    #[test]
    fn round_robin_continues_when_backends_change() {
        let (mut balancer, now) = (Balancer::default(), Instant::now());
        assert_eq!(balancer.candidates(BackendSet::Cluster, [192, 0, 2, 1].into(), now), []);
        balancer.set_backends(backends(&[1, 2, 3], None), None);
        let turns = |balancer: &mut Balancer, count| (0..count).map(|_| first(balancer, 1, now)).collect::<Vec<_>>();
        assert_eq!(turns(&mut balancer, 4), [1, 2, 3, 1]);
        balancer.set_backends(backends(&[1, 3, 4], None), None);
        assert_eq!(turns(&mut balancer, 4), [3, 4, 1, 3]);
        let tries = balancer.candidates(BackendSet::Cluster, [192, 0, 2, 1].into(), now);
        assert_eq!(tries, [backend(4), backend(1), backend(3)], "the others are tried after it");
    }

    #[test]
    fn a_client_keeps_its_backend_until_timeout_refusal_or_removal() {
        let (mut balancer, start) = (Balancer::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        balancer.set_backends(backends(&[1, 2, 3], Some(10)), None);
        assert_eq!((first(&mut balancer, 1, at(0)), first(&mut balancer, 2, at(0))), (1, 2));
        assert_eq!((first(&mut balancer, 1, at(9)), first(&mut balancer, 1, at(18))), (1, 1));
        let tries = balancer.candidates(BackendSet::Cluster, [192, 0, 2, 1].into(), at(18));
        assert_eq!(tries, [backend(1), backend(3), backend(2)]);
        assert_eq!(first(&mut balancer, 1, at(28)), 3, "silent for too long");
        balancer.refused([192, 0, 2, 1].into());
        assert_eq!(first(&mut balancer, 1, at(28)), 1, "its backend has failed it");
        balancer.set_backends(backends(&[2, 3], Some(10)), None);
        assert_eq!(first(&mut balancer, 1, at(29)), 2, "its backend is gone");
    }

    #[test]
    fn ports_that_share_their_clients_find_an_address_again() {
        let (clients, start) = (SharedClients::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let of_port = |port: u16, numbers: &[u8]| {
            let cluster = numbers.iter().map(|number| SocketAddr::new(backend(*number).ip(), port)).collect();
            RelayBackends { cluster, ..backends(&[], Some(10)) }
        };
        let [mut http, mut dns] = [Balancer::default(), Balancer::default()];
        http.set_backends(of_port(80, &[1, 2, 3]), Some(Arc::clone(&clients)));
        dns.set_backends(of_port(53, &[1, 2, 3]), Some(Arc::clone(&clients)));
        assert_eq!((first(&mut http, 1, at(0)), first(&mut http, 2, at(0))), (1, 2));
        let tries = dns.candidates(BackendSet::Cluster, [192, 0, 2, 2].into(), at(9));
        assert_eq!(tries, [2, 1, 3].map(|number| SocketAddr::new(backend(number).ip(), 53)), "by this port's number");
        assert_eq!(first(&mut dns, 2, at(9)), 2);
        assert_eq!((first(&mut http, 2, at(18)), first(&mut http, 1, at(18))), (2, 3), "either port renews the time");

        dns.set_backends(of_port(53, &[1, 3]), Some(Arc::clone(&clients)));
        assert_eq!(first(&mut dns, 2, at(19)), 1, "this port lacks its endpoint");
        assert_eq!(first(&mut http, 2, at(19)), 1, "the last choice of any port");
        dns.refused([192, 0, 2, 2].into());
        assert_eq!(clients.lock().unwrap().len(), 1);
        assert_eq!(http.addresses_of_shared().len(), 3);
        http.set_backends(of_port(80, &[1, 2, 3]), None);
        assert_eq!(http.addresses_of_shared(), [] as [IpAddr; 0]);
    }

    #[test]
    fn the_oldest_clients_are_forgotten_beyond_the_limit() {
        let (mut clients, start) = (AffinityClients::default(), Instant::now());
        let client = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
        let (timeout, most) = (Duration::from_secs(1000), super::super::clients::MOST_CLIENTS);
        for number in 0..=most {
            let now = start + Duration::from_micros(number as u64);
            clients.record(client(number), backend(1), now);
            clients.record(client(0), backend(1), now);
        }
        assert_eq!(clients.len(), most);
        let known = [0, 1, 2, most].map(|number| clients.get(client(number), timeout, start).is_some());
        assert_eq!(known, [true, false, true, true], "the first one came again each time");
    }
}
