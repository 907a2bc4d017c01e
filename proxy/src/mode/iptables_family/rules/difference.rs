use std::collections::BTreeSet;

use super::jumps::{self, Jump};
use super::names;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::ruleset::{Rule, SavedTables, Table, TableChange, Transaction};

/// Appends missing rules only: kubelet may have rules in the chain.
pub fn shared_with_kubelet<'a>(
    change: &mut TableChange,
    chain: &str,
    present: Option<&Vec<String>>,
    rules: impl Iterator<Item = &'a Rule>,
) {
    let stands = |rule: &Rule| present.is_some_and(|present| present.contains(&rule.to_string()));
    change.append.extend(rules.filter(|rule| !stands(rule)).map(|rule| (chain.to_owned(), rule.clone())));
    if present.is_none() {
        change.write.insert(chain.to_owned(), Vec::new());
    }
}

/// Inserts missing jumps at the beginning of the built-in chains, in a small transaction before all others: one that is
/// too large for the kernel may be half done, and must not be repeated with jumps.
pub fn ensure_jumps(
    kernel: &mut dyn PacketFilter,
    wanted: &[&Jump],
    saved: &SavedTables,
) -> Result<usize, IptablesError> {
    let (mut transaction, mut missing) = (Transaction::default(), 0);
    for jump in wanted.iter().filter(|jump| !jump.is_in(saved)) {
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

/// Removes other modes' rules, once the mode's own rules exist. Returns the numbers of jumps and chains.
pub fn remove_other_modes(
    kernel: &mut dyn PacketFilter,
    wanted_jumps: &[&Jump],
    wanted: impl Fn(Table, &str) -> bool,
    saved: &SavedTables,
) -> Result<(usize, usize), IptablesError> {
    // The guard of the loopback range stays: `route_localnet` may stay set.
    let mut stale: Vec<&Jump> = Vec::new();
    for jump in jumps::of_all_modes().filter(|jump| jump.to != names::FIREWALL && jump.is_in(saved)) {
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
        if !wanted(table, chain) && !saved.is_referred_to(chain, elsewhere, is_stale_jump) {
            transaction.table(table).remove.push(chain.to_owned());
        }
    }
    let removed = transaction.tables.values().map(|change| change.remove.len()).sum();
    if !transaction.is_empty() {
        kernel.commit(&transaction)?;
    }
    Ok((stale.len(), removed))
}
