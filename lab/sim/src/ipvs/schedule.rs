use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Scheduler, VirtualService, hash};
use crate::chance::Chance;

#[derive(Debug, Clone, Default)]
pub(crate) struct Rotation {
    position: usize,
    /// Servers by destination, for `lblc` and `lblcr`.
    assigned: BTreeMap<IpAddr, Vec<usize>>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerLoad {
    pub(crate) active: u64,
    pub(crate) inactive: u64,
    pub(crate) overloaded: bool,
}

impl ServerLoad {
    /// Models `ip_vs_dest_conn_overhead`.
    fn overhead(&self) -> u64 {
        (self.active << 8) + self.inactive
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct OpeningPacket {
    pub(crate) client: IpAddr,
    pub(crate) port: u16,
    pub(crate) to: IpAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScheduledServer {
    pub(crate) server: usize,
    pub(crate) share: Option<(u64, u64)>,
}

pub(crate) fn choose(
    service: &VirtualService,
    rotation: &mut Rotation,
    loads: &[ServerLoad],
    call: OpeningPacket,
    chance: &mut Chance,
) -> Option<ScheduledServer> {
    let free = |at: usize| hash::available(&service.servers[at], loads[at].overloaded);
    let sure = |server: usize| ScheduledServer { server, share: None };
    match service.scheduler {
        Scheduler::RoundRobin => round(&in_turn(service, &free), rotation, chance),
        Scheduler::WeightedRoundRobin => round(&by_weight(service, &free), rotation, chance),
        Scheduler::LeastConnections => least(service, &free, |at| (loads[at].overhead(), 1)).map(sure),
        Scheduler::WeightedLeastConnections => {
            least(service, &free, |at| (loads[at].overhead(), service.servers[at].weight)).map(sure)
        }
        Scheduler::ShortestExpectedDelay => {
            least(service, &free, |at| (loads[at].active + 1, service.servers[at].weight)).map(sure)
        }
        Scheduler::NeverQueue => {
            let idle = (0..service.servers.len()).find(|at| free(*at) && loads[*at].active == 0);
            let shortest = || least(service, &free, |at| (loads[at].active + 1, service.servers[at].weight));
            idle.or_else(shortest).map(sure)
        }
        Scheduler::DestinationHash => hash::destination(service, call.to, free).map(sure),
        Scheduler::SourceHash => hash::source(service, call.client, call.port, free).map(sure),
        Scheduler::Maglev => hash::maglev(service, call.client, call.port, free).map(sure),
        Scheduler::LocalityLeastConnections => local(service, rotation, loads, call, &free, false).map(sure),
        Scheduler::LocalityLeastConnectionsReplicated => local(service, rotation, loads, call, &free, true).map(sure),
    }
}

fn in_turn(service: &VirtualService, free: &impl Fn(usize) -> bool) -> Vec<usize> {
    (0..service.servers.len()).filter(|at| free(*at)).collect()
}

fn by_weight(service: &VirtualService, free: &impl Fn(usize) -> bool) -> Vec<usize> {
    fn gcd(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let weights = || service.servers.iter().map(|server| server.weight);
    let (step, most) = (weights().fold(0, gcd).max(1), weights().max().unwrap_or(0));
    let mut round = Vec::new();
    let mut level = most;
    while level > 0 {
        round.extend((0..service.servers.len()).filter(|at| free(*at) && service.servers[*at].weight >= level));
        level = level.saturating_sub(step);
    }
    round
}

/// Returns the rotation's next server; exact walks draw by shares.
fn round(round: &[usize], rotation: &mut Rotation, chance: &mut Chance) -> Option<ScheduledServer> {
    if round.is_empty() {
        return None;
    }
    let count = |server: usize| round.iter().filter(|at| **at == server).count() as u64;
    let server = if chance.is_exact() {
        let servers = round.iter().max().map_or(0, |last| last + 1);
        let shares: Vec<u64> = (0..servers).map(count).collect();
        chance.choose(&shares)
    } else {
        round[rotation.position % round.len()]
    };
    rotation.position = (rotation.position + 1) % round.len();
    Some(ScheduledServer { server, share: Some((count(server), round.len() as u64)) })
}

fn least(service: &VirtualService, free: &impl Fn(usize) -> bool, load: impl Fn(usize) -> (u64, u32)) -> Option<usize> {
    let mut best: Option<(usize, u64, u32)> = None;
    for at in (0..service.servers.len()).filter(|at| free(*at)) {
        let (load, weight) = load(at);
        let better = best.is_none_or(|(_, least, of)| least * u64::from(weight) > load * u64::from(of));
        if better {
            best = Some((at, load, weight));
        }
    }
    best.map(|(at, ..)| at)
}

/// `lblc`, `lblcr`: an address keeps its server unless the server has more connections than its weight while another
/// has fewer than half its own. Assignments never expire.
fn local(
    service: &VirtualService,
    rotation: &mut Rotation,
    loads: &[ServerLoad],
    call: OpeningPacket,
    free: &impl Fn(usize) -> bool,
    several: bool,
) -> Option<usize> {
    let weight = |at: usize| u64::from(service.servers[at].weight);
    let idle_elsewhere = (0..service.servers.len()).any(|at| loads[at].active * 2 < weight(at));
    let usable = |at: usize| free(at) && !(loads[at].active > weight(at) && idle_elsewhere);
    let rank = |at: usize| (loads[at].overhead(), service.servers[at].weight);
    let known = rotation.assigned.entry(call.to).or_default();
    let of_known = least(service, &|at| free(at) && known.contains(&at), rank);
    if let Some(kept) = of_known.filter(|at| usable(*at)) {
        return Some(kept);
    }
    let chosen = least(service, free, rank)?;
    if !several {
        known.clear();
    }
    if !known.contains(&chosen) {
        known.push(chosen);
    }
    Some(chosen)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::ipvs::VirtualServices;

    const CALL: OpeningPacket = OpeningPacket {
        client: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
        port: 1,
        to: IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1)),
    };

    fn sequence(scheduler: &str, weights: &[u32], connections: usize) -> Vec<Option<usize>> {
        let mut text = format!("-A -t 10.96.0.1:80 -s {scheduler}\n");
        for (at, weight) in weights.iter().enumerate().rev() {
            text.push_str(&format!("-a -t 10.96.0.1:80 -r 10.244.0.{}:80 -m -w {weight}\n", at + 1));
        }
        let services = VirtualServices::read(&text).unwrap();
        let (mut rotation, mut chance) = (Rotation::default(), Chance::seeded(1));
        let mut loads = vec![ServerLoad::default(); weights.len()];
        let one = |_| {
            let chosen = choose(&services.services[0], &mut rotation, &loads, CALL, &mut chance)?;
            loads[chosen.server].active += 1;
            Some(chosen.server)
        };
        (0..connections).map(one).collect()
    }

    #[test]
    fn schedulers_choose_in_the_kernels_order() {
        let some = |order: &[usize]| order.iter().map(|at| Some(*at)).collect::<Vec<_>>();
        for (scheduler, weights, expected) in [
            ("rr", &[1, 0, 1][..], &[0, 2, 0, 2][..]),
            ("wrr", &[1, 3, 2], &[1, 1, 2, 0, 1, 2, 1, 1]),
            ("lc", &[1, 5, 1], &[0, 1, 2, 0, 1, 2]),
            ("wlc", &[1, 2], &[0, 1, 1, 0, 1, 1]),
            ("sed", &[1, 2], &[1, 0, 1, 1]),
            ("nq", &[1, 2], &[0, 1, 1, 1]),
            ("lblc", &[2, 2], &[0, 0, 0, 1]),
        ] {
            assert_eq!(sequence(scheduler, weights, expected.len()), some(expected), "{scheduler}");
        }
        assert_eq!(sequence("rr", &[0], 1), [None]);
        assert_eq!(sequence("wrr", &[], 1), [None]);
    }
}
