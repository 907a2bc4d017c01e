//! Brings one family's tables to what is wanted: the whole state against a dump (full), or what changed against
//! what was sent last (partial).
//!
//! After anything that leaves doubt about the kernel's state – a failed restore, a lost canary, a start – the next
//! sync is a full one, computed from the whole state. So no update can get lost between a failed sync and the next
//! (kubernetes/kubernetes#121362), and a killed proxy's successor sends only what differs.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

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

/// Rules of the proxy's own by table; mangle has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// In filter.
    pub filter: usize,
    /// In nat.
    pub nat: usize,
}

impl RuleCounts {
    fn of<'a>(chains: impl IntoIterator<Item = (Table, &'a Vec<String>)>) -> RuleCounts {
        let mut counts = RuleCounts::default();
        for (table, rules) in chains {
            counts.replace(table, 0, rules.len());
        }
        counts
    }

    /// So many rules of a table give way to so many others.
    fn replace(&mut self, table: Table, before: usize, after: usize) {
        let count = match table {
            Table::Filter => &mut self.filter,
            Table::Nat => &mut self.nat,
            Table::Mangle => return,
        };
        *count = *count + after - before;
    }
}

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
    /// Rules sent, by table; without those that only emptied a chain.
    pub sent: RuleCounts,
    /// Rules that are in the kernel now.
    pub total: RuleCounts,
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

/// Enough to tell what changes. The text of a large cluster's chains is tens of megabytes, and is made anew from the
/// state whenever it is needed; lines in shared chains stay as they are, because those chains are written as a whole.
struct Sent {
    node: NodePlan,
    /// Each service port's lines in the shared chains; its own chains are not in here.
    lines: Fragments,
    own: BTreeMap<ServicePortName, OwnChains>,
    total: RuleCounts,
}

/// The chains of one service port: their names, and a fingerprint of the rules in each, in one allocation.
#[derive(Default)]
struct OwnChains {
    chains: Box<[(ChainName, [u8; 16])]>,
    rules: usize,
}

/// A chain's name, padded with zeros; the kernel takes none that is longer (`XT_EXTENSION_MAXNAMELEN`).
#[derive(Clone, Copy, PartialEq, Eq)]
struct ChainName([u8; 28]);

impl ChainName {
    fn of(name: &str) -> ChainName {
        let mut padded = [0; 28];
        padded.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
        ChainName(padded)
    }

    fn to_text(self) -> String {
        self.0.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect()
    }
}

impl OwnChains {
    fn of(chains: &Chains) -> OwnChains {
        OwnChains {
            chains: chains.iter().map(|(chain, rules)| (ChainName::of(chain), fingerprint(rules))).collect(),
            rules: chains.values().map(Vec::len).sum(),
        }
    }

    fn get(&self, chain: &str) -> Option<[u8; 16]> {
        let name = ChainName::of(chain);
        self.chains.iter().find(|(known, _)| *known == name).map(|(_, fingerprint)| *fingerprint)
    }
}

