//! Pearson's χ² over one distribution or over many, with a bound on false alarms that holds for any number of draws.
//!
//! Tables of the χ² distribution are for very many draws; how wrong they are at one in 10⁹ is not known. So the bound here
//! is Chernoff's, P(ΣX² ≥ t) ≤ min over λ of e^(−λt) · ΠE\[e^(λX²)\], with the expectations of the multinomial distribution
//! itself. Given the number of draws, its categories are Poisson variables that happen to sum up to it, and X² is a sum over
//! categories: the expectation is a convolution of one vector for each. It is exact, and costs k·n² for k categories and n draws.
//!
//! [`super::stats`] has an interval for each backend and knows how many probes are enough; this one takes many distributions
//! together, and so sees what is a little wrong in all of them.

use std::collections::BTreeMap;

/// Values of λ that are tried. Above one half the expectation grows with the number of draws.
const LAMBDAS: [f64; 10] = [0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45];

/// How often each of some backends was drawn, with its share.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Drawn {
    /// Numbers of draws, and shares; these sum up to one, and none is zero.
    pub counts: Vec<(usize, f64)>,
}

impl Drawn {
    /// All draws.
    pub fn total(&self) -> usize {
        self.counts.iter().map(|(count, _)| count).sum()
    }

    /// Pearson's X²: the squares of the distances from what is expected, each by that.
    pub fn statistic(&self) -> f64 {
        let total = self.total() as f64;
        self.counts.iter().map(|(count, share)| (*count as f64 - total * share).powi(2) / (total * share)).sum()
    }

    /// What decides about the distribution of X².
    fn shape(&self) -> Shape {
        let mut shares: Vec<u64> = self.counts.iter().map(|(_, share)| share.to_bits()).collect();
        shares.sort_unstable();
        (self.total(), shares)
    }
}

/// The number of draws and the shares.
type Shape = (usize, Vec<u64>);

/// Bounds on tails; what it has computed it remembers, as most distributions are of few shapes.
#[derive(Debug, Clone, Default)]
pub struct Tails {
    known: BTreeMap<Shape, [f64; LAMBDAS.len()]>,
}

impl Tails {
    /// At most so probably would draws from these shares lie as far from them, all of them together, as these do.
    pub fn bound<'a>(&mut self, all: impl IntoIterator<Item = &'a Drawn>) -> f64 {
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

/// `ln E[e^(λX²)]` for so many draws from these shares; infinite where a number of that size is none.
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
    // Nothing times infinity.
    if ln.is_nan() { f64::INFINITY } else { ln }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(counts: &[usize]) -> Drawn {
        let share = 1.0 / counts.len() as f64;
        Drawn { counts: counts.iter().map(|count| (*count, share)).collect() }
    }

    #[test]
    fn the_expectation_is_that_of_the_distribution() {
        // Two draws from two: X² is 2 half of the time, and 0 otherwise.
        let exact = |lambda: f64| (0.5 * (2.0 * lambda).exp() + 0.5).ln();
        for lambda in LAMBDAS {
            assert!((ln_expectation(2, &[0.5, 0.5], lambda) - exact(lambda)).abs() < 1e-12, "{lambda}");
        }
        // With many draws it comes near that of the χ² distribution with two degrees of freedom, 1/(1 − 2λ).
        let near = ln_expectation(600, &[0.2, 0.3, 0.5], 0.1);
        assert!((near + (1.0_f64 - 0.2).ln()).abs() < 1e-2, "{near}");
    }

    #[test]
    fn the_bound_is_one_and_holds() {
        let mut tails = Tails::default();
        // Exactly: the probability of 20 heads or 20 tails of 20.
        let bound = tails.bound([&drawn(&[20, 0])]);
        assert!(bound >= 2.0_f64.powi(-19) && bound < 1e-3, "{bound}");
        assert!((tails.bound([&drawn(&[10, 10])]) - 1.0).abs() < 1e-12);
        assert!((tails.bound(&[]) - 1.0).abs() < 1e-12);
        // The 10⁻⁹ point of χ² with one degree of freedom is 37.3: Chernoff's bound is beyond it, and not far.
        let far = |count| drawn(&[count, 400 - count]);
        let alarm = (200..400).find(|count| tails.bound([&far(*count)]) < 1e-9).map(|count| far(count).statistic());
        assert!(alarm.is_some_and(|x| (37.3..50.0).contains(&x)), "{alarm:?}");
    }

    #[test]
    fn many_that_are_a_little_wrong_are_seen_together() {
        let mut tails = Tails::default();
        let all: Vec<Drawn> = (0..60).map(|_| drawn(&[65, 95])).collect();
        assert!(tails.bound([&all[0]]) > 0.01);
        assert!(tails.bound(&all) < 1e-9);
    }

    #[test]
    fn a_backend_that_is_never_drawn_is_seen() {
        let mut tails = Tails::default();
        for backends in 2..7 {
            let mut counts = vec![80 * backends / (backends - 1); backends];
            counts[0] = 0;
            assert!(tails.bound([&drawn(&counts)]) < 1e-11, "{backends}");
        }
    }
}
