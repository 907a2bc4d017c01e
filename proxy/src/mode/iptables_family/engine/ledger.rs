//! What was sent for each service port. Rules of a large cluster take tens of megabytes, so the ledger keeps only
//! fingerprints of service ports' chains. Shared chains are always written as a whole, so it keeps their rules.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;

use super::render::{ChainId, FixedChain, ServiceRules, SharedRule};
use crate::kernel::iptables::RuleRefusal;
use crate::mode::iptables_family::rules::names;
use crate::model::ServicePortName;
use crate::ruleset::RuleCounts;
use crate::ruleset::{Chains, Rule, Table, TableChange};

#[derive(Debug, Default)]
pub(super) struct RuleLedger {
    entries: BTreeMap<ServicePortName, LedgerEntry>,
    fixed: Vec<FixedChain>,
    total: RuleCounts,
    marking: usize,
    /// Random keys: nobody can craft two rule lists with one fingerprint.
    hash: RandomState,
}

#[derive(Debug, Clone, Default)]
pub(super) struct LedgerEntry {
    lines: Box<[SharedRule]>,
    /// Sorted by name, with the rules' fingerprints; `None`: the kernel may have other rules.
    chains: Box<[(ChainName, Option<NonZeroU64>)]>,
    rules: usize,
    /// The number of own rules that jump to `KUBE-MARK-MASQ`.
    marking: usize,
}

/// Zero-padded to the kernel's limit (`XT_EXTENSION_MAXNAMELEN`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ChainName([u8; 28]);

impl ChainName {
    fn of(name: &str) -> ChainName {
        let mut padded = [0; 28];
        padded.iter_mut().zip(name.bytes()).for_each(|(id, byte)| *id = byte);
        ChainName(padded)
    }

    fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        self.0.get(..end).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
    }
}

impl LedgerEntry {
    fn find(&self, chain: &str) -> Option<Option<NonZeroU64>> {
        let at = self.chains.binary_search_by_key(&ChainName::of(chain), |(name, _)| *name).ok()?;
        self.chains.get(at).map(|(_, fingerprint)| *fingerprint)
    }

    pub fn known_chains(&self) -> impl Iterator<Item = &str> {
        self.chains.iter().filter(|(_, fingerprint)| fingerprint.is_some()).map(|(chain, _)| chain.as_str())
    }

    fn lines(&self, id: ChainId) -> impl Iterator<Item = &SharedRule> {
        self.lines.iter().filter(move |line| line.id == id)
    }
}

impl RuleLedger {
    pub fn new() -> RuleLedger {
        RuleLedger::default()
    }

    pub fn fix(&mut self, fixed: Vec<FixedChain>) {
        for chain in &fixed {
            self.total.replace(chain.id.0, 0, chain.head.len() + chain.tail.len());
        }
        self.fixed = fixed;
    }

    /// Returns the counts once everything is sent.
    pub fn total(&self) -> RuleCounts {
        self.total
    }

    pub fn marking(&self) -> usize {
        self.marking
    }

    pub fn fixed(&self) -> &[FixedChain] {
        &self.fixed
    }

    pub fn rules<'a>(&'a self, chain: &'a FixedChain) -> impl Iterator<Item = &'a Rule> {
        chain.rules(self.entries.values().flat_map(|entry| &entry.lines))
    }

    pub fn insert(&mut self, name: &ServicePortName, rules: ServiceRules) -> Chains {
        let ServiceRules { chains, lines } = rules;
        let entry = self.entry(&chains, lines);
        self.count(&LedgerEntry::default(), &entry);
        self.put(name, entry);
        chains
    }

