//! Where two proxies differ: the same scenarios, run with each, step beside step. Pure.
//!
//! What a scenario promises both is in the verdicts; beyond them, who answered how often and which source address each
//! server saw are compared directly, so that a difference shows where nothing was promised.

mod differences;
mod json;
mod text;

pub use differences::{Difference, What, differences};
pub use json::render as json;
pub use text::render as text;

use crate::report::{Figures, ScenarioReport};

/// One scenario with both proxies.
#[derive(Debug, Clone)]
pub struct Pair {
    /// With the first.
    pub a: ScenarioReport,
    /// With the second.
    pub b: ScenarioReport,
}

/// Everything that was compared.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// What the proxies are called.
    pub names: [String; 2],
    /// Each scenario, in the order they were run.
    pub pairs: Vec<Pair>,
    /// What was not run.
    pub excused: Vec<Excused>,
}

/// A scenario that was not run in a mode, because one of the proxies is excused.
#[derive(Debug, Clone)]
pub struct Excused {
    /// Its name.
    pub scenario: String,
    /// The mode.
    pub mode: String,
    /// What the proxy is called.
    pub proxy: String,
    /// Why.
    pub reason: String,
}

impl Comparison {
    /// Whether nothing differs. Figures may.
    pub fn alike(&self) -> bool {
        self.pairs.iter().all(|pair| differences(pair).is_empty())
    }

    /// The figures of each proxy over all scenarios in which both were measured.
    pub fn figures(&self) -> [Figures; 2] {
        let mut sums = [Figures::default(), Figures::default()];
        for pair in &self.pairs {
            if let (Some(a), Some(b)) = (&pair.a.figures, &pair.b.figures) {
                let [sum_a, sum_b] = sums;
                sums = [sum_a.and(a), sum_b.and(b)];
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests;
