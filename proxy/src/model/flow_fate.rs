use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest drain, in seconds.
const LONGEST_DRAIN: u32 = 24 * 3600;

/// What becomes of an established TCP connection whose endpoint no longer serves its Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowFate {
    /// It hangs until the client or the endpoint gives up, as with kube-proxy.
    #[default]
    Keep,
    /// It is reset at its next packet.
    Reset,
    /// It is kept for this many seconds, then reset at its next packet.
    Drain(u32),
}

impl FlowFate {
    /// Returns how long connections are kept before they are reset. `None`: they are never reset.
    pub fn delay(self) -> Option<Duration> {
        match self {
            FlowFate::Keep => None,
            FlowFate::Reset => Some(Duration::ZERO),
            FlowFate::Drain(seconds) => Some(Duration::from_secs(seconds.into())),
        }
    }
}

impl FromStr for FlowFate {
    type Err = String;

    fn from_str(text: &str) -> Result<FlowFate, String> {
        match text {
            "keep" => Ok(FlowFate::Keep),
            "reset" => Ok(FlowFate::Reset),
            _ => text.strip_prefix("drain=").and_then(seconds).map(FlowFate::Drain).ok_or_else(|| {
                format!(
                    "{text:?} is none of keep, reset and drain=TIME, with a TIME such as 30s, 5m or 24h, the longest"
                )
            }),
        }
    }
}

/// Parses a whole number of seconds, minutes or hours.
fn seconds(text: &str) -> Option<u32> {
    let (amount, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let scale = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    let amount = amount.parse::<u32>().ok().filter(|_| amount.bytes().all(|byte| byte.is_ascii_digit()))?;
    amount.checked_mul(scale).filter(|seconds| (1..=LONGEST_DRAIN).contains(seconds))
}

impl fmt::Display for FlowFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowFate::Keep => f.write_str("keep"),
            FlowFate::Reset => f.write_str("reset"),
            FlowFate::Drain(seconds) => write!(f, "drain={seconds}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fate_is_one_of_three_words() {
        for (text, fate) in [
            ("keep", FlowFate::Keep),
            ("reset", FlowFate::Reset),
            ("drain=30s", FlowFate::Drain(30)),
            ("drain=5m", FlowFate::Drain(300)),
            ("drain=24h", FlowFate::Drain(86_400)),
        ] {
            assert_eq!(text.parse(), Ok(fate));
            assert_eq!(fate.to_string().parse(), Ok(fate));
        }
        for wrong in
            ["", "Reset", "drain", "drain=", "drain=30", "drain=0s", "drain=25h", "drain=+5s", "drain=1.5h", "drain=5µ"]
        {
            let problem = wrong.parse::<FlowFate>().unwrap_err();
            assert!(problem.starts_with(&format!("{wrong:?} is none of keep, reset")), "{problem}");
        }
    }
}
