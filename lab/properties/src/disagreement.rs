//! A disagreement for people: the cluster as a scenario, and the two judges' words.

use std::fmt::Write as _;

use svclab_oracle::{Cluster, Question};
use svclab_sim::network::{Broken, HostId, Network, Verdict};
use svclab_sim::trace::render_tree;

use crate::judge::{Judgement, Networks, flow};

/// Everything that is known about a disagreement.
#[must_use]
pub fn text(networks: &Networks, cluster: &Cluster, question: &Question, judgement: &Judgement) -> String {
    let mut text = String::new();
    let properties: std::collections::BTreeSet<_> = judgement.faults.iter().map(|fault| fault.property).collect();
    let properties: Vec<String> = properties.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "property: {}\n\n--- scenario\n", properties.join(", "));
    text.push_str(&cluster.scenario_yaml("generated", question));
    let _ = writeln!(text, "\n--- {question}");
    for fault in &judgement.faults {
        let _ = writeln!(text, "{}: {}", fault.property, fault.says);
    }
    let _ = writeln!(text, "\n--- {}", judgement.promise);
    match (&judgement.outcomes, flow(&networks.machines, &cluster.world, question)) {
        (Some(outcomes), Some((network, _))) => {
            let _ = writeln!(text, "\n--- the simulator says");
            for one in &outcomes.outcomes {
                let _ = writeln!(text, "{} {}", one.probability, said(network, &one.verdict));
            }
            let _ = writeln!(text, "because\n{}", render_tree(outcomes));
        }
        _ => text.push_str("\n--- the simulator says that there is no such packet\n"),
    }
    text
}

/// A verdict of the simulator's, with names.
#[must_use]
pub fn said(network: &Network, verdict: &Verdict) -> String {
    let name = |id: &HostId| network.host(*id).name().to_owned();
    match verdict {
        Verdict::Answered { by, at, saw } => format!("{} answers at {at}, saw {saw}", name(by)),
        Verdict::Unanswered { by, at, saw, why } => {
            format!("{} answers at {at}, saw {saw}, but {}", name(by), broken(network, why))
        }
        Verdict::Refused { by, at, delivered } => {
            format!("no socket on {} at {at}{}", name(by), undelivered(*delivered))
        }
        Verdict::Rejected { by, with, delivered } => {
            format!("{} rejects with {with}{}", name(by), undelivered(*delivered))
        }
        Verdict::Dropped { by, why } => format!("lost on {}: {why:?}", name(by)),
    }
}

fn undelivered(delivered: bool) -> &'static str {
    if delivered { "" } else { ", and no refusal reaches the caller" }
}

/// What is wrong with an answer.
#[must_use]
pub fn broken(network: &Network, why: &Broken) -> String {
    let name = |id: &HostId| network.host(*id).name().to_owned();
    match why {
        Broken::Lost { host, why } => format!("the answer is lost on {}: {why:?}", name(host)),
        Broken::Rejected { host, with } => format!("the answer is rejected on {} with {with}", name(host)),
        Broken::WrongSource { from } => format!("the answer comes from {from}"),
        Broken::Strayed { host } => format!("the answer reaches {}", name(host)),
        Broken::None => "there is no answer to that".to_owned(),
    }
}
