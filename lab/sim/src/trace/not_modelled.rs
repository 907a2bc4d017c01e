//! What a packet was asked, or what was to be done with it, that cannot be said.

use std::fmt;
use std::sync::Arc;

use super::{NftRule, RuleRef};

/// A rule of iptables or of nftables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnyRule {
    /// Of iptables.
    Iptables(RuleRef),
    /// Of nftables.
    Nft(NftRule),
}

impl AnyRule {
    /// Where it stands: `table filter, rule 2 of chain INPUT`, `ip kube-proxy, rule 2 of chain services`.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            AnyRule::Iptables(rule) => {
                format!("table {}, rule {} of chain {}", rule.table(), rule.number(), rule.chain())
            }
            AnyRule::Nft(rule) => rule.place(),
        }
    }

    /// The chain's name.
    #[must_use]
    pub fn chain(&self) -> &str {
        match self {
            AnyRule::Iptables(rule) => rule.chain(),
            AnyRule::Nft(rule) => rule.chain(),
        }
    }

    /// Its place in the chain, from 1.
    #[must_use]
    pub fn number(&self) -> usize {
        match self {
            AnyRule::Iptables(rule) => rule.number(),
            AnyRule::Nft(rule) => rule.number(),
        }
    }

    /// Its line in the text that was read; 0 if there is none.
    #[must_use]
    pub fn line(&self) -> usize {
        match self {
            AnyRule::Iptables(rule) => rule.line(),
            AnyRule::Nft(rule) => rule.line(),
        }
    }
}

impl fmt::Display for AnyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyRule::Iptables(rule) => write!(f, "{rule}"),
            AnyRule::Nft(rule) => write!(f, "{rule}"),
        }
    }
}

/// A part of a rule that a packet got to and that the simulator cannot answer or carry out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotModelled {
    /// The machine.
    pub host: Arc<str>,
    /// The rule.
    pub rule: AnyRule,
    /// What an assumption about it is called (`owner`, `NFQUEUE`); empty if none can decide it.
    pub name: Arc<str>,
    /// The match, target or statement, as it stands in the rule.
    pub what: Arc<str>,
    /// What it does that cannot be known, as a predicate: `is not modelled`.
    pub why: Arc<str>,
}

impl std::error::Error for NotModelled {}

impl fmt::Display for NotModelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotModelled { host, rule, what, why, .. } = self;
        let line = if rule.line() == 0 { String::new() } else { format!(" (line {})", rule.line()) };
        write!(f, "{host}: {}{line}, {rule}: {what} {why}", rule.place())
    }
}
