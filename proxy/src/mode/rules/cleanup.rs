//! Takes everything away that this proxy or kube-proxy, in any mode, has put into the tables.

use super::common::loopback_guard;
use super::jumps;
use super::names;
use super::saved::SavedTable;
use super::transaction::Transaction;
use crate::kernel::iptables::{Iptables, IptablesError, Table};
use crate::model::Family;

/// Removes our jumps first, so that no packet meets a half-empty chain, then our chains. `KUBE-FIREWALL`, which
/// kubelet shares, stays while it holds rules of others.
///
/// # Errors
/// When a command fails; what could be removed before it is.
pub fn cleanup<K: Iptables>(kernel: &mut K, family: Family) -> Result<usize, IptablesError> {
    let mut removed = 0;
    for table in Table::ALL {
        let saved = SavedTable::parse(&kernel.save(table)?);
        let guard = loopback_guard(family);
        let firewall = saved.chains.get(names::FIREWALL);
        let others_guard = firewall.is_some_and(|rules| rules.iter().any(|rule| *rule != guard));
        let mut done: Vec<&jumps::Jump> = Vec::new();
        for jump in jumps::of_all_modes().filter(|jump| jump.table == table) {
            let present = saved.chains.get(jump.from).is_some_and(|rules| rules.iter().any(|rule| rule == jump.rule));
            if present
                && !(jump.to == names::FIREWALL && others_guard)
                && !done.iter().any(|other| other.is_same_rule(jump))
            {
                done.push(jump);
                kernel.delete_all(table, jump.from, jump.rule)?;
                removed += 1;
            }
        }
        let mut transaction = Transaction::default();
        let change = transaction.table(table);
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
