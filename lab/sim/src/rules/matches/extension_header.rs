//! Matches on IPv6 extension headers, which simulated packets do not have (net/ipv6/netfilter/ip6t_*.c).

use std::fmt;

use super::super::tokens::OptionReader;

/// `frag`, `rt`, `hbh`, `dst`, `mh`, `srh`, `ah` or `ipv6header`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ExtensionHeader {
    pub name: &'static str,
    pub options: String,
}

/// Without `ipv6header`, none of these matches a packet without the header, whatever the options.
const NAMES: [&str; 8] = ["ipv6header", "frag", "rt", "hbh", "dst", "mh", "srh", "ah"];

impl ExtensionHeader {
    /// Reads the options; `None` for other matches.
    pub(crate) fn read(name: &str, words: &mut OptionReader<'_>) -> Option<ExtensionHeader> {
        let name = *NAMES.iter().find(|known| **known == name)?;
        Some(ExtensionHeader { name, options: words.up_to_next_part() })
    }

    /// Whether a packet without extension headers matches. `ipv6header` sees only the upper protocol: with `--soft`
    /// every listed header must be there (with `!` absent), else exactly the listed ones.
    pub(crate) fn matches_without(&self) -> bool {
        if self.name != "ipv6header" {
            return false;
        }
        let words: Vec<&str> = self.options.split(' ').collect();
        let listed = words.iter().skip_while(|word| **word != "--header").nth(1).copied().unwrap_or_default();
        let upper = |header: &str| header.starts_with("prot") || header == "255";
        let (has_upper, only_upper) = (listed.split(',').any(upper), listed.split(',').all(upper));
        match (words.contains(&"--soft"), words.first() == Some(&"!")) {
            (true, false) | (false, false) => only_upper,
            (true, true) => !has_upper,
            (false, true) => !only_upper,
        }
    }
}

impl fmt::Display for ExtensionHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.options.is_empty() { Ok(()) } else { write!(f, " {}", self.options) }
    }
}
