use std::collections::BTreeMap;
use std::fmt::Write as _;

use svclab_properties::disagreement;

use crate::cluster_case::{ClusterCase, KernelFault};
use crate::observation::Observation;

pub fn text(case: &ClusterCase<'_>, fault: &KernelFault, seen: &[Vec<Observation>]) -> String {
    let (asked, seen) = (&case.asked[fault.question], &seen[fault.question]);
    let question = &asked.chosen.question;
    let mut text = format!("{question}: {}\n", fault.says);
    text.push_str(&disagreement::text(&case.networks, case.cluster, question, &asked.judgement));
    text.push_str("\n--- what the caller notices, by the simulator\n");
    for (known, probability) in &asked.expected {
        let _ = writeln!(text, "{:>7.3}% {known}", probability * 100.0);
    }
    text.push_str("\n--- the kernel did\n");
    let mut counts: BTreeMap<&Observation, usize> = BTreeMap::new();
    seen.iter().for_each(|one| *counts.entry(one).or_default() += 1);
    for (one, count) in counts {
        let _ = writeln!(text, "{count:>4} of {}: {one}", seen.len());
    }
    text
}
