//! One of `rules:` or `counters:`: what is looked at on nodes, and what is promised of it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::Mode;
use crate::expect::counters::PacketCount;
use crate::scenario::values::{NodeChoice, OneOrMany, Text};

/// Families of nftables' tables.
const FAMILIES: [&str; 6] = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];

/// One of `rules:` or `counters:`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RuleFile {
    /// Node, nodes or `all`.
    pub on: OneOrMany<NodeChoice>,
    /// A table of nftables, as `nft list table` takes it; without it iptables is meant.
    #[schemars(with = "Option<Text>")]
    pub nft: Option<Spanned<Text>>,
    /// iptables' table; `nat` if nothing is said.
    pub table: Option<Table>,
    /// Of a list, the packets are summed.
    pub chain: Option<OneOrMany<Text>>,
    /// Maps of the table of nftables.
    pub map: Option<OneOrMany<Text>>,
    /// Sets of it.
    pub set: Option<OneOrMany<Text>>,
    /// Parts of the rule's text; without it the chain itself is meant.
    pub rule: Option<OneOrMany<Text>>,
    /// Parts of the element's text; without it the set or map itself is meant.
    pub element: Option<OneOrMany<Text>>,
    pub packets: Option<PacketCount>,
    /// `false`: it must be gone.
    pub exists: Option<bool>,
    /// iptables or ip6tables; a table of nftables names its own.
    pub family: Option<RuleFamily>,
    /// The mode, or modes, whose rule it is: it is looked at where the proxy is in one of them.
    pub mode: Option<OneOrMany<Mode>>,
}

/// What has to be listed to look at a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listing {
    /// Every table of iptables or ip6tables.
    Iptables(RuleFamily),
    /// This table of nftables: family and name.
    Nft(String),
}

impl RuleFile {
    /// The modes whose rule it is: what is said of nftables is said of that mode, unless the author says otherwise.
    pub fn modes(&self) -> impl Iterator<Item = Mode> {
        let default = if self.nft.is_some() { Mode::Nftables } else { Mode::Iptables };
        let said: Vec<Mode> = self.mode.iter().flat_map(|modes| &modes.0).map(|mode| mode.value).collect();
        let said = if said.is_empty() { vec![default] } else { said };
        said.into_iter()
    }

    /// What it is found in.
    pub fn listing(&self) -> Listing {
        match &self.nft {
            Some(table) => Listing::Nft(words(&table.value.0)),
            None => Listing::Iptables(self.family.unwrap_or_default()),
        }
    }

    /// The table, as the listing names it.
    pub fn table(&self) -> String {
        match self.listing() {
            Listing::Nft(table) => table,
            Listing::Iptables(_) => self.table.unwrap_or_default().name().to_owned(),
        }
    }

    /// The chains, or sets, or maps, as the listing names them: those of nftables with their kind. With none of them a
    /// table of nftables is meant itself.
    pub fn objects(&self) -> Vec<String> {
        let kinds = [("chain", &self.chain), ("map", &self.map), ("set", &self.set)];
        let named = kinds.into_iter().flat_map(|(kind, names)| {
            let names = names.iter().flat_map(|names| &names.0).map(|name| name.value.0.as_str());
            names.map(move |name| if self.nft.is_some() { format!("{kind} {name}") } else { name.to_owned() })
        });
        let named: Vec<String> = named.collect();
        if named.is_empty() { vec!["table".to_owned()] } else { named }
    }

    /// The parts of the rule's or the element's text; `None`: the chain, set or map itself is meant.
    pub fn parts(&self) -> Option<Vec<String>> {
        let parts = self.rule.as_ref().or(self.element.as_ref())?;
        Some(parts.0.iter().map(|part| part.value.0.clone()).collect())
    }

    /// What does not go together, or is missing.
    pub fn problems(&self) -> Vec<(Location, String)> {
        let mut problems = Vec::new();
        let mut problem = |message: &str| problems.push((Location::UNKNOWN, message.to_owned()));
        let of_nft = [("map", self.map.is_some()), ("set", self.set.is_some()), ("element", self.element.is_some())];
        let Some(table) = &self.nft else {
            for (key, _) in of_nft.into_iter().filter(|(_, said)| *said) {
                problem(&format!("`{key}` goes with `nft`, which names a table of nftables (`nft: ip kube-proxy`)"));
            }
            if self.chain.is_none() {
                problem("expected `chain`, or `nft` for a table of nftables");
            }
            return problems;
        };
        if self.table.is_some() || self.family.is_some() {
            problem("`table` and `family` are iptables'; `nft` names family and table (`nft: ip6 kube-proxy`)");
        }
        let kinds = [&self.chain, &self.map, &self.set].into_iter().flatten().count();
        if kinds > 1 {
            problem("expected one of `chain`, `map` and `set`");
        }
        if self.rule.is_some() && self.chain.is_none() {
            problem("`rule` goes with `chain`; sets and maps have `element`");
        }
        if self.element.is_some() && self.map.is_none() && self.set.is_none() {
            problem("`element` goes with `map` or `set`; chains have `rule`");
        }
        if self.packets.is_some() && kinds == 0 {
            problem("`packets` goes with `chain`, `map` or `set`: a table counts nothing");
        }
        let right = matches!(table.value.0.split_whitespace().collect::<Vec<_>>()[..], [family, _] if FAMILIES.contains(&family));
        if !right {
            let message =
                format!("nft: expected a family ({}) and a table, such as `ip kube-proxy`", FAMILIES.join(", "));
            problems.push((table.referenced, message));
        }
        problems
    }
}

/// One blank between words.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// iptables or ip6tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleFamily {
    /// `iptables`.
    #[default]
    Ipv4,
    /// `ip6tables`.
    Ipv6,
}

/// An iptables table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// `nat`.
    #[default]
    Nat,
    /// `filter`.
    Filter,
    /// `mangle`.
    Mangle,
}

impl Table {
    /// As `iptables -t` has it.
    pub fn name(self) -> &'static str {
        match self {
            Table::Nat => "nat",
            Table::Filter => "filter",
            Table::Mangle => "mangle",
        }
    }
}