    /// Returns the replaced entry. Adds changes of own chains to `nat`, and changed shared chains to `shared`.
    pub fn replace(
        &mut self,
        name: &ServicePortName,
        rules: ServiceRules,
        nat: &mut TableChange,
        shared: &mut BTreeSet<ChainId>,
    ) -> LedgerEntry {
        let ServiceRules { chains, lines } = rules;
        let after = self.entry(&chains, lines);
        let before = self.entries.remove(name).unwrap_or_default();
        let ids: BTreeSet<ChainId> = before.lines.iter().chain(&after.lines).map(|line| line.id).collect();
        shared.extend(ids.into_iter().filter(|id| !before.lines(*id).eq(after.lines(*id))));
        let gone = before.chains.iter().map(|(name, _)| name.as_str()).filter(|name| !chains.contains_key(*name));
        nat.remove.extend(gone.map(str::to_owned));
        for (chain, rules) in chains {
            let known = before.find(&chain);
            if known.is_none() {
                nat.absent.insert(chain.clone());
            }
            if known.flatten().is_none_or(|known| Some(Some(known)) != after.find(&chain)) {
                nat.write.insert(chain, rules);
            }
        }
        self.count(&before, &after);
        self.put(name, after);
        before
    }

    /// Restores the entry of a service port that is set aside. Its old and new chains may exist.
    pub fn restore(&mut self, name: &ServicePortName, before: LedgerEntry) {
        let after = self.entries.remove(name).unwrap_or_default();
        self.count(&after, &before);
        self.put(name, before);
        self.mark_uncertain(name, &after);
    }

    /// Marks chains as uncertain after a failed transaction: old and new ones may exist, with any rules.
    pub fn mark_uncertain(&mut self, name: &ServicePortName, before: &LedgerEntry) {
        let mut entry = self.entries.remove(name).unwrap_or_default();
        let names: BTreeSet<ChainName> = entry.chains.iter().chain(&before.chains).map(|(name, _)| *name).collect();
        entry.chains = names.into_iter().map(|name| (name, None)).collect();
        self.put(name, entry);
    }

    /// Returns the service ports of refused chains and rules, with the kernel's message. `None` if one belongs to no
    /// service port.
    pub fn owners(&self, refusals: &[RuleRefusal]) -> Option<BTreeMap<ServicePortName, String>> {
        let mut of_chains: HashMap<(Table, &str), Vec<&RuleRefusal>> = HashMap::new();
        refusals.iter().for_each(|one| of_chains.entry((one.table, &one.chain)).or_default().push(one));
        let (mut owners, mut owned) = (BTreeMap::new(), BTreeSet::new());
        for (name, entry) in &self.entries {
            let own = entry.chains.iter().filter_map(|(chain, _)| of_chains.get(&(Table::Nat, chain.as_str())));
            let own = own.flatten().copied();
            let lines = entry.lines.iter().filter_map(|line| {
                let text = Some(line.rule.to_string());
                of_chains.get(&line.id)?.iter().find(|one| one.rule == text).copied()
            });
            for refusal in own.chain(lines) {
                owned.insert(std::ptr::from_ref(refusal));
                owners.entry(name.clone()).or_insert_with(|| refusal.problem.clone());
            }
        }
        (owned.len() == refusals.len() && !refusals.is_empty()).then_some(owners)
    }

    pub fn compact(&mut self) {
        self.entries = self.entries.clone();
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    fn put(&mut self, name: &ServicePortName, entry: LedgerEntry) {
        if !entry.lines.is_empty() || !entry.chains.is_empty() {
            self.entries.insert(name.clone(), entry);
        }
    }

    fn entry(&self, chains: &Chains, lines: Vec<SharedRule>) -> LedgerEntry {
        let fingerprint = |rules: &Vec<Rule>| Some(self.fingerprint(rules));
        LedgerEntry {
            lines: lines.into(),
            chains: chains.iter().map(|(chain, rules)| (ChainName::of(chain), fingerprint(rules))).collect(),
            rules: chains.values().map(Vec::len).sum(),
            marking: chains.values().flatten().filter(|rule| rule.target.chain() == Some(names::MARK_MASQ)).count(),
        }
    }

    fn fingerprint(&self, rules: &[Rule]) -> NonZeroU64 {
        NonZeroU64::new(self.hash.hash_one(rules)).unwrap_or(NonZeroU64::MIN)
    }

    fn count(&mut self, before: &LedgerEntry, after: &LedgerEntry) {
        self.marking = self.marking + after.marking - before.marking;
        self.total.replace(Table::Nat, before.rules, after.rules);
        after.lines.iter().for_each(|line| self.total.replace(line.id.0, 0, 1));
        before.lines.iter().for_each(|line| self.total.replace(line.id.0, 1, 0));
    }
}