/// Half of a SHA-256 over the rules, each with its length, so that no two lists of rules read the same.
fn fingerprint(rules: &[String]) -> [u8; 16] {
    let mut digest = Sha256::new();
    for rule in rules {
        digest.update(rule.len().to_le_bytes());
        digest.update(rule);
    }
    let mut half = [0; 16];
    half.copy_from_slice(&digest.finalize()[..16]);
    half
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
        // What stays is made first and the text of all chains after it, though that renders everything twice: what stays
        // would otherwise stand between the text, and keep its memory from being given back.
        let mut lines = Fragments::new();
        let mut own = BTreeMap::new();
        for plan in plans {
            let mut fragment = render(plan, &node);
            own.insert(plan.name.clone(), OwnChains::of(&std::mem::take(&mut fragment.chains)));
            lines.insert(plan.name.clone(), fragment);
        }
        let mut wanted = assemble(&lines, &node, self.kernel.random_fully());
        wanted.entry(Table::Nat).or_default().extend(plans.iter().flat_map(|plan| render(plan, &node).chains));
        let total =
            RuleCounts::of(wanted.iter().flat_map(|(table, chains)| chains.values().map(|rules| (*table, rules))));
        let mut saved = Saved::default();
        for table in Table::ALL {
            saved.tables.insert(table, SavedTable::parse(&self.kernel.save(table)?));
        }
        self.found.extend(saved.tables.get(&Table::Nat).into_iter().flat_map(datagram_frontends));
        // Jumps first, to chains that are still empty: each is a command of its own, and with the legacy variant such a
        // command reads and writes the whole table, which on a fresh node is tiny now and huge after the restore.
        let jumps = self.ensure_jumps(&node, &saved)?;
        let mut report = self.send(&difference(wanted, &saved))?;
        report.full = true;
        report.jumps = jumps;
        report.total = total;
        self.sent = Some(Sent { node, lines, own, total });
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
            let mut after = plan.map(|plan| render(&plan, &sent.node));
            let before = sent.lines.remove(&name);
            let (old, new) = (before.as_ref().unwrap_or(&nothing), after.as_ref().unwrap_or(&nothing));
            for shared in Shared::ALL.into_iter().filter(|shared| shared.lines(old) != shared.lines(new)) {
                sent.total.replace(shared.place().0, shared.lines(old).len(), shared.lines(new).len());
                touched.push(shared);
            }
            let chains = after.as_mut().map(|after| std::mem::take(&mut after.chains)).unwrap_or_default();
            let own = OwnChains::of(&chains);
            let own_before = sent.own.remove(&name).unwrap_or_default();
            sent.total.replace(Table::Nat, own_before.rules, own.rules);
            own_chains(&mut transaction, &own_before, &own, chains);
            if let Some(after) = after {
                sent.lines.insert(name.clone(), after);
                sent.own.insert(name, own);
            }
        }
        for shared in Shared::ALL.into_iter().filter(|shared| touched.contains(shared)) {
            let (table, chain) = shared.place();
            let rules = shared.assemble(&sent.lines, &sent.node);
            transaction.table(table).write.insert(chain.to_owned(), rules);
        }
        let mut report = self.send(&transaction)?;
        report.total = sent.total;
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
            sent: RuleCounts::of(
                transaction
                    .tables
                    .iter()
                    .flat_map(|(table, change)| change.write.values().map(|rules| (*table, rules))),
            ),
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

fn own_chains(transaction: &mut Transaction, before: &OwnChains, after: &OwnChains, chains: Chains) {
    let nat = transaction.table(Table::Nat);
    let before_names = before.chains.iter().map(|(chain, _)| chain.to_text());
    nat.remove.extend(before_names.filter(|chain| !chains.contains_key(chain)));
    nat.write.extend(chains.into_iter().filter(|(chain, _)| before.get(chain) != after.get(chain)));
}

/// What brings `saved` to `wanted`. A chain of ours that nobody wants is emptied, and removed unless a rule of
/// somebody else still jumps to it: such a jump would make the kernel refuse the whole table.
fn difference(wanted: Tables, saved: &Saved) -> Transaction {
    let mut transaction = Transaction::default();
    let nothing = SavedTable::default();
    for (table, chains) in wanted {
        let saved = saved.tables.get(&table).unwrap_or(&nothing);
        let change = transaction.table(table);
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
        for (chain, rules) in chains {
            let present = saved.chains.get(&chain);
            if chain == names::FIREWALL {
                // kubelet may have rules of its own in it: ours only has to be there.
                if present.is_none_or(|present| !rules.iter().all(|rule| present.contains(rule))) {
                    let mut kept = present.cloned().unwrap_or_default();
                    kept.extend(rules);
                    change.write.insert(chain, kept);
                }
            } else if present != Some(&rules) {
                change.write.insert(chain, rules);
            }
        }
    }
    transaction
}
