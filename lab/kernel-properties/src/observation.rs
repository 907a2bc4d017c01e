use std::fmt;
use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;
use svclab_cluster::traffic::probe::{ProbeAnswer, ProbeOutcome};
use svclab_oracle::{PodName, Promise, PromisedReply, PromisedVerdict, World};
use svclab_properties::machines::machine_of_pod;
use svclab_sim::network::{Network, Outcomes, PacketVerdict as Found};
use svclab_sim::trace::DropReason;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Observation {
    Answered {
        by: String,
        /// The address and port that the client called.
        at: SocketAddr,
        saw: IpAddr,
    },
    /// A TCP reset or ICMP port unreachable.
    Refused,
    Silence,
    /// The ICMP error "administratively prohibited".
    Forbidden,
    NoWay,
    /// Errors that no judge predicts.
    Odd(String),
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Observation::Answered { by, at, saw } => write!(f, "{by} answers at {at}, saw {saw}"),
            Observation::Refused => f.write_str("refused"),
            Observation::Silence => f.write_str("silence"),
            Observation::Forbidden => f.write_str("forbidden"),
            Observation::NoWay => f.write_str("no way there"),
            Observation::Odd(what) => f.write_str(what),
        }
    }
}

impl Observation {
    pub fn of(world: &World, outcome: &ProbeOutcome) -> Observation {
        match &outcome.answer {
            ProbeAnswer::Replied { server, peer, at, .. } => {
                let name = server
                    .split_once('/')
                    .map(|(namespace, name)| PodName { namespace: namespace.to_owned(), name: name.to_owned() });
                let by = name.and_then(|name| machine_of_pod(world, &name));
                Observation::Answered { by: by.unwrap_or_else(|| server.clone()), at: *at, saw: peer.ip() }
            }
            ProbeAnswer::Refused => Observation::Refused,
            ProbeAnswer::TimedOut => Observation::Silence,
            ProbeAnswer::Unreachable(why) => {
                // See `icmp_err_convert` (net/ipv4/icmp.c) and `tab_unreach` (net/ipv6/icmp.c).
                let is = |errno: Errno| why.ends_with(&format!("(os error {})", errno as i32));
                match () {
                    () if is(Errno::ENETUNREACH) => Observation::NoWay,
                    () if is(Errno::EHOSTUNREACH) || is(Errno::EACCES) => Observation::Forbidden,
                    () => Observation::Odd(format!("unreachable: {why}")),
                }
            }
            ProbeAnswer::Broken(why) => Observation::Odd(format!("broken: {why}")),
        }
    }

    pub fn said(network: &Network, verdict: &Found) -> Observation {
        match verdict {
            Found::Answered { by, at, saw } => {
                Observation::Answered { by: network.host(*by).name().to_owned(), at: *at, saw: saw.ip() }
            }
            Found::Rejected { delivered: true, with, .. } => match with.to_string().as_str() {
                "tcp-reset" | "icmp-port-unreachable" | "icmp6-port-unreachable" => Observation::Refused,
                _ => Observation::Forbidden,
            },
            Found::Refused { delivered: true, .. } => Observation::Refused,
            Found::Dropped { why: DropReason::NoRoute, .. } => Observation::NoWay,
            // The client does not accept a reply from another address.
            Found::Refused { .. } | Found::Rejected { .. } | Found::Unanswered { .. } | Found::Dropped { .. } => {
                Observation::Silence
            }
        }
    }
}

/// Returns observations with probabilities; a client without an address of the family has no route.
pub fn expected(network: &Network, outcomes: Option<&Outcomes>) -> Vec<(Observation, f64)> {
    let Some(outcomes) = outcomes else { return vec![(Observation::NoWay, 1.0)] };
    let mut all: Vec<(Observation, f64)> = Vec::new();
    for one in &outcomes.outcomes {
        let (seen, probability) = (Observation::said(network, &one.verdict), one.probability.to_f64());
        match all.iter_mut().find(|(known, _)| *known == seen) {
            Some((_, sum)) => *sum += probability,
            None => all.push((seen, probability)),
        }
    }
    all
}

/// Whether `seen` keeps the promise; `bare`: the observations without rules.
pub fn keeps(world: &World, promise: &Promise, seen: &Observation, bare: &[(Observation, f64)]) -> bool {
    match &promise.verdict {
        PromisedVerdict::Undefined => true,
        PromisedVerdict::Untouched => bare.iter().any(|(known, _)| known == seen),
        PromisedVerdict::Drop => *seen == Observation::Silence,
        PromisedVerdict::Reject => *seen == Observation::Refused,
        PromisedVerdict::Refuse => matches!(seen, Observation::Silence | Observation::Refused),
        PromisedVerdict::Deliver(delivery) => delivery.backends.iter().any(|backend| match (seen, backend.reply) {
            (Observation::Answered { by, at, saw }, PromisedReply::From(_)) => {
                let machine = backend.pod.as_ref().and_then(|pod| machine_of_pod(world, pod));
                backend.address == *at && machine.is_none_or(|machine| machine == *by) && backend.sees.contains(saw)
            }
            (Observation::Silence, PromisedReply::AsymmetricReply(_)) => true,
            _ => false,
        }),
    }
}
