use super::jumps;
use super::names;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::ruleset::{SavedTables, Table, Transaction};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CleanupCount {
    pub chains: usize,
    pub rules: usize,
}

pub fn count(saved: &SavedTables) -> CleanupCount {
    let mut found = CleanupCount::default();
    for (table, chains) in saved.tables.iter().map(|(table, saved)| (*table, &saved.chains)) {
        let ours = chains.iter().filter(|(chain, _)| names::is_ours(table, chain));
        let (count, rules) = ours.fold((0, 0), |(count, sum), (_, rules)| (count + 1, sum + rules.len()));
        let is_jump = |from: &str, rule: &str| {
            let mut jumps = jumps::of_all_modes().filter(|jump| jump.table == table && jump.to != names::FIREWALL);
            jumps.any(|jump| jump.from == from && jump.rule().to_string() == rule)
        };
        let jumps = chains.iter().flat_map(|(from, rules)| rules.iter().filter(|rule| is_jump(from, rule)));
        found = CleanupCount { chains: found.chains + count, rules: found.rules + rules + jumps.count() };
    }
    found
}

/// Removes this proxy's and kube-proxy's rules of any mode, one table per transaction, so that no packet passes a
/// half-empty chain. As in upstream, `KUBE-FIREWALL` stays: kubelet shares it. `route_localnet` stays set, too: without
/// the guard other machines could reach loopback listeners (CVE-2020-8558).
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
