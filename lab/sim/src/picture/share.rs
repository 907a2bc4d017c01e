use crate::fraction::Fraction;

/// Returns millionths, which ignore the kernel's rounding to 2⁻³¹.
pub(super) fn weight(share: &Fraction) -> u64 {
    (share.to_f64() * 1e6).round() as u64
}

const SMALL: u32 = 1024;

/// Formats `1/3`, `about 1/3`, or a percentage.
pub(super) fn about(share: &Fraction) -> String {
    let exact = share.to_string();
    if !exact.starts_with('~') {
        return exact;
    }
    let value = share.to_f64();
    let near = (2..=SMALL).find_map(|of| {
        let parts = (value * f64::from(of)).round();
        // Allows the rounding error of a thousand rules.
        let is_near = (value - parts / f64::from(of)).abs() < 8e-6 / f64::from(of).max(8.0);
        (is_near && parts >= 1.0).then_some((parts, of))
    });
    match near {
        Some((parts, of)) if parts < f64::from(of) => format!("about {parts:.0}/{of}"),
        _ => exact,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearby_fractions_are_approximated() {
        assert_eq!(about(&Fraction::new(1, 3)), "1/3");
        assert_eq!(about(&Fraction::new(715_827_883, 1 << 31)), "about 1/3");
        assert_eq!(about(&Fraction::new(21_474_836, 1 << 31)), "about 1/100");
        assert_eq!(about(&Fraction::new(123_456_789, 1 << 31)), "~5.748904%");
        assert_eq!(about(&Fraction::one()), "1");
    }
}
