//! Brings one family's tables to what is wanted: the whole state against a dump (full), or what changed against
//! what was sent last (partial).
//!
//! After anything that leaves doubt about the kernel's state – a failed restore, a lost canary, a start – the next
//! sync is a full one, computed from the whole state. So no update can get lost between a failed sync and the next
//! (kubernetes/kubernetes#121362), and a killed proxy's successor sends only what differs.

use std::collections::{BTreeMap, BTreeSet};

use super::fragment::{Chains, Fragment, render};
use super::jumps;
use super::names;
use super::ruleset::{Fragments, Shared, Tables, assemble};
use super::saved::{Saved, SavedTable, datagram_frontends};
use super::transaction::Transaction;
use crate::kernel::iptables::{Iptables, IptablesError, Table};
use crate::model::{Protocol, ServicePortName};
use crate::plan::flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};

/// What a sync did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// The whole state was compared with the kernel's.
    pub full: bool,
    /// Rules sent.
    pub rules: usize,
    /// Chains removed.
    pub removed_chains: usize,
    /// Jumps put back into the kernel's chains.
    pub jumps: usize,
}

impl Report {
    /// Nothing was sent.
    pub fn is_empty(&self) -> bool {
        self.rules == 0 && self.removed_chains == 0 && self.jumps == 0
    }
}

/// One family's tables.
pub struct Syncer<K> {
    kernel: K,
    /// What was sent last; `None` while the kernel's state is in doubt.
    sent: Option<Sent>,
    found: BTreeSet<(Protocol, Frontend)>,
}

struct Sent {
    node: NodePlan,
    fragments: Fragments,
}

impl<K: Iptables> Syncer<K> {
    /// Knows nothing of the kernel's state yet.
    pub fn new(kernel: K) -> Syncer<K> {
        Syncer { kernel, sent: None, found: BTreeSet::new() }
    }

    /// Whether only a full sync will do.
    pub fn needs_full(&self) -> bool {
        self.sent.is_none()
    }

    /// The kernel's state is in doubt: somebody else wrote to it.
    pub fn doubt(&mut self) {
        self.sent = None;
    }

    /// The frontends of datagram protocols that full syncs have found in the kernel since the last call: a predecessor's,
    /// too.
    pub fn take_found(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        std::mem::take(&mut self.found)
    }

