use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::nft::{self, Ruleset, TableFamily};
use crate::protocol::Family;
use crate::rules::{self, Rules, TableName};

#[derive(Clone)]
enum Listing {
    Iptables(Arc<Rules>),
    Nft(Arc<Ruleset>),
}

/// A rule or chain, by its position in a listing.
#[derive(Clone)]
pub struct RuleRef {
    listing: Listing,
    table: usize,
    chain: usize,
    rule: Option<usize>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
enum RuleIdentity<'a> {
    Iptables(Family, TableName, &'a str, usize),
    Nft(TableFamily, &'a str, &'a str, usize),
}

impl RuleRef {
    pub(crate) fn iptables(rules: &Arc<Rules>, table: usize, chain: usize, rule: usize) -> RuleRef {
        RuleRef { listing: Listing::Iptables(Arc::clone(rules)), table, chain, rule: Some(rule) }
    }

    /// Returns every rule of a listing of iptables.
    pub fn all(rules: &Arc<Rules>) -> impl Iterator<Item = RuleRef> + '_ {
        rules.tables.iter().enumerate().flat_map(move |(table, one)| {
            one.chains.iter().enumerate().flat_map(move |(chain, one)| {
                (0..one.rules.len()).map(move |rule| RuleRef::iptables(rules, table, chain, rule))
            })
        })
    }

    /// Returns every rule of a listing of nftables.
    pub fn all_nft(ruleset: &Arc<Ruleset>) -> impl Iterator<Item = RuleRef> + '_ {
        ruleset.tables.iter().enumerate().flat_map(move |(table, one)| {
            one.chains.iter().enumerate().flat_map(move |(chain, one)| {
                (0..one.rules.len()).map(move |rule| RuleRef::nft(ruleset, table, chain, Some(rule)))
            })
        })
    }

    pub(crate) fn nft(ruleset: &Arc<Ruleset>, table: usize, chain: usize, rule: Option<usize>) -> RuleRef {
        RuleRef { listing: Listing::Nft(Arc::clone(ruleset)), table, chain, rule }
    }

    /// The family; `None` for nftables.
    #[must_use]
    pub fn iptables_family(&self) -> Option<Family> {
        match &self.listing {
            Listing::Iptables(rules) => Some(rules.family),
            Listing::Nft(_) => None,
        }
    }

    /// The name of an iptables table: `nat`, `filter`.
    #[must_use]
    pub fn table(&self) -> &str {
        match &self.listing {
            Listing::Iptables(rules) => rules.tables[self.table].name.name(),
            Listing::Nft(ruleset) => &ruleset.tables[self.table].name,
        }
    }

    /// The table of nftables; `None` for iptables.
    #[must_use]
    pub fn table_of_nftables(&self) -> Option<&nft::Table> {
        match &self.listing {
            Listing::Nft(ruleset) => ruleset.tables.get(self.table),
            Listing::Iptables(_) => None,
        }
    }

    /// The chain's name.
    #[must_use]
    pub fn chain(&self) -> &str {
        match &self.listing {
            Listing::Iptables(rules) => &rules.tables[self.table].chains[self.chain].name,
            Listing::Nft(ruleset) => &ruleset.tables[self.table].chains[self.chain].name,
        }
    }

    /// The rule; `None` for nftables.
    #[must_use]
    pub fn iptables_rule(&self) -> Option<&rules::Rule> {
        match &self.listing {
            Listing::Iptables(rules) => rules.tables[self.table].chains[self.chain].rules.get(self.rule?),
            Listing::Nft(_) => None,
        }
    }

    /// The rule; `None` for iptables.
    #[must_use]
    pub fn nft_rule(&self) -> Option<&nft::Rule> {
        match &self.listing {
            Listing::Nft(ruleset) => ruleset.tables[self.table].chains[self.chain].rules.get(self.rule?),
            Listing::Iptables(_) => None,
        }
    }

    /// The rule's number from 1; 0 for a chain.
    #[must_use]
    pub fn number(&self) -> usize {
        self.rule.map_or(0, |at| at + 1)
    }

    /// The line in the listing from 1; 0 if unknown.
    #[must_use]
    pub fn line(&self) -> usize {
        self.iptables_rule().map(|rule| rule.line).or(self.nft_rule().map(|rule| rule.line)).unwrap_or(0)
    }

    pub(crate) fn line_suffix(&self) -> String {
        if self.line() == 0 { String::new() } else { format!(" (line {})", self.line()) }
    }

    /// Returns `table filter, rule 2 of chain INPUT` or `ip kube-proxy, chain services`.
    #[must_use]
    pub fn place(&self) -> String {
        let rule = if self.rule.is_none() { String::new() } else { format!("rule {} of ", self.number()) };
        let table = match &self.listing {
            Listing::Iptables(_) => format!("table {}", self.table()),
            Listing::Nft(_) => self.nft_table(),
        };
        format!("{table}, {rule}chain {}", self.chain())
    }

    pub(crate) fn nft_table(&self) -> String {
        match &self.listing {
            Listing::Iptables(_) => self.table().to_owned(),
            Listing::Nft(ruleset) => format!("{} {}", ruleset.tables[self.table].family, self.table()),
        }
    }

    pub(crate) fn numbered(&self) -> String {
        format!("{} {}{}: {self}", self.chain(), self.number(), self.line_suffix())
    }

    fn identity(&self) -> RuleIdentity<'_> {
        match &self.listing {
            Listing::Iptables(rules) => {
                RuleIdentity::Iptables(rules.family, rules.tables[self.table].name, self.chain(), self.number())
            }
            Listing::Nft(ruleset) => {
                RuleIdentity::Nft(ruleset.tables[self.table].family, self.table(), self.chain(), self.number())
            }
        }
    }
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.listing, self.nft_rule()) {
            (Listing::Iptables(_), _) => {
                write!(f, "-A {}", self.chain())?;
                self.iptables_rule().map_or(Ok(()), |rule| write!(f, "{rule}"))
            }
            (Listing::Nft(_), Some(rule)) => write!(f, "{rule}"),
            (Listing::Nft(_), None) => f.write_str(self.chain()),
        }
    }
}

impl fmt::Debug for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.listing {
            Listing::Iptables(_) => write!(f, "{}: {self}", self.table()),
            Listing::Nft(_) => write!(f, "{}: {self}", self.place()),
        }
    }
}

impl PartialEq for RuleRef {
    fn eq(&self, other: &RuleRef) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for RuleRef {}

impl PartialOrd for RuleRef {
    fn partial_cmp(&self, other: &RuleRef) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RuleRef {
    fn cmp(&self, other: &RuleRef) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl Hash for RuleRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}
