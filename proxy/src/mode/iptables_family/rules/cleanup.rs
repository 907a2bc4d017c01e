//! Takes everything away that this proxy or kube-proxy, in any mode, has put into the tables.

use super::jumps;
use super::names;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::ruleset::{Saved, Table, Transaction};

/// What dumps hold of this proxy or kube-proxy, in any mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Chains.
    pub chains: usize,
    /// Rules in them, and jumps to them from the kernel's own chains.
    pub rules: usize,
}

/// Counts what [`cleanup`] would remove.
pub fn count(saved: &Saved) -> Found {
    let mut found = Found::default();
    for (table, chains) in saved.tables.iter().map(|(table, saved)| (*table, &saved.chains)) {
        let ours = chains.iter().filter(|(chain, _)| names::is_ours(table, chain));
        let (count, rules) = ours.fold((0, 0), |(count, sum), (_, rules)| (count + 1, sum + rules.len()));
        let is_jump = |from: &str, rule: &str| {
            let mut jumps = jumps::of_all_modes().filter(|jump| jump.table == table && jump.to != names::FIREWALL);
            jumps.any(|jump| jump.from == from && jump.rule().to_string() == rule)
        };
        let jumps = chains.iter().flat_map(|(from, rules)| rules.iter().filter(|rule| is_jump(from, rule)));
        found = Found { chains: found.chains + count, rules: found.rules + rules + jumps.count() };
    }
    found
}

/// Removes our jumps and our chains, a table at a time: no packet meets a half-empty chain. `KUBE-FIREWALL` and the jumps to it
/// stay, as upstream's do: kubelet shares them, and `route_localnet` stays set, which without the guard lets neighbours reach what
/// listens on the node's loopback (CVE-2020-8558).
///
/// # Errors
/// When a command fails; what could be removed before it is.
pub fn cleanup<K: PacketFilter>(kernel: &mut K) -> Result<usize, IptablesError> {
    let mut removed = 0;
    for table in Table::ALL {
        let whole = kernel.read(&[table])?;
        let Some(saved) = whole.tables.get(&table) else { continue };
        let mut done: Vec<&jumps::Jump> = Vec::new();
        let mut transaction = Transaction::default();
        let change = transaction.table(table);
        let ours = jumps::of_all_modes().filter(|jump| jump.table == table && jump.to != names::FIREWALL);
        for jump in ours.filter(|jump| jump.is_in(&whole)) {
            if !done.iter().any(|other| other.is_same_rule(jump)) {
                done.push(jump);
                jump.delete_all(&whole, change);
                removed += 1;
            }
        }
        let mut chains: Vec<&String> = saved.chains.keys().filter(|chain| names::is_ours(table, chain)).collect();
        chains.sort_unstable();
        change.remove = chains.into_iter().cloned().collect();
        removed += change.remove.len();
        if !transaction.is_empty() {
            kernel.commit(&transaction)?;
        }
    }
    Ok(removed)
}
