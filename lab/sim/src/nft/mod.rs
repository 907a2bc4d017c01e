//! Rules of nftables: what `nft list ruleset` and `nft -j list ruleset` print, as data that can be changed and printed again.
//!
//! Readers are strict about the frame of a listing (tables, sets, chains) and lenient within a rule: a statement that is not modelled is kept
//! as [`Statement::Unknown`], and refused when a packet reaches it. What lives here knows nothing of packets: `compile` makes a program of
//! it, which `walk` walks.

mod expression;
mod json;
mod kind;
mod print;
mod statement;
mod text;

use std::fmt;
use std::net::IpAddr;

pub use expression::{Binary, Expr};
pub use kind::DataType;
pub(crate) use kind::name_bits;
pub use statement::{NatKind, NftVerdict, Relation, SetOperation, Statement};

use crate::protocol::Family;
use crate::rules::{ChainPolicy, TableName};

/// The family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableFamily {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Both.
    Inet,
    /// Packets of a device, before (or behind) everything else.
    Netdev,
    /// Frames that cross a bridge.
    Bridge,
    /// ARP: no IP packet gets there.
    Arp,
}

/// Names as `nft` has them.
const FAMILIES: [(&str, TableFamily); 6] = [
    ("ip", TableFamily::Ip),
    ("ip6", TableFamily::Ip6),
    ("inet", TableFamily::Inet),
    ("netdev", TableFamily::Netdev),
    ("bridge", TableFamily::Bridge),
    ("arp", TableFamily::Arp),
];

impl TableFamily {
    fn parse(text: &str) -> Option<TableFamily> {
        FAMILIES.iter().find(|(name, _)| *name == text).map(|(_, family)| *family)
    }

    /// Whether packets of that family meet its chains at the hooks of IP.
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
        let name = FAMILIES.iter().find(|(_, family)| family == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// The type of a part of a set's key or data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeclaredType {
    /// By its name: `ipv4_addr`.
    Named(String),
    /// As that of an expression: `typeof ip daddr`.
    Of(Expr),
}

/// What elements have besides their key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetData {
    /// Nothing: a set.
    Keys,
    /// A verdict.
    Verdicts,
    /// Data of these types.
    Data(Vec<DeclaredType>),
}

/// The key of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementKey {
    /// Everything that no other element has (`*`).
    Any,
    /// One value, prefix or range for each part.
    Parts(Vec<Expr>),
}

/// What an element has besides its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementValue {
    /// Nothing.
    None,
    /// A verdict.
    Verdict(NftVerdict),
    /// Data.
    Data(Vec<Expr>),
}

/// An element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its key.
    pub key: ElementKey,
    /// What it has besides.
    pub value: ElementValue,
    /// How long it stays after it was put in, in milliseconds.
    pub timeout: Option<u64>,
    /// How much of that is left, in milliseconds.
    pub expires: Option<u64>,
}

/// A named set or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// The types of its key.
    pub key: Vec<DeclaredType>,
    /// What elements have besides.
    pub holds: SetData,
    /// `interval`, `timeout`, `dynamic`, `constant`.
    pub flags: Vec<String>,
    /// How long elements stay that do not say it themselves, in milliseconds.
    pub timeout: Option<u64>,
    /// At most so many elements.
    pub size: Option<u32>,
    /// A remark.
    pub comment: Option<String>,
    /// Its elements.
    pub elements: Vec<Element>,
}

/// Which chain of the kernel's a base chain is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseChain {
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress` or `egress`.
    pub hook: String,
    /// Lower ones come first.
    pub priority: i32,
    /// The devices of an `ingress` or `egress` chain.
    pub devices: Vec<String>,
    /// What happens to packets at its end.
    pub policy: ChainPolicy,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its line in the text, from 1; 0 where there is none.
    pub line: usize,
    /// From left to right: the first that does not match ends the rule.
    pub statements: Vec<Statement>,
    /// A remark.
    pub comment: Option<String>,
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Of a base chain: where packets come in.
    pub base: Option<BaseChain>,
    /// A remark.
    pub comment: Option<String>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its family.
    pub family: TableFamily,
    /// Its name.
    pub name: String,
    /// It is one of iptables-nft's, whose rules `iptables-save` prints.
    pub by_iptables: bool,
    /// `dormant` and the like.
    pub flags: Vec<String>,
    /// A remark.
    pub comment: Option<String>,
    /// Its sets and maps.
    pub sets: Vec<Set>,
    /// Its chains, in the order of the listing.
    pub chains: Vec<Chain>,
}

/// Everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// The tables, in the order of the listing.
    pub tables: Vec<Table>,
}

/// A listing that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", place(*line))]
pub struct NftReadError {
    /// Counted from 1; 0 in JSON.
    pub line: usize,
    /// What is wrong.
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

impl Table {
    /// Whether it is one that iptables-nft takes for its own: by its name, with base chains that are iptables' built-in ones. `nft` says so
    /// in a comment only where a rule has an expression of xtables in it.
    fn has_chains_of_iptables(&self) -> bool {
        let named = TableName::ALL.into_iter().find(|table| table.name() == self.name);
        let built_in = |chain: &Chain| named.is_some_and(|table| table.built_in().contains(&chain.name.as_str()));
        let mut base = self.chains.iter().filter(|chain| chain.base.is_some()).peekable();
        matches!(self.family, TableFamily::Ip | TableFamily::Ip6) && base.peek().is_some() && base.all(built_in)
    }
}

impl Ruleset {
    /// Reads what `nft list ruleset` prints, or what `nft -f` takes in the same form; JSON (`nft -j list ruleset`) is known by its first
    /// character.
    ///
    /// # Errors
    /// What of the listing's frame is not understood. Statements of rules that are not modelled are no error.
    pub fn read(text: &str) -> Result<Ruleset, NftReadError> {
        if text.trim_start().starts_with('{') { json::read(text) } else { text::read(text) }
    }

    /// The table of that name.
    #[must_use]
    pub fn table(&self, family: TableFamily, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.family == family && table.name == name)
    }

    /// How many rules there are, those of iptables-nft left out.
    #[must_use]
    pub fn len(&self) -> usize {
        let own = self.tables.iter().filter(|table| !table.by_iptables);
        own.flat_map(|table| &table.chains).map(|chain| chain.rules.len()).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Addresses that rules and maps have for translations.
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

    /// Statements that are not modelled, each with the place of its rule.
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

/// Of a range, its first address.
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

/// Priorities that have names (`include/uapi/linux/netfilter_ipv4.h`; `nft(8)`, "Standard priority names").
pub(super) fn priority(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse() {
        return Some(number);
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
