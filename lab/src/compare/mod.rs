//! Compares two proxies by their reports of the same scenarios: verdicts, counts of answers, source addresses. No I/O.

mod differences;
mod json;
mod text;

pub use differences::{Difference, DifferenceKind, differences};
pub use json::render as json;
pub use text::render as text;

use crate::report::{Figures, ScenarioReport};

#[derive(Debug, Clone)]
pub struct Pair {
    pub a: ScenarioReport,
    pub b: ScenarioReport,
}

#[derive(Debug, Clone, Default)]
pub struct ProxyComparison {
    pub names: [String; 2],
    /// One pair per scenario, in the order of the run.
    pub pairs: Vec<Pair>,
    pub excused: Vec<Excused>,
}

/// A scenario that was not run in a mode, because a proxy is excused.
#[derive(Debug, Clone)]
pub struct Excused {
    pub scenario: String,
    pub mode: String,
    pub proxy: String,
    pub reason: String,
}

impl ProxyComparison {
    /// Whether the proxies differ at most in their costs.
    pub fn alike(&self) -> bool {
        self.pairs.iter().all(|pair| differences(pair).is_empty())
    }

    /// Returns each proxy's costs over the scenarios that measured both.
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
