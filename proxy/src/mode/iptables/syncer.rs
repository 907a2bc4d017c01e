//! Brings one family's tables to what is wanted: the whole state against a dump (full), or what changed against
//! what was sent last (partial).
//!
//! A partial restore that failed is repeated, whatever it had done: chains are written as a whole, and removed whether they are
//! there or not. After anything that makes the kernel's state uncertain – a restore that is refused twice, a lost canary, a
//! start – the next sync is a full one, computed from the whole state. So no update can get lost between a failed sync and the
//! next (kubernetes/kubernetes#121362), and a killed proxy's successor sends only what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::jumps;
use super::objects::{EndpointComments, ServiceObjects, render};
use super::report::{Report, RuleCounts};
use super::ruleset::{ServiceObjectsByName, Shared, assemble};
use crate::config::NodeAddresses;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::mode::Mode;
use crate::mode::rules::difference::{difference, ensure_jumps, remove_other_modes};
use crate::mode::rules::found::conntrack_frontends;
use crate::mode::rules::guard::Guard;
use crate::mode::rules::names;
use crate::model::{Protocol, ServicePortName};
use crate::plan::flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::{Chains, Rule, Table, Transaction};

/// One family's tables.
pub struct Syncer<K> {
    kernel: K,
    guard: Guard,
    /// What was sent last; `None` while the kernel's state is not known.
    sent: Option<Sent>,
    found: BTreeSet<(Protocol, Frontend)>,
    counts_by_comment: bool,
}

/// Enough to tell what changes. The text of a large cluster's chains is tens of megabytes, and is made anew from the
/// state whenever it is needed; lines in shared chains stay as they are, because those chains are written as a whole.
struct Sent {
    node: NodePlan,
    /// Decided by full syncs alone: a cluster that wavers about the limit must not be written anew each time.
    comments: EndpointComments,
    /// Each service port's lines in the shared chains; its own chains are not in here.
    lines: ServiceObjectsByName,
    own: BTreeMap<ServicePortName, OwnChains>,
    total: RuleCounts,
    /// What failed restores would have written, or did.
    unsure: BTreeSet<Shared>,
    failures: u32,
}

/// The chains of one service port: their names, sorted, and a fingerprint of the rules in each, in one allocation.
#[derive(Clone, Default)]
struct OwnChains {
    chains: Box<[(ChainName, [u8; 16])]>,
    rules: usize,
    /// Those that lead to `KUBE-MARK-MASQ`.
    marking: usize,
}

/// A chain's name, padded with zeros; the kernel takes none that is longer (`XT_EXTENSION_MAXNAMELEN`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
            marking: chains.values().flatten().filter(|rule| rule.target.chain() == Some(names::MARK_MASQ)).count(),
        }
    }

    fn get(&self, chain: &str) -> Option<[u8; 16]> {
        let at = self.chains.binary_search_by_key(&ChainName::of(chain), |(name, _)| *name).ok()?;
        self.chains.get(at).map(|(_, fingerprint)| *fingerprint).filter(|known| *known != UNKNOWN)
    }

    /// A restore that would have turned `before` into these has failed: either's chains may be there, with whatever in them.
    fn distrust(&mut self, before: &OwnChains) {
        let names: BTreeSet<ChainName> = self.chains.iter().chain(&before.chains).map(|(name, _)| *name).collect();
        self.chains = names.into_iter().map(|name| (name, UNKNOWN)).collect();
    }
}

/// No list of rules has this fingerprint.
const UNKNOWN: [u8; 16] = [0; 16];

/// Half of a SHA-256 over the text of the rules, one on each line.
fn fingerprint(rules: &[Rule]) -> [u8; 16] {
    let (mut digest, mut text) = (Sha256::new(), String::new());
    for rule in rules {
        text.clear();
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{rule}");
        digest.update(&text);
    }
    let mut half = [0; 16];
    half.copy_from_slice(&digest.finalize()[..16]);
    half
}

impl<K: PacketFilter> Syncer<K> {
    /// Knows nothing of the kernel's state yet.
    pub fn new(kernel: K) -> Syncer<K> {
        Syncer { kernel, guard: Guard::default(), sent: None, found: BTreeSet::new(), counts_by_comment: false }
    }

    /// Writes the comments of endpoints' rules in large clusters as well: connections are counted by them
    /// ([`super::connections`]).
    pub fn counting_by_comment(self) -> Syncer<K> {
        Syncer { counts_by_comment: true, ..self }
    }

    /// The kernel adapter, for tests.
    pub fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    fn send(&mut self, transaction: &Transaction) -> Result<Report, IptablesError> {
        self.kernel.commit(transaction)?;
        Ok(Report::of(transaction))
    }
}

impl<K: PacketFilter> Mode for Syncer<K> {
    type Error = IptablesError;

    fn needs_full(&self) -> bool {
        self.sent.is_none()
    }

