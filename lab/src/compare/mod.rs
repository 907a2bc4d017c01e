//! Compares two proxies by the reports of the same scenarios: verdicts, counts of answers, and source addresses. Without I/O.

mod differences;
mod json;
mod text;

pub use differences::{Difference, DifferenceKind, differences};
pub use json::render as json;
pub use text::render as text;

use crate::report::{Figures, ScenarioReport};

/// One scenario with both proxies.
#[derive(Debug, Clone)]
pub struct Pair {
    pub a: ScenarioReport,
    pub b: ScenarioReport,
}

#[derive(Debug, Clone, Default)]
pub struct ProxyComparison {
    /// The names of the proxies.
    pub names: [String; 2],
    /// The scenarios in the order of the run.
    pub pairs: Vec<Pair>,
    pub excused: Vec<Excused>,
}

/// A scenario that was not run in a mode, because one of the proxies is excused.
#[derive(Debug, Clone)]
pub struct Excused {
    pub scenario: String,
    pub mode: String,
    /// The name of the excused proxy.
    pub proxy: String,
    pub reason: String,
}

impl ProxyComparison {
    /// Whether nothing but figures differs.
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
