use std::time::Duration;

use ipnet::IpNet;
use svclab_cluster::Cluster as Lab;
use svclab_cluster::traffic::probe::{ClusterHost, Probe};
use svclab_oracle::{self as oracle, Question, World};
use svclab_spec::Protocol;

use crate::observation::Observation;

/// The timeout of probes that may get no answer, on an idle machine (see `svclab_cluster::traffic`).
const SHORT: Duration = Duration::from_millis(250);
/// Probes that run at the same time.
const TOGETHER: usize = 96;

#[derive(Debug, Clone)]
pub struct ProbeState {
    /// The next source port, outside the kernel's ephemeral range. Each packet has its own port, so each is a new flow.
    pub port: u16,
    /// The timeout of a probe whose answer is certain.
    pub patience: Duration,
}

impl Default for ProbeState {
    fn default() -> ProbeState {
        ProbeState { port: 10_000, patience: Duration::from_secs(20) }
    }
}

#[derive(Debug, Clone)]
pub struct QuestionPackets<'q> {
    pub question: &'q Question,
    pub count: usize,
    pub short: bool,
    /// Whether the first packet is sent alone, and its answer awaited.
    pub one_first: bool,
}

fn place(from: &oracle::PacketSource) -> ClusterHost {
    match from {
        oracle::PacketSource::Pod(name) => {
            ClusterHost::Pod { namespace: name.namespace.clone(), name: name.name.clone() }
        }
        oracle::PacketSource::Node(node) | oracle::PacketSource::Loopback(node) => ClusterHost::Node(node.clone()),
        oracle::PacketSource::Outside { client, .. } => ClusterHost::Client(client.clone()),
        oracle::PacketSource::LoadBalancer { .. } => ClusterHost::LoadBalancer,
    }
}

fn protocol(protocol: oracle::Protocol) -> Protocol {
    match protocol {
        oracle::Protocol::Tcp => Protocol::Tcp,
        oracle::Protocol::Udp => Protocol::Udp,
        oracle::Protocol::Sctp => Protocol::Sctp,
    }
}

/// Returns the observations of each question, in the order of `all`.
pub async fn ask(
    lab: &Lab,
    world: &World,
    all: &[QuestionPackets<'_>],
    pace: &mut ProbeState,
) -> Result<Vec<Vec<Observation>>, String> {
    let said = |error: svclab_cluster::ClusterError| error.to_string();
    let mut ways: Vec<(&str, IpNet)> = Vec::new();
    for packets in all {
        let near = world.nodes.iter().any(|node| node.addresses.contains(&packets.question.to.ip()));
        if let (oracle::PacketSource::Outside { client, enters }, false) = (&packets.question.from, near) {
            let to = IpNet::from(packets.question.to.ip());
            if !ways.contains(&(client, to)) {
                lab.add_client_route(client, to, enters).await.map_err(said)?;
                ways.push((client, to));
            }
        }
    }
    let mut seen: Vec<Vec<Observation>> = vec![Vec::new(); all.len()];
    for part in parts(all) {
        let mut probes: Vec<(usize, Probe)> = Vec::new();
        for (index, count) in part {
            for _ in 0..count {
                probes.push((index, probe(&all[index], pace)));
                pace.port += 1;
            }
        }
        // Probes with a short timeout wait while the others are sent.
        probes.sort_by_key(|(index, _)| !all[*index].short);
        let (indices, probes): (Vec<usize>, Vec<Probe>) = probes.into_iter().unzip();
        let outcomes = lab.probe_many(probes, TOGETHER).await.map_err(said)?;
        for (index, outcome) in indices.into_iter().zip(outcomes) {
            seen[index].push(Observation::of(world, &outcome));
        }
    }
    for (client, to) in ways {
        lab.remove_client_route(client, to).await.map_err(said)?;
    }
    Ok(seen)
}

/// Returns batches of question indexes and packet counts. Questions with affinity are in separate batches: two
/// concurrent first packets of a client could reach different endpoints through two frontends, and the next packet
/// would move the client (also in kube-proxy).
fn parts(all: &[QuestionPackets<'_>]) -> Vec<Vec<(usize, usize)>> {
    let together = all.iter().enumerate().filter(|(_, packets)| !packets.one_first);
    let mut parts = vec![together.map(|(index, packets)| (index, packets.count)).collect()];
    for (index, packets) in all.iter().enumerate().filter(|(_, packets)| packets.one_first) {
        parts.extend([vec![(index, 1)], vec![(index, packets.count - 1)]]);
    }
    parts
}

fn probe(packets: &QuestionPackets<'_>, pace: &ProbeState) -> Probe {
    Probe {
        from: place(&packets.question.from),
        to: packets.question.to,
        protocol: protocol(packets.question.protocol),
        source_address: packets.question.source,
        source_port: Some(pace.port),
        bytes: 0,
        dscp: 0,
        timeout: if packets.short { SHORT } else { pace.patience },
    }
}

#[cfg(test)]
mod tests {
    use svclab_oracle::{PacketSource, Protocol, Question};

    use super::{QuestionPackets, parts};

    #[test]
    fn clients_that_stay_are_asked_one_after_the_other() {
        let to = "10.96.0.1:80".parse().unwrap_or_else(|error| panic!("{error}"));
        let from = PacketSource::Node("node-a".to_owned());
        let question = Question { from, source: None, to, protocol: Protocol::Tcp };
        let packets = |count, one_first| QuestionPackets { question: &question, count, short: false, one_first };
        let all = [packets(3, true), packets(2, false), packets(12, true), packets(80, false)];
        assert_eq!(parts(&all), [vec![(1, 2), (3, 80)], vec![(0, 1)], vec![(0, 2)], vec![(2, 1)], vec![(2, 11)]]);
    }
}