    fn require_full_sync(&mut self) {
        self.sent = None;
        self.guard.require_full_sync();
    }

    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        std::mem::take(&mut self.found)
    }

    fn detect_flush(&mut self) -> Result<Option<String>, IptablesError> {
        // After a restore that failed either state may be there.
        if self.sent.as_ref().is_none_or(|sent| sent.failures > 0) {
            return Ok(None);
        }
        self.guard.lost(&mut self.kernel)
    }

    fn full(
        &mut self,
        node: NodePlan,
        _addresses: &NodeAddresses,
        plans: &[ServicePortPlan],
    ) -> Result<Report, IptablesError> {
        self.require_full_sync();
        let comments = if self.counts_by_comment { EndpointComments::Written } else { EndpointComments::of(plans) };
        let (mut lines, mut own, mut chains) = (ServiceObjectsByName::new(), BTreeMap::new(), Chains::new());
        for plan in plans {
            let mut objects = render(plan, &node, comments);
            own.insert(plan.name.clone(), OwnChains::of(&objects.chains));
            chains.extend(std::mem::take(&mut objects.chains));
            lines.insert(plan.name.clone(), objects);
        }
        // What stays lies between the text of all chains, and would keep its memory from being given back: a copy does not.
        let (lines, own) = (lines.clone(), own.clone());
        let mut wanted = assemble(&lines, &node, self.kernel.random_fully());
        wanted.entry(Table::Nat).or_default().append(&mut chains);
        let total =
            RuleCounts::of(wanted.iter().flat_map(|(table, chains)| chains.values().map(|rules| (*table, rules))));
        let saved = self.kernel.read(&Table::ALL)?;
        self.found.extend(saved.tables.get(&Table::Nat).into_iter().flat_map(conntrack_frontends));
        let jumps: Vec<_> = jumps::wanted(&node).collect();
        let ours: BTreeSet<(Table, String)> =
            wanted.iter().flat_map(|(table, chains)| chains.keys().map(|chain| (*table, chain.clone()))).collect();
        let marking = own.values().map(|own| own.marking).sum();
        self.guard.expect(&wanted, marking, jumps.iter().copied());
        let made = ensure_jumps(&mut self.kernel, jumps.iter().copied(), &saved)?;
        let mut report = self.send(&difference(wanted, &saved))?;
        let is_wanted = |table: Table, chain: &str| ours.contains(&(table, chain.to_owned()));
        let (gone, chains) = remove_other_modes(&mut self.kernel, &jumps, is_wanted, &saved)?;
        report.full = true;
        report.jumps = made + gone;
        report.removed_chains += chains;
        report.total = total;
        self.guard.mended(&report);
        self.sent = Some(Sent { node, comments, lines, own, total, unsure: BTreeSet::new(), failures: 0 });
        Ok(report)
    }

    fn partial(
        &mut self,
        changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>,
    ) -> Result<Report, IptablesError> {
        let Some(mut sent) = self.sent.take() else { return Ok(Report::default()) };
        let mut transaction = Transaction::default();
        let mut replaced = Vec::new();
        let nothing = ServiceObjects::default();
        for (name, plan) in changed {
            let mut after = plan.map(|plan| render(&plan, &sent.node, sent.comments));
            let before = sent.lines.remove(&name);
            let (old, new) = (before.as_ref().unwrap_or(&nothing), after.as_ref().unwrap_or(&nothing));
            for shared in Shared::ALL.into_iter().filter(|shared| shared.lines(old) != shared.lines(new)) {
                sent.total.replace(shared.place().0, shared.lines(old).len(), shared.lines(new).len());
                sent.unsure.insert(shared);
            }
            let chains = after.as_mut().map(|after| std::mem::take(&mut after.chains)).unwrap_or_default();
            let own = OwnChains::of(&chains);
            let own_before = sent.own.remove(&name).unwrap_or_default();
            sent.total.replace(Table::Nat, own_before.rules, own.rules);
            self.guard.marking(own_before.marking, own.marking);
            own_chains(&mut transaction, &own_before, &own, chains);
            if let Some(after) = after {
                sent.lines.insert(name.clone(), after);
                sent.own.insert(name.clone(), own);
            }
            replaced.push((name, own_before));
        }
        for shared in &sent.unsure {
            let (table, chain) = shared.place();
            let rules = shared.assemble(&sent.lines, &sent.node);
            self.guard.rewritten(table, chain, &rules);
            transaction.table(table).write.insert(chain.to_owned(), rules);
        }
        match self.send(&transaction) {
            Ok(mut report) => {
                sent.unsure.clear();
                sent.failures = 0;
                report.total = sent.total;
                self.sent = Some(sent);
                Ok(report)
            }
            Err(error) => {
                sent.failures += 1;
                for (name, before) in replaced {
                    sent.own.entry(name).or_default().distrust(&before);
                }
                self.sent = Some(sent).filter(|sent| sent.failures < 2 || !error.is_refusal());
                Err(error)
            }
        }
    }
}

fn own_chains(transaction: &mut Transaction, before: &OwnChains, after: &OwnChains, chains: Chains) {
    let nat = transaction.table(Table::Nat);
    let before_names = before.chains.iter().map(|(chain, _)| chain.to_text());
    nat.remove.extend(before_names.filter(|chain| !chains.contains_key(chain)));
    nat.write.extend(chains.into_iter().filter(|(chain, _)| before.get(chain) != after.get(chain)));
}
