//! Prints one example of each kind of disagreement: `survey [MODE] [CLUSTERS] [QUESTIONS]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::collections::BTreeMap;

use svclab_oracle::{Mode, generate};
use svclab_properties::disagreement;
use svclab_properties::judge::judge;
use svclab_properties::sweep::{in_mode, networks};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, other: u64| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(other);
    let mode = Mode::ALL.into_iter().find(|mode| Some(mode.name()) == arguments.first().map(String::as_str));
    let mode = mode.unwrap_or_default();
    let (from, clusters, step) = (number(3, 0), number(1, 100), number(2, 10));
    let mut kinds: BTreeMap<String, (u64, usize, String)> = BTreeMap::new();
    for seed in from..from + clusters {
        let cluster = in_mode(&generate::recipe(seed), mode);
        let networks = match networks(&cluster) {
            Ok(networks) => networks,
            Err(why) => {
                kinds
                    .entry(why.chars().filter(|c| !c.is_ascii_digit()).take(120).collect())
                    .or_insert((0, 0, why))
                    .0 += 1;
                continue;
            }
        };
        let oracle = cluster.oracle();
        let skip = seed % step;
        for question in cluster.questions().iter().skip(skip as usize).step_by(step as usize) {
            let judgement = judge(&networks, (&cluster, &oracle), question, oracle.ask(question));
            if judgement.faults.is_empty() {
                continue;
            }
            let rules: Vec<String> =
                judgement.promise.because.iter().map(|reason| format!("{:?}", reason.rule)).collect();
            let from: String = format!("{:?}", question.from).chars().take_while(|c| c.is_alphabetic()).collect();
            let kind = format!("{} {} {}", judgement.faults[0].property, from, rules.join(" "));
            let size = cluster.objects.services.len() + cluster.objects.slices.len();
            let entry = kinds.entry(kind).or_insert_with(|| (0, usize::MAX, String::new()));
            entry.0 += 1;
            if size < entry.1 {
                entry.1 = size;
                entry.2 = format!("seed {seed}\n{}", disagreement::text(&networks, &cluster, question, &judgement));
            }
        }
    }
    for (kind, (count, _, text)) in &kinds {
        println!("===== {count} x {kind}\n{text}");
    }
    for (kind, (count, ..)) in &kinds {
        println!("{count:>6} {kind}");
    }
}
