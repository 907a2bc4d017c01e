//! Adds the rules of other programs to listings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

#[derive(Default)]
struct Table {
    /// Chains with their policies, in order.
    chains: Vec<(String, String)>,
    /// Rules without `-A`: chain, then the rest.
    rules: Vec<(String, String)>,
}

/// Adds rules in the form of `iptables-restore --noflush` to the text of `iptables-save`: `-A` appends, `-I` inserts
/// at the top of the chain, `:CHAIN` declares.
pub(super) fn with_rules(saved: Option<&str>, added: &str) -> String {
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for text in [saved.unwrap_or_default(), added] {
        let mut name = String::new();
        for line in text.lines().map(str::trim) {
            let table = tables.entry(name.clone()).or_default();
            if let Some(next) = line.strip_prefix('*') {
                name = next.to_owned();
            } else if let Some(chain) = line.strip_prefix(':') {
                let (chain, rest) = chain.split_once(' ').unwrap_or((chain, "- [0:0]"));
                table.declare(chain, rest);
            } else if let Some((command, rule)) =
                line.split_once(' ').filter(|(command, _)| ["-A", "-I"].contains(command))
            {
                let (chain, rest) = rule.split_once(' ').unwrap_or((rule, ""));
                if BUILT_IN.contains(&chain) && !table.chains.iter().any(|(known, _)| known == chain) {
                    table.declare(chain, "ACCEPT [0:0]");
                }
                let rule = (chain.to_owned(), rest.to_owned());
                match table.rules.iter().position(|(known, _)| known == chain).filter(|_| command == "-I") {
                    Some(first) => table.rules.insert(first, rule),
                    None => table.rules.push(rule),
                }
            }
        }
    }
    tables.remove("");
    let mut text = String::new();
    for (name, table) in tables {
        let _ = writeln!(text, "*{name}");
        for (chain, policy) in &table.chains {
            let _ = writeln!(text, ":{chain} {policy}");
        }
        for (chain, rule) in &table.rules {
            let _ = writeln!(text, "-A {chain} {rule}");
        }
        text.push_str("COMMIT\n");
    }
    text
}

impl Table {
    fn declare(&mut self, chain: &str, policy: &str) {
        match self.chains.iter_mut().find(|(known, _)| known == chain) {
            Some((_, known)) => policy.clone_into(known),
            None => self.chains.push((chain.to_owned(), policy.to_owned())),
        }
    }
}

/// Returns the tables of `iptables-save` as `nft list ruleset` shows them, without rules.
pub(super) fn as_nft(saved: &str) -> String {
    let mut text = String::new();
    for name in saved.lines().filter_map(|line| line.strip_prefix('*')) {
        let _ =
            writeln!(text, "# Warning: table ip {name} is managed by iptables-nft, do not touch!\ntable ip {name} {{");
        for (chain, hook) in BUILT_IN.into_iter().zip(["prerouting", "input", "forward", "output", "postrouting"]) {
            let priority = match (name, hook) {
                ("raw", "prerouting" | "output") => -300,
                ("mangle", _) => -150,
                ("nat", "prerouting" | "output") => -100,
                ("nat", "input" | "postrouting") => 100,
                ("filter", "input" | "forward" | "output") => 0,
                _ => continue,
            };
            let kind = if name == "nat" { "nat" } else { "filter" };
            let _ = writeln!(
                text,
                "\tchain {chain} {{\n\t\ttype {kind} hook {hook} priority {priority}; policy accept;\n\t}}"
            );
        }
        text.push_str("}\n");
    }
    text
}
