//! One of `rules:` or `counters:`: chains, rules, sets and elements that must exist, or be counted, on nodes.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::Mode;
use crate::expect::counters::PacketCount;
use crate::scenario::values::{NodeChoice, OneOrMany, PlainText};

const FAMILIES: [&str; 6] = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RuleFile {
    /// A node, a list of nodes, or `all`.
    #[serde(alias = "on")]
    pub at: OneOrMany<NodeChoice>,
    /// The table of nftables, as family and name (`ip kube-proxy`); default: a table of iptables.
    #[schemars(with = "Option<PlainText>")]
    pub nft: Option<Spanned<PlainText>>,
    /// The table of iptables: `nat` (default), `filter` or `mangle`.
    pub table: Option<IptablesTable>,
    /// The chain, or a list; packets of several chains are summed.
    pub chain: Option<OneOrMany<PlainText>>,
    /// The map of the nftables table, or a list.
    pub map: Option<OneOrMany<PlainText>>,
    /// The set of the nftables table, or a list.
    pub set: Option<OneOrMany<PlainText>>,
    /// Text, or a list of texts, that the rule contains as `iptables-save` or `nft list table` prints it; default: the
    /// chain itself is meant.
    pub rule: Option<OneOrMany<PlainText>>,
    /// Text, or a list of texts, that an element of the `map` or `set` contains as `nft list table` prints it.
    pub element: Option<OneOrMany<PlainText>>,
    /// The number of packets, summed over chains and nodes: a number, `>=N`, `<=N` or `answers of POD`.
    pub packets: Option<PacketCount>,
    /// `false`: it must not exist; default `true`.
    pub exists: Option<bool>,
    /// `ipv4` (iptables, default) or `ipv6` (ip6tables); a table of nftables names its family.
    pub family: Option<RuleFamily>,
    /// The mode that has the rule, or a list: nodes whose proxy is in another mode are skipped; default `iptables`, or
    /// with `nft` `nftables`.
    pub mode: Option<OneOrMany<Mode>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listing {
    Iptables(RuleFamily),
    /// One table of nftables: family and name.
    Nft(String),
}

impl RuleFile {
    pub fn modes(&self) -> impl Iterator<Item = Mode> {
        let default = if self.nft.is_some() { Mode::Nftables } else { Mode::Iptables };
        let said: Vec<Mode> = self.mode.iter().flat_map(|modes| &modes.0).map(|mode| mode.value).collect();
        let said = if said.is_empty() { vec![default] } else { said };
        said.into_iter()
    }

    pub fn listing(&self) -> Listing {
        match &self.nft {
            Some(table) => Listing::Nft(words(&table.value.0)),
            None => Listing::Iptables(self.family.unwrap_or_default()),
        }
    }

    pub fn table(&self) -> String {
        match self.listing() {
            Listing::Nft(table) => table,
            Listing::Iptables(_) => self.table.unwrap_or_default().name().to_owned(),
        }
    }

    /// Returns the chains, sets or maps as in the listing, such as `map service-ips` in nftables. `table` is the table
    /// itself.
    pub fn objects(&self) -> Vec<String> {
        let kinds = [("chain", &self.chain), ("map", &self.map), ("set", &self.set)];
        let named = kinds.into_iter().flat_map(|(kind, names)| {
            let names = names.iter().flat_map(|names| &names.0).map(|name| name.value.0.as_str());
            names.map(move |name| if self.nft.is_some() { format!("{kind} {name}") } else { name.to_owned() })
        });
        let named: Vec<String> = named.collect();
        if named.is_empty() { vec!["table".to_owned()] } else { named }
    }

    pub fn parts(&self) -> Option<Vec<String>> {
        let parts = self.rule.as_ref().or(self.element.as_ref())?;
        Some(parts.0.iter().map(|part| part.value.0.clone()).collect())
    }

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
        if let Err(expected) = nft_table(&table.value.0) {
            problems.push((table.referenced, format!("nft: {expected}")));
        }
        problems
    }
}

/// Returns family and name of a table of nftables, with one space; the error says what is expected.
pub fn nft_table(text: &str) -> Result<String, String> {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [family, name] if FAMILIES.contains(&family) => Ok(format!("{family} {name}")),
        _ => Err(format!("expected a family ({}) and a table, such as `ip kube-proxy`", FAMILIES.join(", "))),
    }
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleFamily {
    #[default]
    Ipv4,
    Ipv6,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IptablesTable {
    #[default]
    Nat,
    Filter,
    Mangle,
}

impl IptablesTable {
    pub fn name(self) -> &'static str {
        match self {
            IptablesTable::Nat => "nat",
            IptablesTable::Filter => "filter",
            IptablesTable::Mangle => "mangle",
        }
    }
}
