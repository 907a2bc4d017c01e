use crate::network::{HostId, Network, PacketVerdict, ReplyFailure};

/// Returns a verdict as text with machine names.
#[must_use]
pub fn verdict(network: &Network, verdict: &PacketVerdict) -> String {
    let name = |id: &HostId| network.host(*id).name().to_owned();
    let silently = |delivered: &bool| if *delivered { "" } else { ", without an error to the caller" };
    match verdict {
        PacketVerdict::Answered { by, at, saw } => format!("{} answers at {at} and sees {}", name(by), saw.ip()),
        PacketVerdict::Unanswered { by, at, saw, why } => {
            format!("{} answers at {at} and sees {}, but {}", name(by), saw.ip(), reply_failure(network, why))
        }
        PacketVerdict::Refused { by, at, delivered } => {
            format!("refused by {} at {at}{}", name(by), silently(delivered))
        }
        PacketVerdict::Rejected { by, with, delivered } => {
            format!("rejected by {} with {with}{}", name(by), silently(delivered))
        }
        PacketVerdict::Dropped { by, why } => format!("lost on {}: {}", name(by), why),
    }
}

/// Returns the reason of a failed reply as text.
#[must_use]
pub fn reply_failure(network: &Network, why: &ReplyFailure) -> String {
    let name = |id: &HostId| network.host(*id).name().to_owned();
    match why {
        ReplyFailure::Lost { host, why } => format!("the answer is lost on {}: {}", name(host), why),
        ReplyFailure::Rejected { host, with } => format!("the answer is rejected by {} with {with}", name(host)),
        ReplyFailure::WrongSource { from } => format!("the answer comes from {from}"),
        ReplyFailure::Strayed { host } => format!("the answer goes to {}", name(host)),
        ReplyFailure::None => "there is no answer".to_owned(),
    }
}
