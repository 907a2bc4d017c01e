//! Random choices of a packet's walk: drawn from one seed, or every combination in turn.
//!
//! A walk draws where the kernel draws (`statistic --mode random`), rotates (`--mode nth`, IPVS `rr` and `wrr`) or
//! picks a port. `explore` repeats a walk with every combination of draws for exact results.

use crate::fraction::Fraction;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    answer: usize,
    /// The number of possible answers.
    of: usize,
    numerator: u64,
    denominator: u64,
    unknown: bool,
}

impl Decision {
    pub(crate) fn answer(&self) -> usize {
        self.answer
    }

    /// Whether this answers an unknown fact, by 0 (no) or 1 (yes).
    pub(crate) fn is_unknown(&self) -> bool {
        self.unknown
    }
}

pub(crate) fn product(decisions: &[Decision]) -> Fraction {
    let drawn = decisions.iter().filter(|decision| decision.of > 1 && !decision.unknown);
    drawn.fold(Fraction::one(), |product, decision| product.times(decision.numerator, decision.denominator))
}

#[derive(Debug, Clone)]
enum ChanceSource {
    Seeded(u64),
    /// The answers of the first draws; later draws take answer 0.
    Script(Vec<usize>),
}

/// A walk's source of draws, and its draws so far.
#[derive(Debug, Clone)]
pub struct Chance {
    source: ChanceSource,
    taken: Vec<Decision>,
    asked_unknown: bool,
}

impl Chance {
    /// Draws random numbers by SplitMix64 (Steele, Lea, Flood 2014).
    #[must_use]
    pub fn seeded(seed: u64) -> Chance {
        Chance { source: ChanceSource::Seeded(seed), taken: Vec::new(), asked_unknown: false }
    }

    pub(crate) fn scripted(script: Vec<usize>) -> Chance {
        Chance { source: ChanceSource::Script(script), taken: Vec::new(), asked_unknown: false }
    }

    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.source, ChanceSource::Script(_))
    }

    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn choose(&mut self, shares: &[u64]) -> usize {
        let total: u64 = shares.iter().sum();
        let possible: Vec<usize> = (0..shares.len()).filter(|i| shares[*i] > 0).collect();
        let answer = match &mut self.source {
            ChanceSource::Seeded(state) => {
                // 64-bit multiply-high: the bias is below total/2^64.
                let mut drawn = ((u128::from(Self::next(state)) * u128::from(total)) >> 64) as u64;
                possible.iter().position(|i| {
                    let hit = drawn < shares[*i];
                    drawn = drawn.wrapping_sub(shares[*i]);
                    hit
                })
            }
            ChanceSource::Script(script) => script.get(self.taken.len()).copied(),
        };
        let answer = answer.unwrap_or(0);
        let Some(chosen) = possible.get(answer).copied() else {
            return 0;
        };
        let (numerator, denominator) = (shares[chosen], total);
        self.taken.push(Decision { answer, of: possible.len(), numerator, denominator, unknown: false });
        chosen
    }

    /// Answers an unknown fact: exact walks try no, then yes. `None` with a seed.
    pub(crate) fn unknown(&mut self) -> Option<bool> {
        let ChanceSource::Script(script) = &self.source else {
            return None;
        };
        let answer = script.get(self.taken.len()).copied().unwrap_or(0);
        self.taken.push(Decision { answer, of: 2, numerator: 1, denominator: 1, unknown: true });
        self.asked_unknown = true;
        Some(answer == 1)
    }

    pub(crate) fn note_unknown(&mut self) {
        self.asked_unknown = true;
    }

    pub(crate) fn asked_unknown(&self) -> bool {
        self.asked_unknown
    }

    pub(crate) fn into_decisions(self) -> Vec<Decision> {
        self.taken
    }

    pub(crate) fn below(&mut self, threshold: u32) -> bool {
        let rest = 0x8000_0000 - u64::from(threshold);
        self.choose(&[u64::from(threshold), rest]) == 0
    }

    /// Draws a port offset. Returns 0 when all outcomes are computed, because verdicts do not depend on ports.
    pub(crate) fn offset(&mut self, size: u32) -> u32 {
        match &mut self.source {
            ChanceSource::Seeded(state) => ((u128::from(Self::next(state)) * u128::from(size)) >> 64) as u32,
            ChanceSource::Script(_) => 0,
        }
    }

    /// Returns the joint probability of all draws so far.
    #[must_use]
    pub fn probability(&self) -> Fraction {
        product(&self.taken)
    }

    fn successor(&self) -> Option<Vec<usize>> {
        let last = self.taken.iter().rposition(|decision| decision.answer + 1 < decision.of)?;
        let mut script: Vec<usize> = self.taken[..=last].iter().map(|decision| decision.answer).collect();
        script[last] += 1;
        Some(script)
    }
}

const DECISIONS: usize = 10_000;

/// Calls `walk` with every combination of draws. Returns false after `limit` walks, or once `take` returns false.
pub(crate) fn explore<T>(
    limit: usize,
    mut walk: impl FnMut(&mut Chance) -> T,
    mut take: impl FnMut(T, Chance) -> bool,
) -> bool {
    let mut script = Some(Vec::new());
    for _ in 0..limit {
        let Some(answers) = script else {
            return true;
        };
        let mut chance = Chance::scripted(answers);
        let result = walk(&mut chance);
        if chance.taken.len() > DECISIONS {
            return false;
        }
        script = chance.successor();
        if !take(result, chance) {
            return false;
        }
    }
    script.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exploration_visits_each_path_once_and_the_probabilities_sum_to_one() {
        let mut ways = Vec::new();
        let mut sum = Fraction::zero();
        let whole = explore(
            100,
            |chance| {
                let first = chance.choose(&[1, 0, 2]);
                (first, if first == 2 { chance.below(1 << 30) } else { true })
            },
            |way, chance| {
                let share = chance.probability();
                sum = sum.plus(&share);
                ways.push((way, share.to_string()));
                true
            },
        );
        assert!(whole);
        assert_eq!(sum, Fraction::one());
        let expected = [((0, true), "1/3"), ((2, true), "1/3"), ((2, false), "1/3")];
        assert_eq!(ways, expected.map(|(way, share)| (way, share.to_owned())));
    }

    #[test]
    fn a_seed_repeats_and_its_draws_are_fair() {
        let draw = |seed| {
            let mut chance = Chance::seeded(seed);
            (0..3000).map(|_| chance.choose(&[1, 1, 1])).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let ones = draw(7).iter().filter(|drawn| **drawn == 1).count();
        assert!((900..1100).contains(&ones), "{ones}");
    }

    #[test]
    fn exploration_beyond_the_limit_fails() {
        assert!(!explore(3, |chance| chance.choose(&[1, 1, 1, 1]), |_, _| true));
    }
}
