use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use svclab_oracle::{Delivery, FrontendKind, Mode, Scheduler, World};
use svclab_sim::chance::Chance;
use svclab_sim::network::{Flow, Network, Outcomes, PacketVerdict};

/// IPVS' timeout of silent TCP connections (`net/netfilter/ipvs/ip_vs_proto_tcp.c`), plus the minute by which a
/// template with connections is extended.
const CONNECTIONS: Duration = Duration::from_secs(15 * 60 + 60);

fn endpoint(verdict: &PacketVerdict) -> Option<SocketAddr> {
    match verdict {
        PacketVerdict::Answered { at, .. } | PacketVerdict::Unanswered { at, .. } => Some(*at),
        _ => None,
    }
}

fn endpoints(outcomes: &Outcomes) -> Vec<SocketAddr> {
    let mut all: Vec<SocketAddr> = outcomes.outcomes.iter().filter_map(|one| endpoint(&one.verdict)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn somebody_else(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() ^ 1).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() ^ 1).into(),
    }
}

pub(super) fn faults(world: &World, network: &Network, flow: &Flow, delivery: &Delivery) -> Vec<String> {
    // Relays keep affinity in memory: in userspace mode, and for loopback node ports in nftables mode.
    let relayed = match world.proxy.mode {
        Mode::Userspace => true,
        Mode::Nftables => flow.to.ip().is_loopback(),
        Mode::Iptables | Mode::Ipvs => false,
    };
    if delivery.backends.len() < 2 || relayed {
        return Vec::new();
    }
    let mut network = network.clone();
    let seed = u64::from(flow.to.port()) ^ (delivery.backends.len() as u64) << 32;
    let Ok(first) = network.send(flow, &mut Chance::seeded(seed)) else { return Vec::new() };
    let Some(met) = endpoint(&first.verdict) else { return Vec::new() };
    let again = flow.port(flow.source_port + 1);
    let mut faults = Vec::new();
    let stays = |network: &Network, when: &str| match network.outcomes(&again) {
        Ok(found) if endpoints(&found) == [met] => None,
        Ok(found) => Some(format!("{when} the client that met {met} meets {:?}", endpoints(&found))),
        Err(error) => Some(error.to_string()),
    };
    let takes_turns = matches!(world.proxy.scheduler, Scheduler::RoundRobin | Scheduler::WeightedRoundRobin);
    let moves = |network: &Network, when: &str| match world.proxy.mode {
        Mode::Iptables | Mode::Nftables => {
            let found = network.outcomes(&again).map(|found| endpoints(&found).len()).unwrap_or_default();
            let says = || format!("{when} the client may meet {found} of {}", delivery.backends.len());
            (found != delivery.backends.len()).then(says)
        }
        // Without affinity, only rr and wrr must change the destination.
        Mode::Ipvs if takes_turns => {
            let found = network.outcomes(&again).map(|found| endpoints(&found)).unwrap_or_default();
            (found == [met]).then(|| format!("{when} the client still meets {met}"))
        }
        _ => None,
    };
    let Some(affinity) = delivery.affinity else {
        faults.extend(moves(&network, "without affinity"));
        return faults;
    };
    faults.extend(stays(&network, "at once"));
    // One client's affinity must not bind another: here a neighbour of the pod.
    let is_pod = network.host(flow.from).name().starts_with("pod/");
    if is_pod
        && delivery.frontend == FrontendKind::ClusterIp
        && matches!(world.proxy.mode, Mode::Iptables | Mode::Nftables)
    {
        let packet = network.first_packet(&again);
        let other = packet.map(|packet| again.source(somebody_else(packet.source)));
        let found = other.and_then(|other| network.outcomes(&other)).map(|found| endpoints(&found).len());
        let found = found.unwrap_or_default();
        if found != delivery.backends.len() {
            faults.push(format!("after one client met {met} others may meet {found} of {}", delivery.backends.len()));
        }
    }
    let last = affinity.timeout.saturating_sub(Duration::from_secs(1));
    network.advance(last);
    faults.extend(stays(&network, "a second before the time-out"));
    network.advance(Duration::from_secs(2));
    if world.proxy.mode == Mode::Ipvs {
        // IPVS remembers a client while one of its connections exists, and then for the timeout.
        network.advance(CONNECTIONS + affinity.timeout);
    }
    faults.extend(moves(&network, "after the time-out"));
    faults
}
