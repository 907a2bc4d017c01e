//! From what the tables hold to what they should hold.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::jumps::{self, Jump};
use super::names;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::ruleset::{Chains, Rule, Saved, SavedTable, Table, Tables, Transaction};

/// What brings `saved` to `wanted`. A chain of ours, of whatever mode, that nobody wants is emptied, and removed unless
/// a rule of somebody else, or a jump of another mode, still leads to it: such a jump would make the kernel refuse the
/// whole table.
pub fn difference(wanted: Tables, saved: &Saved) -> Transaction {
    let mut transaction = Transaction::default();
    let nothing = SavedTable::default();
    for (table, chains) in wanted {
        let saved = saved.tables.get(&table).unwrap_or(&nothing);
        let change = transaction.table(table);
        for chain in stale(table, &chains, saved) {
            if saved.is_referred_to(&chain, |from| is_elsewhere(table, &chains, from)) {
                if saved.chains.get(&chain).is_some_and(|rules| !rules.is_empty()) {
                    change.write.insert(chain, Vec::new());
                }
            } else {
                change.remove.push(chain);
            }
        }
        for (chain, rules) in chains {
            let present = saved.chains.get(&chain);
            if chain == names::FIREWALL {
                // kubelet may have rules of its own in it: ours only has to be there.
                let missing = rules.into_iter().filter(|rule| !present.is_some_and(|present| holds(present, rule)));
                change.append.extend(missing.map(|rule| (chain.clone(), rule)));
                if present.is_none() {
                    change.write.insert(chain, Vec::new());
                }
            } else if !present.is_some_and(|present| is_same(present, &rules)) {
                change.write.insert(chain, rules);
            }
        }
    }
    transaction
}

/// Whether a chain of a dump holds this rule.
fn holds(present: &[String], rule: &Rule) -> bool {
    let text = rule.to_string();
    present.iter().any(|present| *present == text)
}

/// Whether a chain of a dump holds these rules and no others.
fn is_same(present: &[String], rules: &[Rule]) -> bool {
    let mut text = String::new();
    present.len() == rules.len()
        && present.iter().zip(rules).all(|(present, rule)| {
            text.clear();
            write!(text, "{rule}").is_ok() && *present == text
        })
}

/// Chains of ours that are there and not wanted.
fn stale(table: Table, wanted: &Chains, saved: &SavedTable) -> Vec<String> {
    let mut stale: Vec<String> = saved
        .chains
        .keys()
        .filter(|chain| names::is_ours(table, chain) && !wanted.contains_key(*chain))
        .cloned()
        .collect();
    stale.sort_unstable();
    stale
}

/// Whether a chain's rules stay as they are.
fn is_elsewhere(table: Table, wanted: &Chains, from: &str) -> bool {
    !wanted.contains_key(from) && !names::is_ours(table, from)
}

/// Puts in the jumps that are missing, each before what stands in the kernel's chain, in one transaction before all others and to
/// chains that are made empty if they are not there; how many there were. By itself it is small: one that the kernel takes
/// a part of, for being too large, must not be sent again with jumps in it.
///
/// # Errors
/// When a command fails.
pub fn ensure_jumps<'a, K: PacketFilter>(
    kernel: &mut K,
    wanted: impl IntoIterator<Item = &'a Jump>,
    saved: &Saved,
) -> Result<usize, IptablesError> {
    let (mut transaction, mut missing) = (Transaction::default(), 0);
    for jump in wanted.into_iter().filter(|jump| !jump.is_in(saved)) {
        let change = transaction.table(jump.table);
        let there = saved.tables.get(&jump.table).is_some_and(|table| table.chains.contains_key(jump.to));
        if !there {
            change.write.entry(jump.to.to_owned()).or_default();
        }
        change.insert.push((jump.from.to_owned(), jump.rule()));
        missing += 1;
    }
    if missing > 0 {
        kernel.commit(&transaction)?;
    }
    Ok(missing)
}

/// Jumps and chains that another mode left; to be called when the mode's own rules stand. How many jumps and chains.
///
/// # Errors
/// When a command fails.
pub fn remove_other_modes<K: PacketFilter>(
    kernel: &mut K,
    wanted_jumps: &[&Jump],
    wanted: impl Fn(Table, &str) -> bool,
    saved: &Saved,
) -> Result<(usize, usize), IptablesError> {
    // The guard of the loopback range stays: `route_localnet` may have been set for good.
    let mut stale: Vec<&Jump> = Vec::new();
    for jump in jumps::of_all_modes().filter(|jump| jump.to != names::FIREWALL && jump.is_in(saved)) {
        // Modes share some of their jumps.
        if !wanted_jumps.iter().chain(&stale).any(|other| other.is_same_rule(jump)) {
            stale.push(jump);
        }
    }
    let mut transaction = Transaction::default();
    let mut freed = BTreeSet::new();
    for jump in &stale {
        jump.delete_all(saved, transaction.table(jump.table));
        freed.insert((jump.table, jump.to));
    }
    for (table, chain) in freed {
        let Some(saved) = saved.tables.get(&table) else { continue };
        let is_stale_jump = |from: &str, rule: &str| {
            stale.iter().any(|jump| jump.table == table && jump.from == from && jump.rule().to_string() == rule)
        };
        let elsewhere = |from: &str| !wanted(table, from) && !names::is_ours(table, from);
        if !wanted(table, chain) && !saved.is_referred_to_but(chain, elsewhere, is_stale_jump) {
            transaction.table(table).remove.push(chain.to_owned());
        }
    }
    let removed = transaction.tables.values().map(|change| change.remove.len()).sum();
    if !transaction.is_empty() {
        kernel.commit(&transaction)?;
    }
    Ok((stale.len(), removed))
}
