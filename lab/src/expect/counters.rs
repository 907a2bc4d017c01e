//! Reads rules and counters from `iptables-save -c`. [`super::listed`] reads nftables.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRule {
    /// iptables: `nat`, `filter`, …; nftables: family and name.
    pub table: String,
    pub chain: String,
    /// The rule without the chain name, as `iptables-save` or `nft` prints it.
    pub text: String,
    /// `None`: no counter.
    pub packets: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// All chains, as (table, chain).
    pub chains: Vec<(String, String)>,
    pub rules: Vec<ListedRule>,
    /// Other lines of nftables sets and maps, such as types.
    pub declared: Vec<ListedRule>,
}

impl Ruleset {
    /// Reads `iptables-save`, with or without `-c`. Ignores unknown lines.
    pub fn parse(saved: &str) -> Self {
        let mut ruleset = Ruleset::default();
        let mut table = String::new();
        for line in saved.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = name.trim().to_owned();
            } else if let Some(chain) = line.strip_prefix(':') {
                let name = chain.split_whitespace().next().unwrap_or_default();
                ruleset.chains.push((table.clone(), name.to_owned()));
            } else if let Some(rule) = parse_rule(&table, line) {
                ruleset.rules.push(rule);
            }
        }
        ruleset
    }

    pub fn has_chain(&self, table: &str, chain: &str) -> bool {
        self.chains.iter().any(|(t, c)| t == table && c == chain)
    }

    pub fn matching<'a>(
        &'a self,
        table: &'a str,
        chain: &'a str,
        parts: &'a [String],
    ) -> impl Iterator<Item = &'a ListedRule> {
        self.rules
            .iter()
            .filter(move |rule| rule.table == table && rule.chain == chain)
            .filter(move |rule| parts.iter().all(|part| rule.text.contains(part.as_str())))
    }
}

/// Parses `[packets:bytes] -A CHAIN text`.
fn parse_rule(table: &str, line: &str) -> Option<ListedRule> {
    let (packets, rest) = match line.strip_prefix('[') {
        Some(counted) => {
            let (counters, rest) = counted.split_once("] ")?;
            (Some(counters.split(':').next()?.parse().ok()?), rest)
        }
        None => (None, line),
    };
    let rest = rest.strip_prefix("-A ")?;
    let (chain, text) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(ListedRule { table: table.to_owned(), chain: chain.to_owned(), text: text.to_owned(), packets })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PacketCount {
    Exactly(u64),
    AtLeast(u64),
    AtMost(u64),
    /// `answers of web-1`: the number of that pod's answers in the same step.
    AnswersOf(String),
}

impl PacketCount {
    pub fn accepts(&self, seen: u64, answers: impl Fn(&str) -> u64) -> bool {
        match self {
            PacketCount::Exactly(count) => seen == *count,
            PacketCount::AtLeast(count) => seen >= *count,
            PacketCount::AtMost(count) => seen <= *count,
            PacketCount::AnswersOf(pod) => seen == answers(pod),
        }
    }
}

impl fmt::Display for PacketCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketCount::Exactly(count) => write!(f, "{count}"),
            PacketCount::AtLeast(count) => write!(f, "at least {count}"),
            PacketCount::AtMost(count) => write!(f, "at most {count}"),
            PacketCount::AnswersOf(pod) => write!(f, "as many as {pod} answered"),
        }
    }
}

impl std::str::FromStr for PacketCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let wanted = "expected a number, \">=N\", \"<=N\" or \"answers of POD\"";
            text.trim().parse().map_err(|_| format!("{text:?}: {wanted}"))
        };
        if let Some(rest) = text.strip_prefix(">=") {
            number(rest).map(PacketCount::AtLeast)
        } else if let Some(rest) = text.strip_prefix("<=") {
            number(rest).map(PacketCount::AtMost)
        } else if let Some(pod) = text.strip_prefix("answers of ") {
            Ok(PacketCount::AnswersOf(pod.trim().to_owned()))
        } else {
            number(text).map(PacketCount::Exactly)
        }
    }
}
