//! nftables rules. `text` and `json` read listings into one model, which `print` prints. Tables, sets and chains must
//! be understood; unmodelled statements become [`Statement::Unknown`].

mod expression;
mod json;
mod kind;
mod print;
pub(crate) mod selector;
mod statement;
mod text;

use std::fmt;
use std::net::IpAddr;

pub use expression::{Binary, Expr};
pub use kind::DataType;
pub(crate) use kind::name_bits;
pub(crate) use statement::NAT_KINDS;
pub use statement::{NatKind, NftVerdict, Relation, SetOperation, Statement};

use crate::names;
use crate::protocol::Family;
use crate::rules::{ChainPolicy, TableName};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum TableFamily {
    Ip,
    Ip6,
    Inet,
    /// A device's ingress and egress.
    Netdev,
    Bridge,
    Arp,
}

const FAMILIES: [(&str, TableFamily); 6] = [
    ("ip", TableFamily::Ip),
    ("ip6", TableFamily::Ip6),
    ("inet", TableFamily::Inet),
    ("netdev", TableFamily::Netdev),
    ("bridge", TableFamily::Bridge),
    ("arp", TableFamily::Arp),
];

impl TableFamily {
    /// Reads `ip`, `ip6`, `inet` and so on.
    #[must_use]
    pub fn parse(text: &str) -> Option<TableFamily> {
        names::value(&FAMILIES, text)
    }

    /// Whether packets of `family` pass the table's hooks.
    #[must_use]
    pub fn sees(self, family: Family) -> bool {
        match self {
            TableFamily::Ip => family == Family::V4,
            TableFamily::Ip6 => family == Family::V6,
            TableFamily::Inet => true,
            TableFamily::Netdev | TableFamily::Bridge | TableFamily::Arp => false,
        }
    }
}

impl fmt::Display for TableFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(names::name(&FAMILIES, self))
    }
}

/// The declared type of one part of keys or data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeclaredType {
    /// `ipv4_addr`.
    Named(String),
    /// `typeof ip daddr`.
    Of(Expr),
}

/// The kind of elements' data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum SetData {
    Keys,
    Verdicts,
    /// Values of these types.
    Data(Vec<DeclaredType>),
    /// Named counters of the table.
    Counters,
}