    /// The kernel adapter, for tests.
    pub fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// Whether the canary chains are all there.
    ///
    /// # Errors
    /// When a command fails.
    pub fn canary_lives(&mut self) -> Result<bool, IptablesError> {
        for table in Table::ALL {
            if !self.kernel.chain_exists(table, names::CANARY)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares the whole state with the kernel's and sends the difference.
    ///
    /// # Errors
    /// When a command fails; the next sync must be full again.
    pub fn full(&mut self, node: NodePlan, plans: &[ServicePortPlan]) -> Result<Report, IptablesError> {
        self.sent = None;
        let fragments: Fragments = plans.iter().map(|plan| (plan.name.clone(), render(plan, &node))).collect();
        let wanted = assemble(&fragments, &node, self.kernel.random_fully());
        let mut saved = Saved::default();
        for table in Table::ALL {
            saved.tables.insert(table, SavedTable::parse(&self.kernel.save(table)?));
        }
        self.found.extend(saved.tables.get(&Table::Nat).into_iter().flat_map(datagram_frontends));
        // Jumps first, to chains that are still empty: each is a command of its own, and with the legacy variant such a
        // command reads and writes the whole table, which on a fresh node is tiny now and huge after the restore.
        let jumps = self.ensure_jumps(&node, &saved)?;
        let mut report = self.send(&difference(&wanted, &saved))?;
        report.full = true;
        report.jumps = jumps;
        self.sent = Some(Sent { node, fragments });
        Ok(report)
    }

    /// Sends what changed in these service ports (`None`: gone). Does a full sync's work in no case: the caller
    /// asks [`Syncer::needs_full`] first.
    ///
    /// # Errors
    /// When a command fails; the next sync must be full.
    pub fn partial(
        &mut self,
        changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>,
    ) -> Result<Report, IptablesError> {
        // Doubt until the restore has succeeded.
        let Some(mut sent) = self.sent.take() else { return Ok(Report::default()) };
        let mut transaction = Transaction::default();
        let mut touched = Vec::new();
        let nothing = Fragment::default();
        for (name, plan) in changed {
            let after = plan.map(|plan| render(&plan, &sent.node));
            let before = sent.fragments.remove(&name);
            let (old, new) = (before.as_ref().unwrap_or(&nothing), after.as_ref().unwrap_or(&nothing));
            own_chains(&mut transaction, &old.chains, &new.chains);
            touched.extend(Shared::ALL.into_iter().filter(|shared| shared.lines(old) != shared.lines(new)));
            if let Some(after) = after {
                sent.fragments.insert(name, after);
            }
        }
        for shared in Shared::ALL.into_iter().filter(|shared| touched.contains(shared)) {
            let (table, chain) = shared.place();
            let rules = shared.assemble(&sent.fragments, &sent.node);
            transaction.table(table).write.insert(chain.to_owned(), rules);
        }
        let report = self.send(&transaction)?;
        self.sent = Some(sent);
        Ok(report)
    }

    fn send(&mut self, transaction: &Transaction) -> Result<Report, IptablesError> {
        if !transaction.is_empty() {
            transaction.send(&mut self.kernel)?;
        }
        let tables = || transaction.tables.values();
        Ok(Report {
            rules: tables().map(|table| table.rules() + table.write.values().filter(|r| r.is_empty()).count()).sum(),
            removed_chains: tables().map(|table| table.remove.len()).sum(),
            ..Report::default()
        })
    }

    fn ensure_jumps(&mut self, node: &NodePlan, saved: &Saved) -> Result<usize, IptablesError> {
        let present = |jump: &jumps::Jump| {
            let rules = saved.tables.get(&jump.table).and_then(|table| table.chains.get(jump.from));
            rules.is_some_and(|rules| rules.iter().any(|rule| rule == jump.rule))
        };
        let missing: Vec<_> = jumps::wanted(node).filter(|jump| !present(jump)).collect();
        let mut made = BTreeSet::new();
        for jump in &missing {
            let there = saved.tables.get(&jump.table).is_some_and(|table| table.chains.contains_key(jump.to));
            if !there && made.insert((jump.table, jump.to)) {
                self.kernel.new_chain(jump.table, jump.to)?;
            }
            self.kernel.insert_first(jump.table, jump.from, jump.rule)?;
        }
        Ok(missing.len())
    }
}

fn own_chains(transaction: &mut Transaction, before: &Chains, after: &Chains) {
    let nat = transaction.table(Table::Nat);
    for (chain, rules) in after.iter().filter(|(chain, rules)| before.get(*chain) != Some(rules)) {
        nat.write.insert(chain.clone(), rules.clone());
    }
    nat.remove.extend(before.keys().filter(|chain| !after.contains_key(*chain)).cloned());
}

/// What brings `saved` to `wanted`. A chain of ours that nobody wants is emptied, and removed unless a rule of
/// somebody else still jumps to it: such a jump would make the kernel refuse the whole table.
fn difference(wanted: &Tables, saved: &Saved) -> Transaction {
    let mut transaction = Transaction::default();
    let nothing = SavedTable::default();
    for (table, chains) in wanted {
        let saved = saved.tables.get(table).unwrap_or(&nothing);
        let change = transaction.table(*table);
        for (chain, rules) in chains {
            let present = saved.chains.get(chain);
            if chain == names::FIREWALL {
                // kubelet may have rules of its own in it: ours only has to be there.
                if present.is_none_or(|present| !rules.iter().all(|rule| present.contains(rule))) {
                    let mut kept = present.cloned().unwrap_or_default();
                    kept.extend(rules.iter().cloned());
                    change.write.insert(chain.clone(), kept);
                }
            } else if present != Some(rules) {
                change.write.insert(chain.clone(), rules.clone());
            }
        }
        let mut stale: Vec<&String> = saved.per_service_chains().filter(|chain| !chains.contains_key(*chain)).collect();
        stale.sort_unstable();
        let foreign = |from: &str| !chains.contains_key(from) && !names::is_per_service(from);
        for chain in stale {
            if saved.is_referred_to(chain, foreign) {
                if saved.chains.get(chain).is_some_and(|rules| !rules.is_empty()) {
                    change.write.insert(chain.clone(), Vec::new());
                }
            } else {
                change.remove.push(chain.clone());
            }
        }
    }
    transaction
}
