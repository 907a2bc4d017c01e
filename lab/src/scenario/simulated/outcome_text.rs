//! What became of a packet, in words.

use svclab_sim::network::{Broken, HostId, Network, Outcomes, Verdict};
use svclab_sim::trace;

/// A line for each outcome, with its probability.
pub fn outcomes(network: &Network, all: &Outcomes) -> Vec<String> {
    let certain = all.outcomes.len() == 1;
    let share = |probability: String| if certain { "always".to_owned() } else { probability };
    let each = all.outcomes.iter();
    each.map(|one| format!("{}  {}", share(one.probability.to_string()), verdict(network, &one.verdict))).collect()
}

/// The way of the packet: the first one, on which every rule that asks chance holds, or all of them as a tree.
pub fn ways(all: &Outcomes, tree: bool) -> String {
    match all.ways.first() {
        Some((_, journey)) if !tree => trace::render(journey),
        _ => trace::render_tree(all),
    }
}

fn verdict(network: &Network, verdict: &Verdict) -> String {
    let name = |id: &HostId| network.host(*id).name().to_owned();
    let silently = |delivered: &bool| if *delivered { "" } else { ", and the caller never hears of it" };
    match verdict {
        Verdict::Answered { by, at, saw } => format!("{} answers at {at} and sees {}", name(by), saw.ip()),
        Verdict::Unanswered { by, at, saw, why } => {
            format!("{} answers at {at} and sees {}, but {}", name(by), saw.ip(), broken(network, why))
        }
        Verdict::Refused { by, at, delivered } => format!("refused by {} at {at}{}", name(by), silently(delivered)),
        Verdict::Rejected { by, with, delivered } => {
            format!("rejected by {} with {with}{}", name(by), silently(delivered))
        }
        Verdict::Dropped { by, why } => format!("lost on {}: {}", name(by), why),
    }
}

fn broken(network: &Network, why: &Broken) -> String {
    let name = |id: &HostId| network.host(*id).name().to_owned();
    match why {
        Broken::Lost { host, why } => format!("the answer is lost on {}: {}", name(host), why),
        Broken::Rejected { host, with } => format!("the answer is rejected by {} with {with}", name(host)),
        Broken::WrongSource { from } => format!("the answer comes from {from}"),
        Broken::Strayed { host } => format!("the answer goes to {}", name(host)),
        Broken::None => "there is no answer".to_owned(),
    }
}
