//! Pearson's χ² over one or more distributions, with a bound on false alarms for any number of draws.
//!
//! Tables of χ² assume many draws; their error at a probability of 10⁻⁹ is unknown. This module uses Chernoff's bound,
//! P(ΣX² ≥ t) ≤ min over λ of e^(−λt) · ΠE\[e^(λX²)\], with the exact expectations of the multinomial distribution: its
//! categories are independent Poisson variables with a given sum, so the expectation is a convolution of one vector per
//! category. Cost: k·n² for k categories and n draws.
//!
//! [`super::stats`] has one interval per backend. This test combines many distributions, so it detects small deviations
//! in all of them.

use std::collections::BTreeMap;

/// Values of λ to try. From one half on, the expectation grows with the number of draws.
const LAMBDAS: [f64; 10] = [0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45];

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DrawCounts {
    /// The draws and the share of each category. The shares sum to one; none is zero.
    pub counts: Vec<(usize, f64)>,
}

impl DrawCounts {
    pub fn total(&self) -> usize {
        self.counts.iter().map(|(count, _)| count).sum()
    }

    pub fn statistic(&self) -> f64 {
        let total = self.total() as f64;
        self.counts.iter().map(|(count, share)| (*count as f64 - total * share).powi(2) / (total * share)).sum()
    }

    fn shape(&self) -> DistributionShape {
        let mut shares: Vec<u64> = self.counts.iter().map(|(_, share)| share.to_bits()).collect();
        shares.sort_unstable();
        (self.total(), shares)
    }
}

type DistributionShape = (usize, Vec<u64>);

#[derive(Debug, Clone, Default)]
pub struct TailBounds {
    known: BTreeMap<DistributionShape, [f64; LAMBDAS.len()]>,
}

impl TailBounds {
    /// Returns a bound on the probability of a total deviation at least as large as that of `all`.
    pub fn bound<'a>(&mut self, all: impl IntoIterator<Item = &'a DrawCounts>) -> f64 {
        let (mut statistic, mut expectations) = (0.0, [0.0; LAMBDAS.len()]);
        for drawn in all.into_iter().filter(|drawn| drawn.total() > 0) {
            statistic += drawn.statistic();
            let known = self.known.entry(drawn.shape()).or_insert_with_key(|(total, shares)| {
                let shares: Vec<f64> = shares.iter().map(|bits| f64::from_bits(*bits)).collect();
                LAMBDAS.map(|lambda| ln_expectation(*total, &shares, lambda))
            });
            expectations.iter_mut().zip(known).for_each(|(sum, one)| *sum += *one);
        }
        let exponents = LAMBDAS.iter().zip(expectations).map(|(lambda, ln)| ln - lambda * statistic);
        exponents.fold(0.0, f64::min).exp()
    }
}

/// Returns `ln E[e^(λX²)]`; infinite where `f64` overflows.
fn ln_expectation(total: usize, shares: &[f64], lambda: f64) -> f64 {
    let ln_factorials = super::stats::ln_factorials(total);
    let poisson = |mean: f64, x: usize| x as f64 * mean.ln() - mean - ln_factorials[x];
    let all = total as f64;
    let mut sums = vec![0.0; total + 1];
    sums[0] = 1.0;
    for share in shares {
        let mean = all * share;
        let weight = |x: usize| (poisson(mean, x) + lambda * (x as f64 - mean).powi(2) / mean).exp();
        let weights: Vec<f64> = (0..=total).map(weight).collect();
        sums = (0..=total).map(|sum| (0..=sum).map(|x| weights[x] * sums[sum - x]).sum()).collect();
    }
    let ln = sums[total].ln() - poisson(all, total);
    // Zero times infinity is NaN.
    if ln.is_nan() { f64::INFINITY } else { ln }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(counts: &[usize]) -> DrawCounts {
        let share = 1.0 / counts.len() as f64;
        DrawCounts { counts: counts.iter().map(|count| (*count, share)).collect() }
    }

    #[test]
    fn the_expectation_is_exact() {
        // X² is 2 with probability one half, else 0.
        let exact = |lambda: f64| (0.5 * (2.0 * lambda).exp() + 0.5).ln();
        for lambda in LAMBDAS {
            assert!((ln_expectation(2, &[0.5, 0.5], lambda) - exact(lambda)).abs() < 1e-12, "{lambda}");
        }
        // With many draws the expectation approaches that of χ² with two degrees of freedom, 1/(1 − 2λ).
        let near = ln_expectation(600, &[0.2, 0.3, 0.5], 0.1);
        assert!((near + (1.0_f64 - 0.2).ln()).abs() < 1e-2, "{near}");
    }

    #[test]
    fn the_bound_exceeds_the_exact_probability() {
        let mut tails = TailBounds::default();
        // The exact probability of 20 heads or 20 tails in 20 draws.
        let bound = tails.bound([&drawn(&[20, 0])]);
        assert!(bound >= 2.0_f64.powi(-19) && bound < 1e-3, "{bound}");
        assert!((tails.bound([&drawn(&[10, 10])]) - 1.0).abs() < 1e-12);
        assert!((tails.bound(&[]) - 1.0).abs() < 1e-12);
        // The 10⁻⁹ point of χ² with one degree of freedom is 37.3; Chernoff's bound is a little larger.
        let far = |count| drawn(&[count, 400 - count]);
        let alarm = (200..400).find(|count| tails.bound([&far(*count)]) < 1e-9).map(|count| far(count).statistic());
        assert!(alarm.is_some_and(|x| (37.3..50.0).contains(&x)), "{alarm:?}");
    }

    #[test]
    fn many_small_deviations_are_detected_together() {
        let mut tails = TailBounds::default();
        let all: Vec<DrawCounts> = (0..60).map(|_| drawn(&[65, 95])).collect();
        assert!(tails.bound([&all[0]]) > 0.01);
        assert!(tails.bound(&all) < 1e-9);
    }

    #[test]
    fn a_backend_that_is_never_drawn_is_detected() {
        let mut tails = TailBounds::default();
        for backends in 2..7 {
            let mut counts = vec![80 * backends / (backends - 1); backends];
            counts[0] = 0;
            assert!(tails.bound([&drawn(&counts)]) < 1e-11, "{backends}");
        }
    }
}
