//! What a sweep has done: the same text for the same seed, however the kernel draws.

use std::collections::BTreeMap;
use std::fmt;

use svclab_oracle::Rule;

use crate::choice::{Source, Word};
use crate::hearing::Hearing;

/// Numbers of everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Clusters.
    pub clusters: u64,
    /// Questions put to all three.
    pub questions: u64,
    /// Packets that were sent for them.
    pub packets: u64,
    /// Questions by the kind of their source.
    pub sources: BTreeMap<Source, u64>,
    /// Questions by the oracle's verdict.
    pub words: BTreeMap<Word, u64>,
    /// Questions about what several service ports claim.
    pub disputed: u64,
    /// Distributions that the χ² test was about, and packets that were draws from them.
    pub distributions: (u64, u64),
    /// Clusters whose rules were altered to ask the simulator and the kernel about those; questions about them.
    pub altered: (u64, u64),
    /// Clusters whose altered rules the kernel did not take.
    pub refused: u64,
}

impl Tally {
    /// Counts a cluster as it was heard.
    pub fn note(&mut self, hearing: &Hearing<'_>) {
        self.clusters += 1;
        self.packets += hearing.packets() as u64;
        for asked in &hearing.asked {
            self.questions += 1;
            self.disputed += u64::from(asked.chosen.promise.rests_on(Rule::Shared));
            *self.sources.entry(Source::of(hearing.cluster, &asked.chosen.question)).or_default() += 1;
            *self.words.entry(Word::of(&asked.chosen.promise)).or_default() += 1;
        }
    }

    /// Kinds of sources and verdicts that have not occurred; of many clusters also disputes, of which one in five or so has one.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let sources = Source::ALL.iter().filter(|source| !self.sources.contains_key(source));
        let words = Word::COMMON.iter().filter(|word| !self.words.contains_key(word));
        let disputed =
            (self.disputed == 0 && self.clusters >= 40).then(|| "what several service ports claim".to_owned());
        let missing = sources.map(|source| format!("{source:?}")).chain(words.map(|word| format!("{word:?}")));
        missing.chain(disputed).collect()
    }
}

impl fmt::Display for Tally {
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
