//! Counts of a sweep, which are equal for equal seeds, whatever the kernel draws.

use std::collections::BTreeMap;
use std::fmt;

use svclab_oracle::{FrontendKind, Rule};

use crate::cluster_case::ClusterCase;
use crate::question_sample::{SourceKind, VerdictKind};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelSweepCounts {
    pub clusters: u64,
    pub questions: u64,
    pub packets: u64,
    pub sources: BTreeMap<SourceKind, u64>,
    pub words: BTreeMap<VerdictKind, u64>,
    /// Questions about addresses that several service ports claim.
    pub disputed: u64,
    /// Checked distributions, and their packets.
    pub distributions: (u64, u64),
    /// Clusters judged again with altered rules, and their questions.
    pub altered: (u64, u64),
    pub unaltered: u64,
    pub refused: u64,
}

impl KernelSweepCounts {
    pub fn note(&mut self, case: &ClusterCase<'_>) {
        self.clusters += 1;
        self.packets += case.packets() as u64;
        for asked in &case.asked {
            self.questions += 1;
            self.disputed += u64::from(asked.chosen.promise.rests_on(Rule::Shared));
            *self.sources.entry(SourceKind::of(case.cluster, &asked.chosen.question)).or_default() += 1;
            *self.words.entry(VerdictKind::of(&asked.chosen.promise)).or_default() += 1;
        }
    }

    /// Returns counts below their floors (about a third of the usual share) or above their ceilings: such a sweep
    /// proves too little.
    pub fn shortfalls(&self) -> Vec<String> {
        let word = |word: &VerdictKind| self.words.get(word).copied().unwrap_or_default();
        let source = |source: &SourceKind| self.sources.get(source).copied().unwrap_or_default();
        let percent = |percent: u64| self.questions * percent / 100;
        let mut floors: Vec<(String, u64, u64)> = Vec::new();
        for kind in SourceKind::ALL {
            let rare = matches!(kind, SourceKind::Loopback | SourceKind::LoadBalancer);
            floors.push((format!("from {kind:?}"), source(&kind), percent(if rare { 1 } else { 6 })));
        }
        for kind in VerdictKind::COMMON {
            let share = match kind {
                VerdictKind::Deliver(FrontendKind::LoadBalancerIp) => u64::from(self.clusters >= 16),
                VerdictKind::Drop | VerdictKind::Reject => 1,
                // A few clusters may have no endpoint behind one kind of frontend.
                VerdictKind::Deliver(_) if self.clusters < 8 => 0,
                VerdictKind::Deliver(_) => 4,
                _ => 10,
            };
            floors.push((format!("promised {kind:?}"), word(&kind), percent(share)));
        }
        let (altered, asked) = self.altered;
        // Usually, 40 clusters have about eight disputed questions.
        floors.push(("of what several service ports claim".to_owned(), self.disputed, self.clusters / 40));
        let (distributions, draws) = if self.clusters < 8 { (0, 0) } else { (self.clusters / 3, 20 * self.clusters) };
        floors.push(("distributions".to_owned(), self.distributions.0, distributions));
        floors.push(("draws from them".to_owned(), self.distributions.1, draws));
        floors.push(("clusters with altered rules".to_owned(), altered, (self.clusters - self.unaltered) / 4));
        floors.push((
            "questions about altered rules".to_owned(),
            asked,
            if self.unaltered == 0 { percent(15) } else { 0 },
        ));
        let unpromised = word(&VerdictKind::Undefined) + word(&VerdictKind::Refuse);
        let ceilings = [
            ("without a promise", unpromised, percent(10).max(6)),
            ("altered rules that the kernel did not take", self.refused, altered / 2),
        ];
        let low = floors.into_iter().filter(|(_, count, floor)| count < floor);
        let low = low.map(|(what, count, floor)| format!("{what}: {count}, expected at least {floor}"));
        let high = ceilings.into_iter().filter(|(_, count, ceiling)| count > ceiling);
        low.chain(high.map(|(what, count, ceiling)| format!("{what}: {count}, expected at most {ceiling}"))).collect()
    }
}

impl fmt::Display for KernelSweepCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} clusters, {} questions, {} packets", self.clusters, self.questions, self.packets)?;
        let sources: Vec<String> = self.sources.iter().map(|(source, count)| format!("{source:?} {count}")).collect();
        writeln!(f, "  from: {}", sources.join(", "))?;
        let words: Vec<String> = self.words.iter().map(|(word, count)| format!("{word:?} {count}")).collect();
        writeln!(f, "  promised: {}; of what several claim {}", words.join(", "), self.disputed)?;
        writeln!(f, "  distributions: {} of {} draws", self.distributions.0, self.distributions.1)?;
        let (clusters, questions) = self.altered;
        write!(
            f,
            "  altered rules: {clusters} clusters, {questions} questions; {} not taken by the kernel",
            self.refused
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> KernelSweepCounts {
        KernelSweepCounts {
            clusters: 16,
            questions: 288,
            packets: 2000,
            sources: SourceKind::ALL.map(|source| (source, 48)).into(),
            words: VerdictKind::COMMON.map(|word| (word, 41)).into(),
            disputed: 1,
            distributions: (50, 1500),
            altered: (6, 108),
            unaltered: 0,
            refused: 0,
        }
    }

    #[test]
    fn a_sweep_that_hardly_looked_is_not_green() {
        assert_eq!(usual().shortfalls(), [""; 0]);
        let mut one = usual();
        one.words.insert(VerdictKind::Untouched, 1);
        assert_eq!(one.shortfalls(), ["promised Untouched: 1, expected at least 28"]);
        let no_draws = KernelSweepCounts { distributions: (1, 3), ..usual() };
        let says = ["distributions: 1, expected at least 5", "draws from them: 3, expected at least 320"];
        assert_eq!(no_draws.shortfalls(), says);
        let refused = KernelSweepCounts { refused: 4, ..usual() };
        assert_eq!(refused.shortfalls(), ["altered rules that the kernel did not take: 4, expected at most 3"]);
        assert!(KernelSweepCounts { altered: (0, 0), ..usual() }.shortfalls().len() == 2);
    }
}
