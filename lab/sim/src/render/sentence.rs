//! What became of a packet, in a sentence.

use crate::network::{Broken, HostId, Network, Verdict};

/// A verdict in a sentence, with the names of the machines.
#[must_use]
pub fn verdict(network: &Network, verdict: &Verdict) -> String {
    let name = |id: &HostId| network.host(*id).name().to_owned();
    let silently = |delivered: &bool| if *delivered { "" } else { ", and the caller never hears of it" };
    match verdict {
        Verdict::Answered { by, at, saw } => format!("{} answers at {at} and sees {}", name(by), saw.ip()),
        Verdict::Unanswered { by, at, saw, why } => {
            format!("{} answers at {at} and sees {}, but {}", name(by), saw.ip(), reply_failure(network, why))
        }
        Verdict::Refused { by, at, delivered } => format!("refused by {} at {at}{}", name(by), silently(delivered)),
        Verdict::Rejected { by, with, delivered } => {
            format!("rejected by {} with {with}{}", name(by), silently(delivered))
        }
        Verdict::Dropped { by, why } => format!("lost on {}: {}", name(by), why),
    }
}

/// What is wrong with an answer.
#[must_use]
pub fn reply_failure(network: &Network, why: &Broken) -> String {
    let name = |id: &HostId| network.host(*id).name().to_owned();
    match why {
        Broken::Lost { host, why } => format!("the answer is lost on {}: {}", name(host), why),
        Broken::Rejected { host, with } => format!("the answer is rejected by {} with {with}", name(host)),
        Broken::WrongSource { from } => format!("the answer comes from {from}"),
        Broken::Strayed { host } => format!("the answer goes to {}", name(host)),
        Broken::None => "there is no answer".to_owned(),
    }
}
