use svclab_sim::network::{Network, Outcomes};
use svclab_sim::render;

pub fn outcomes(network: &Network, all: &Outcomes) -> Vec<String> {
    let certain = all.outcomes.len() == 1;
    let share = |probability: String| if certain { "always".to_owned() } else { probability };
    let each = all.outcomes.iter();
    each.map(|one| format!("{}  {}", share(one.probability.to_string()), render::verdict(network, &one.verdict)))
        .collect()
}

/// Returns the path on which every random match succeeds, or all paths as a tree.
pub fn ways(all: &Outcomes, tree: bool) -> String {
    match all.ways.first() {
        Some((_, journey)) if !tree => render::journey(journey),
        _ => render::tree(all),
    }
}
