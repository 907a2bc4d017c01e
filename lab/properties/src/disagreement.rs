use std::fmt::Write as _;

use svclab_oracle::{ClusterModel, Question};
use svclab_sim::render;

use crate::judge::{Judgement, Networks, flow};

pub fn text(networks: &Networks, cluster: &ClusterModel, question: &Question, judgement: &Judgement) -> String {
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
                let _ = writeln!(text, "{} {}", one.probability, render::verdict(network, &one.verdict));
            }
            let _ = writeln!(text, "because\n{}", render::tree(outcomes));
        }
        _ => text.push_str("\n--- the simulator says that there is no such packet\n"),
    }
    text
}
