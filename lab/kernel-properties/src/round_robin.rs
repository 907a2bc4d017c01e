//! In round robin every endpoint gets as many packets as the others, except in an unfinished round. A χ² test for equal
//! shares does not suffice: it also accepts random choices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use svclab_oracle::{PromisedVerdict, Protocol, ServicePortName};

use crate::cluster_case::{ClusterCase, JudgedQuestion, KernelFault};
use crate::observation::Observation;

type Round<'a> = (&'a str, &'a ServicePortName, BTreeSet<SocketAddr>);

/// Returns the rotations in which some endpoint got too many or too few packets, each with its first question.
pub fn out_of_turn(case: &ClusterCase<'_>, seen: &[Vec<Observation>]) -> Vec<KernelFault> {
    let mut rounds: BTreeMap<Round<'_>, Vec<usize>> = BTreeMap::new();
    for (question, asked) in case.asked.iter().enumerate() {
        if let Some(round) = round(asked) {
            rounds.entry(round).or_default().push(question);
        }
    }
    rounds
        .into_iter()
        .filter_map(|((node, service, endpoints), questions)| {
            let addresses: BTreeSet<_> = questions.iter().map(|question| called(&case.asked[*question])).collect();
            let counts = endpoints.iter().map(|endpoint| {
                let of =
                    |question: &usize| seen[*question].iter().filter(|one| answered_at(one) == Some(*endpoint)).count();
                questions.iter().map(of).sum::<usize>()
            });
            let counts: Vec<usize> = counts.collect();
            let (fewest, most) = (counts.iter().min()?, counts.iter().max()?);
            // Each called address may add an unfinished round.
            let others = others(case, node, service, &questions);
            let says = || format!("endpoints of {service} on {node} take turns, and were met {counts:?} times");
            (most - fewest > addresses.len() + others).then(|| KernelFault { question: questions[0], says: says() })
        })
        .collect()
}

pub fn looked_at(case: &ClusterCase<'_>) -> (u64, u64) {
    let rounds = case.asked.iter().filter(|asked| round(asked).is_some());
    rounds.fold((0, 0), |(count, packets), asked| (count + 1, packets + asked.packets().count as u64))
}

/// `None` if the endpoints do not take turns or the caller cannot distinguish them.
fn round(asked: &JudgedQuestion) -> Option<Round<'_>> {
    let PromisedVerdict::Deliver(delivery) = &asked.chosen.promise.verdict else { return None };
    if !asked.takes_turns() || !asked.is_drawn() {
        return None;
    }
    let endpoints = asked.expected.iter().map(|(seen, _)| answered_at(seen)).collect::<Option<BTreeSet<_>>>()?;
    Some((&delivery.node, &delivery.service, endpoints))
}

fn called(asked: &JudgedQuestion) -> (SocketAddr, Protocol) {
    (asked.chosen.question.to, asked.chosen.question.protocol)
}

/// The number of packets that advance the same rotation and are not counted.
fn others(case: &ClusterCase<'_>, node: &str, service: &ServicePortName, counted: &[usize]) -> usize {
    let family = |asked: &JudgedQuestion| asked.chosen.question.to.is_ipv4();
    let own = counted.first().map(|question| family(&case.asked[*question])).unwrap_or_default();
    let rest = case.asked.iter().enumerate().filter(|(question, _)| !counted.contains(question));
    let same = rest.filter(|(_, asked)| match &asked.chosen.promise.verdict {
        PromisedVerdict::Deliver(delivery) => {
            delivery.node == node && delivery.service == *service && family(asked) == own
        }
        _ => false,
    });
    same.map(|(_, asked)| asked.packets().count).sum()
}

fn answered_at(seen: &Observation) -> Option<SocketAddr> {
    match seen {
        Observation::Answered { at, .. } => Some(*at),
        _ => None,
    }
}
