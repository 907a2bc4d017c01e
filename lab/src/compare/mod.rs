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
    /// In the order of the run.
    pub pairs: Vec<Pair>,
    pub excused: Vec<Excused>,
}

/// Not run in a mode, because a proxy is excused.
#[derive(Debug, Clone)]
pub struct Excused {
    pub scenario: String,
    pub mode: String,
    pub proxy: String,
    pub reason: String,
}

impl ProxyComparison {
    /// Whether at most figures differ.
    pub fn alike(&self) -> bool {
        self.pairs.iter().all(|pair| differences(pair).is_empty())
    }

    /// Over all scenarios in which both proxies were measured.
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
