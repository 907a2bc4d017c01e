use std::fmt;
use std::str::FromStr;

/// Inclusive, never empty, without port 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// The default is above the kernel's ephemeral ports (32768 to 60999 in `ip_local_port_range`) and above node ports.
impl Default for PortRange {
    fn default() -> PortRange {
        PortRange { first: 61_000, last: 65_535 }
    }
}

impl PortRange {
    pub fn first(self) -> u16 {
        self.first
    }

    pub fn len(self) -> u32 {
        u32::from(self.last - self.first) + 1
    }

    pub fn is_empty(self) -> bool {
        false
    }

    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PortRange {
    type Err = String;

    /// Parses as kube-proxy's `ParsePortRange`; an empty text, `0` and `0-0` mean the default.
    fn from_str(text: &str) -> Result<PortRange, String> {
        let text = text.trim();
        if matches!(text, "" | "0" | "0-0") {
            return Ok(PortRange::default());
        }
        let wrong = || format!("{text:?} is no range of ports such as 61000-65535 or 61000+4535");
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
        let (first, last) = match (text.split_once('-'), text.split_once('+')) {
            (Some((first, last)), _) => (port(first)?, port(last)?),
            (None, Some((first, more))) => {
                let first = port(first)?;
                (first, first.checked_add(port(more)?).ok_or_else(wrong)?)
            }
            (None, None) => (port(text)?, port(text)?),
        };
        if first == 0 || last < first { Err(wrong()) } else { Ok(PortRange { first, last }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges_are_parsed_as_in_kube_proxy() {
        for (text, range) in [
            ("", "61000-65535"),
            ("0-0", "61000-65535"),
            ("0", "61000-65535"),
            ("1000-2000", "1000-2000"),
            ("1000+5", "1000-1005"),
            ("4711", "4711-4711"),
        ] {
            assert_eq!(text.parse::<PortRange>().map(|range| range.to_string()), Ok(range.to_owned()), "{text}");
        }
        for text in ["2000-1000", "0-5", "x", "1-70000", "65535+1", "1-2-3", "-5"] {
            assert!(text.parse::<PortRange>().unwrap_err().contains("no range of ports"), "{text}");
        }
    }
}