/// The key of a set element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementKey {
    /// `*`: all keys without an element.
    Any,
    /// Value, prefix or range.
    Parts(Vec<Expr>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ElementValue {
    None,
    Verdict(NftVerdict),
    Data(Vec<Expr>),
    /// A counter's name.
    Counter(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Element {
    pub key: ElementKey,
    pub value: ElementValue,
    /// Milliseconds.
    pub timeout: Option<u64>,
    /// Milliseconds left.
    pub expires: Option<u64>,
    /// `limit …`, `ct count …`, `counter …`: evaluated when a rule finds the element.
    pub statements: Vec<Statement>,
}

/// A named counter, with the values of the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct NamedCounter {
    pub name: String,
    pub packets: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Set {
    pub name: String,
    /// The types of the key's parts.
    pub key: Vec<DeclaredType>,
    pub holds: SetData,
    /// `interval`, `timeout`, `dynamic`, `constant`.
    pub flags: Vec<String>,
    /// Default timeout of elements in milliseconds.
    pub timeout: Option<u64>,
    /// Maximum number of elements.
    pub size: Option<u32>,
    pub comment: Option<String>,
    /// The statements of elements that rules add.
    pub statements: Vec<Statement>,
    pub elements: Vec<Element>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct BaseChain {
    /// `filter`, `nat`, `route`.
    pub kind: String,
    /// `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress`, `egress`.
    pub hook: String,
    /// Lower priorities run first.
    pub priority: i32,
    /// Devices of an `ingress` or `egress` chain. `None`: the listing does not have them (JSON of nft 1.0.6).
    pub devices: Option<Vec<String>>,
    pub policy: ChainPolicy,
    /// Whether the chain was made after rules of its table, as handles show.
    pub late: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Rule {
    /// Counted from 1; 0 in JSON.
    pub line: usize,
    /// The first statement without match ends the rule.
    pub statements: Vec<Statement>,
    pub comment: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Chain {
    pub name: String,
    pub base: Option<BaseChain>,
    pub comment: Option<String>,
    pub rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Table {
    pub family: TableFamily,
    pub name: String,
    /// Whether iptables-nft manages the table.
    pub by_iptables: bool,
    /// Such as `dormant`.
    pub flags: Vec<String>,
    pub comment: Option<String>,
    pub counters: Vec<NamedCounter>,
    pub sets: Vec<Set>,
    /// In listing order.
    pub chains: Vec<Chain>,
}

/// All tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// In listing order.
    pub tables: Vec<Table>,
}

/// A listing that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", place(*line))]
pub struct NftReadError {
    /// Counted from 1; 0 in JSON.
    pub line: usize,
    /// The error.
    pub problem: String,
}

fn place(line: usize) -> String {
    if line == 0 { String::new() } else { format!("line {line}: ") }
}

impl NftReadError {
    fn new(line: usize, problem: impl Into<String>) -> NftReadError {
        NftReadError { line, problem: problem.into() }
    }
}

impl Set {
    /// Reads the elements' words as names of counters; a listing declares the data elsewhere than the elements.
    fn name_counters(&mut self) {
        for element in self.elements.iter_mut().filter(|_| self.holds == SetData::Counters) {
            let name = match &element.value {
                ElementValue::Data(parts) => parts.first().map(ToString::to_string),
                _ => None,
            };
            element.value = name.map_or(ElementValue::None, ElementValue::Counter);
        }
    }
}

impl Table {
    /// Whether table name and base chains are those of iptables: `nft` marks only tables with xtables expressions.
    fn has_chains_of_iptables(&self) -> bool {
        let named = TableName::ALL.into_iter().find(|table| table.name() == self.name);
        let built_in = |chain: &Chain| named.is_some_and(|table| table.built_in().contains(&chain.name.as_str()));
        let mut base = self.chains.iter().filter(|chain| chain.base.is_some()).peekable();
        matches!(self.family, TableFamily::Ip | TableFamily::Ip6) && base.peek().is_some() && base.all(built_in)
    }
}

impl Ruleset {
    /// Reads text, or JSON if `{` is first. Unmodelled statements are no errors.
    pub fn read(text: &str) -> Result<Ruleset, NftReadError> {
        if text.trim_start().starts_with('{') { json::read(text) } else { text::read(text) }
    }

    /// Finds a table by family and name.
    #[must_use]
    pub fn table(&self, family: TableFamily, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.family == family && table.name == name)
    }

    /// The number of rules, without those of iptables-nft.
    #[must_use]
    pub fn len(&self) -> usize {
        let own = self.tables.iter().filter(|table| !table.by_iptables);
        own.flat_map(|table| &table.chains).map(|chain| chain.rules.len()).sum()
    }

    /// Whether `len` is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the DNAT addresses of rules and maps.
    pub fn translated_to(&self) -> Vec<IpAddr> {
        let mut found = Vec::new();
        for table in self.tables.iter().filter(|table| !table.by_iptables) {
            table.sets.iter().for_each(|set| addresses_of(&set.elements, &mut found));
            for statement in table.chains.iter().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.statements) {
                if let Statement::Nat { kind: NatKind::Dnat, address: Some(address), .. } = statement {
                    addresses_in(address, &mut found);
                }
            }
        }
        found
    }

    /// Returns unmodelled statements with their place, except unmodelled matches.
    pub fn unknown(&self) -> impl Iterator<Item = (&Table, &Chain, &Rule, &str)> {
        let own = self.tables.iter().filter(|table| !table.by_iptables);
        let chains = own.flat_map(|table| table.chains.iter().map(move |chain| (table, chain)));
        let rules = chains.flat_map(|(table, chain)| chain.rules.iter().map(move |rule| (table, chain, rule)));
        rules.flat_map(|(table, chain, rule)| {
            rule.statements.iter().filter_map(move |statement| match statement {
                Statement::Unknown(text) => Some((table, chain, rule, text.as_str())),
                _ => None,
            })
        })
    }
}

fn addresses_of(elements: &[Element], found: &mut Vec<IpAddr>) {
    for element in elements {
        if let ElementValue::Data(parts) = &element.value {
            parts.iter().for_each(|part| addresses_in(part, found));
        }
    }
}

/// Collects addresses, and the first address of each range.
fn addresses_in(expr: &Expr, found: &mut Vec<IpAddr>) {
    match expr {
        Expr::Word(word) => found.extend(word.parse::<IpAddr>().ok()),
        Expr::Range(first, _) => addresses_in(first, found),
        Expr::Concat(parts) => parts.iter().for_each(|part| addresses_in(part, found)),
        Expr::Map { map, .. } => addresses_in(map, found),
        Expr::Elements(elements) => addresses_of(elements, found),
        _ => {}
    }
}

/// Parses a number or name (nft(8), "Standard priority names", and those of family bridge).
pub(super) fn priority(family: TableFamily, text: &str) -> Option<i32> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    if family == TableFamily::Bridge {
        return Some(match text {
            "dstnat" => -300,
            "filter" => -200,
            "out" => 100,
            "srcnat" => 300,
            _ => return None,
        });
    }
    Some(match text {
        "raw" => -300,
        "mangle" => -150,
        "dstnat" => -100,
        "filter" => 0,
        "security" => 50,
        "srcnat" => 100,
        _ => return None,
    })
}
