use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Nanoseconds, possibly negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct GoDuration(i64);

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl GoDuration {
    pub const fn seconds(seconds: i64) -> GoDuration {
        GoDuration(seconds * 1_000_000_000)
    }

    pub const fn nanoseconds(nanoseconds: i64) -> GoDuration {
        GoDuration(nanoseconds)
    }

    /// `None` if negative.
    pub fn positive_or_zero(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl FromStr for GoDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<GoDuration, String> {
        parse(text).map(GoDuration).ok_or_else(|| format!("{text:?} is no time such as 30s, 500ms or 1h0m0s"))
    }
}

/// Parses as Go's `time.ParseDuration` to nanoseconds; a bare `0` needs no unit.
fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let (amount, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let scale = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        total = total.checked_add(scaled(amount, scale)?)?;
        rest = after;
    }
    Some(if negative { -total } else { total })
}

fn scaled(amount: &str, scale: i64) -> Option<i64> {
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(scale)?;
    let mut place = scale;
    for digit in fraction.chars() {
        place /= 10;
        total = total.checked_add(i64::from(digit.to_digit(10)?) * place)?;
    }
    Some(total)
}

/// Writes `1h0m0s`, `30s`, `1.5s`, `500ms`, `0s`.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let (unit, scale) = match total {
            0 => return f.write_str("0s"),
            1..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            1_000_000..1_000_000_000 => ("ms", 1_000_000),
            _ => ("s", 1_000_000_000),
        };
        let mut whole = total / scale;
        if unit == "s" && whole >= 60 {
            let minutes = whole / 60;
            if minutes >= 60 {
                write!(f, "{}h", minutes / 60)?;
            }
            write!(f, "{}m", minutes % 60)?;
            whole %= 60;
        }
        let width = scale.ilog10() as usize;
        let fraction = format!("{:0width$}", total % scale);
        let fraction = if scale == 1 { "" } else { fraction.trim_end_matches('0') };
        let dot = if fraction.is_empty() { "" } else { "." };
        write!(f, "{whole}{dot}{fraction}{unit}")
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_read_and_written_as_go_does() {
        let table = [
            ("30s", 30_000_000_000, "30s"),
            ("1h0m0s", 3_600_000_000_000, "1h0m0s"),
            ("15m", 900_000_000_000, "15m0s"),
            ("24h", 86_400_000_000_000, "24h0m0s"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("2h22m", 8_520_000_000_000, "2h22m0s"),
            ("500ms", 500_000_000, "500ms"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            (".5s", 500_000_000, "500ms"),
            ("100us", 100_000, "100µs"),
            ("7ns", 7, "7ns"),
            ("-1s", -1_000_000_000, "-1s"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
        ];
        for (text, nanoseconds, written) in table {
            let read: GoDuration = text.parse().unwrap();
            assert_eq!((read.0, read.to_string().as_str()), (nanoseconds, written), "{text}");
        }
        for text in ["", "30", "s", "1x", "1s2", "-", "1 s", ".s", "99999999999h", "1d"] {
            assert!(text.parse::<GoDuration>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn written_durations_read_back(nanoseconds in -(1_i64 << 62)..(1_i64 << 62)) {
            let time = GoDuration(nanoseconds);
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }
    }
}
