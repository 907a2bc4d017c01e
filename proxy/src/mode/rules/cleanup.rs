//! Takes everything away that this proxy or kube-proxy, in any mode, has put into the tables.

use super::common::loopback_guard;
use super::jumps;
use super::names;
use super::saved::{Saved, SavedTable};
use super::transaction::Transaction;
use crate::kernel::iptables::{Iptables, IptablesError, Table};
use crate::model::Family;

/// Removes our jumps and our chains, a table at a time: no packet meets a half-empty chain. `KUBE-FIREWALL`, which
/// kubelet shares, stays while it holds rules of others.
///
/// # Errors
/// When a command fails; what could be removed before it is.
pub fn cleanup<K: Iptables>(kernel: &mut K, family: Family) -> Result<usize, IptablesError> {
    let mut removed = 0;
    for table in Table::ALL {
        let mut whole = Saved::default();
        whole.tables.insert(table, SavedTable::parse(&kernel.save(table)?));
        let Some(saved) = whole.tables.get(&table) else { continue };
        let guard = loopback_guard(family);
        let firewall = saved.chains.get(names::FIREWALL);
        let others_guard = firewall.is_some_and(|rules| rules.iter().any(|rule| *rule != guard));
        let mut done: Vec<&jumps::Jump> = Vec::new();
        let mut transaction = Transaction::default();
        let change = transaction.table(table);
        for jump in jumps::of_all_modes().filter(|jump| jump.table == table && jump.is_in(&whole)) {
            if !(jump.to == names::FIREWALL && others_guard) && !done.iter().any(|other| other.is_same_rule(jump)) {
                done.push(jump);
                jump.delete_all(&whole, change);
                removed += 1;
            }
        }
        let mut chains: Vec<&String> = saved.chains.keys().filter(|chain| names::is_ours(table, chain)).collect();
        chains.sort_unstable();
        change.remove = chains.into_iter().cloned().collect();
        match firewall {
            Some(rules) if others_guard && rules.contains(&guard) => {
                let others = rules.iter().filter(|rule| **rule != guard).cloned().collect();
                change.write.insert(names::FIREWALL.to_owned(), others);
            }
            Some(rules) if rules.contains(&guard) => change.remove.push(names::FIREWALL.to_owned()),
            _ => {}
        }
        removed += change.remove.len();
        if !transaction.is_empty() {
            transaction.send(kernel)?;
        }
    }
    Ok(removed)
}
