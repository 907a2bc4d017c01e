//! Exact probabilities.

use std::cmp::Ordering;
use std::fmt;

use num_bigint::BigUint;
use num_integer::Integer;

/// A non-negative fraction of any size: ten `statistic` matches multiply to 2³¹⁰.
#[derive(Debug, Clone)]
pub struct Fraction {
    numerator: BigUint,
    denominator: BigUint,
}

impl Fraction {
    /// Returns `numerator` / `denominator`; a denominator of 0 counts as 1.
    #[must_use]
    pub fn new(numerator: u64, denominator: u64) -> Fraction {
        Fraction { numerator: numerator.into(), denominator: denominator.max(1).into() }
    }

    /// Returns 1.
    #[must_use]
    pub fn one() -> Fraction {
        Fraction::new(1, 1)
    }

    /// Returns 0.
    #[must_use]
    pub fn zero() -> Fraction {
        Fraction::new(0, 1)
    }

    /// Whether it is 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.numerator.bits() == 0
    }

    /// Multiplies by `numerator` / `denominator`.
    #[must_use]
    pub fn times(&self, numerator: u64, denominator: u64) -> Fraction {
        Fraction { numerator: &self.numerator * numerator, denominator: &self.denominator * denominator.max(1) }
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(&self, other: &Fraction) -> Fraction {
        if self.denominator == other.denominator {
            let numerator = &self.numerator + &other.numerator;
            return Fraction { numerator, denominator: self.denominator.clone() };
        }
        let numerator = &self.numerator * &other.denominator + &other.numerator * &self.denominator;
        Fraction { numerator, denominator: &self.denominator * &other.denominator }.halved()
    }

    /// Removes common powers of two: cheaper than [`Fraction::reduced`], and short enough.
    fn halved(self) -> Fraction {
        let zeros = |number: &BigUint| number.trailing_zeros().unwrap_or(0);
        let shared = if self.is_zero() { 0 } else { zeros(&self.numerator).min(zeros(&self.denominator)) };
        Fraction { numerator: self.numerator >> shared, denominator: self.denominator >> shared }
    }

    /// Converts with errors in the last bits only.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        let scaled = (&self.numerator << 63_u32) / &self.denominator;
        let whole = scaled.iter_u64_digits().rev().fold(0.0, |sum, digit| sum * 2.0_f64.powi(64) + digit as f64);
        whole / 2.0_f64.powi(63)
    }

    /// Returns the absolute difference.
    #[must_use]
    pub fn distance(&self, other: &Fraction) -> Fraction {
        let (left, right) = (&self.numerator * &other.denominator, &other.numerator * &self.denominator);
        let numerator = if left > right { left - right } else { right - left };
        Fraction { numerator, denominator: &self.denominator * &other.denominator }
    }

    /// Whether [`Fraction::distance`] is at most `numerator` / `denominator`.
    #[must_use]
    pub fn within(&self, other: &Fraction, numerator: u64, denominator: u64) -> bool {
        self.distance(other) <= Fraction::new(numerator, denominator)
    }

    /// Returns the fraction in lowest terms.
    #[must_use]
    pub fn reduced(&self) -> Fraction {
        let common = self.numerator.gcd(&self.denominator);
        if common.bits() <= 1 {
            return self.clone();
        }
        Fraction { numerator: &self.numerator / &common, denominator: &self.denominator / &common }
    }

    pub(crate) fn ratio(&self) -> String {
        let exact = self.reduced();
        format!("{}/{}", exact.numerator, exact.denominator)
    }

    fn parts(&self) -> (BigUint, BigUint) {
        let scaled = &self.numerator * 100_000_000_u64 / &self.denominator;
        scaled.div_rem(&1_000_000_u32.into())
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Fraction) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Fraction {}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Fraction) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Fraction) -> Ordering {
        (&self.numerator * &other.denominator).cmp(&(&other.numerator * &self.denominator))
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = self.reduced();
        if exact.denominator.bits() <= 1 {
            return write!(f, "{}", exact.numerator);
        }
        if exact.denominator.bits() <= 10 {
            return write!(f, "{}/{}", exact.numerator, exact.denominator);
        }
        let (whole, millionths) = exact.parts();
        write!(f, "~{whole}.{millionths:0>6}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_products_stay_exact() {
        let third = Fraction::new(1, 3);
        let sum = third.plus(&third).plus(&third.times(1, 1));
        assert_eq!(sum, Fraction::one());
        let mut tiny = Fraction::one();
        for _ in 0..20 {
            tiny = tiny.times(1, 0x8000_0000);
        }
        assert!(!tiny.is_zero());
        assert!(tiny.within(&Fraction::zero(), 1, 1_000_000_000));
        assert!(!third.within(&Fraction::new(1, 2), 1, 1_000_000_000));
    }

    #[test]
    fn fractions_convert_to_floating_point() {
        for (numerator, denominator, number) in [(1, 3, 1.0 / 3.0), (1, 1, 1.0), (0, 7, 0.0), (9, 4, 2.25)] {
            assert!((Fraction::new(numerator, denominator).to_f64() - number).abs() < 1e-15);
        }
        let tiny = Fraction::one().times(1, 1 << 31).times(1, 1 << 20);
        assert!((tiny.to_f64() - 2.0_f64.powi(-51)).abs() < 1e-18);
    }

    #[test]
    fn long_fractions_print_as_percentages() {
        assert_eq!(Fraction::new(2, 6).to_string(), "1/3");
        assert_eq!(Fraction::one().to_string(), "1");
        assert_eq!(Fraction::new(715_827_883, 0x8000_0000).to_string(), "~33.333333%");
    }
}
