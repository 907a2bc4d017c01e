//! What was sent for each service port: enough to tell what changes. The rules of a large cluster's chains are tens of megabytes,
//! and are made anew from the state whenever they are needed; lines in shared chains stay, because those chains are written as a
//! whole.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;

use super::render::{FixedChain, Line, Place, ServiceRules};
use crate::kernel::iptables::Refusal;
use crate::mode::iptables_family::rules::names;
use crate::model::ServicePortName;
use crate::ruleset::RuleCounts;
use crate::ruleset::{Chains, Rule, Table, TableChange};

/// By service port.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<ServicePortName, Entry>,
    fixed: Vec<FixedChain>,
    total: RuleCounts,
    marking: usize,
    /// Its keys differ from process to process: nothing in a cluster can be made so that two lists of rules look the same.
    hash: RandomState,
}

/// One service port.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    lines: Box<[Line]>,
    /// Its own chains, sorted by name, and a fingerprint of the rules in each; `None` while the kernel may have others.
    chains: Box<[(ChainName, Option<NonZeroU64>)]>,
    rules: usize,
    /// Rules in its own chains that lead to `KUBE-MARK-MASQ`.
    marking: usize,
}

/// A chain's name, padded with zeros; the kernel takes none that is longer (`XT_EXTENSION_MAXNAMELEN`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ChainName([u8; 28]);

impl ChainName {
    fn of(name: &str) -> ChainName {
        let mut padded = [0; 28];
        padded.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
        ChainName(padded)
    }

    fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        self.0.get(..end).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
    }
}

impl Entry {
    fn find(&self, chain: &str) -> Option<Option<NonZeroU64>> {
        let at = self.chains.binary_search_by_key(&ChainName::of(chain), |(name, _)| *name).ok()?;
        self.chains.get(at).map(|(_, fingerprint)| *fingerprint)
    }

    /// Its own chains, as far as they are known to be there.
    pub fn standing_chains(&self) -> impl Iterator<Item = &str> {
        self.chains.iter().filter(|(_, fingerprint)| fingerprint.is_some()).map(|(chain, _)| chain.as_str())
    }

    fn lines(&self, place: Place) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.place == place)
    }
}

impl Ledger {
    /// Of no service port yet.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// Takes in the chains that are there whatever the services.
    pub fn fix(&mut self, fixed: Vec<FixedChain>) {
        for chain in &fixed {
            self.total.replace(chain.place.0, 0, chain.head.len() + chain.tail.len());
        }
        self.fixed = fixed;
    }

    /// Rules that stand when everything was sent.
    pub fn total(&self) -> RuleCounts {
        self.total
    }

    /// Rules in chains of service ports' own that lead to `KUBE-MARK-MASQ`.
    pub fn marking(&self) -> usize {
        self.marking
    }

    /// The chains that are there whatever the services.
    pub fn fixed(&self) -> &[FixedChain] {
        &self.fixed
    }

    /// The rules of one of these chains.
    pub fn rules<'a>(&'a self, chain: &'a FixedChain) -> impl Iterator<Item = &'a Rule> {
        chain.rules(self.entries.values().flat_map(|entry| &entry.lines))
    }

    /// Takes in a service port that it does not know, and hands back its own chains.
    pub fn insert(&mut self, name: &ServicePortName, rules: ServiceRules) -> Chains {
        let ServiceRules { chains, lines } = rules;
        let entry = self.entry(&chains, lines);
        self.count(&Entry::default(), &entry);
        self.put(name, entry);
        chains
    }

    /// A service port has these rules now. The changes of its own chains go into `nat`, and the shared chains in which its lines
    /// changed into `shared`. What it had before.
    pub fn replace(
        &mut self,
        name: &ServicePortName,
        rules: ServiceRules,
        nat: &mut TableChange,
        shared: &mut BTreeSet<Place>,
    ) -> Entry {
        let ServiceRules { chains, lines } = rules;
        let after = self.entry(&chains, lines);
        let before = self.entries.remove(name).unwrap_or_default();
        let places: BTreeSet<Place> = before.lines.iter().chain(&after.lines).map(|line| line.place).collect();
        shared.extend(places.into_iter().filter(|place| !before.lines(*place).eq(after.lines(*place))));
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

    /// A service port is set aside: it has again what it had before. Either's chains may be there.
    pub fn restore(&mut self, name: &ServicePortName, before: Entry) {
        let after = self.entries.remove(name).unwrap_or_default();
        self.count(&after, &before);
        self.put(name, before);
        self.distrust(name, &after);
    }

    /// A transaction that would have turned `before` into what a service port has now has failed: either's chains may be there,
    /// with whatever rules.
    pub fn distrust(&mut self, name: &ServicePortName, before: &Entry) {
        let mut entry = self.entries.remove(name).unwrap_or_default();
        let names: BTreeSet<ChainName> = entry.chains.iter().chain(&before.chains).map(|(name, _)| *name).collect();
        entry.chains = names.into_iter().map(|name| (name, None)).collect();
        self.put(name, entry);
    }

    /// The service ports that refused chains, or refused rules of shared chains, belong to, each with the problem; `None` if one
    /// belongs to no service port.
    pub fn owners(&self, refusals: &[Refusal]) -> Option<BTreeMap<ServicePortName, String>> {
        let mut of_chains: HashMap<(Table, &str), Vec<&Refusal>> = HashMap::new();
        refusals.iter().for_each(|one| of_chains.entry((one.table, &one.chain)).or_default().push(one));
        let (mut owners, mut owned) = (BTreeMap::new(), BTreeSet::new());
        for (name, entry) in &self.entries {
            let own = entry.chains.iter().filter_map(|(chain, _)| of_chains.get(&(Table::Nat, chain.as_str())));
            let own = own.flatten().copied();
            let lines = entry.lines.iter().filter_map(|line| {
                let text = Some(line.rule.to_string());
                of_chains.get(&line.place)?.iter().find(|one| one.rule == text).copied()
            });
            for refusal in own.chain(lines) {
                owned.insert(std::ptr::from_ref(refusal));
                owners.entry(name.clone()).or_insert_with(|| refusal.problem.clone());
            }
        }
        (owned.len() == refusals.len() && !refusals.is_empty()).then_some(owners)
    }

    /// Moves everything to new memory.
    pub fn compact(&mut self) {
        self.entries = self.entries.clone();
    }

    /// How many service ports have rules.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    fn put(&mut self, name: &ServicePortName, entry: Entry) {
        if !entry.lines.is_empty() || !entry.chains.is_empty() {
            self.entries.insert(name.clone(), entry);
        }
    }

    fn entry(&self, chains: &Chains, lines: Vec<Line>) -> Entry {
        let fingerprint = |rules: &Vec<Rule>| Some(self.fingerprint(rules));
        Entry {
            lines: lines.into(),
            chains: chains.iter().map(|(chain, rules)| (ChainName::of(chain), fingerprint(rules))).collect(),
            rules: chains.values().map(Vec::len).sum(),
            marking: chains.values().flatten().filter(|rule| rule.target.chain() == Some(names::MARK_MASQ)).count(),
        }
    }

    fn fingerprint(&self, rules: &[Rule]) -> NonZeroU64 {
        NonZeroU64::new(self.hash.hash_one(rules)).unwrap_or(NonZeroU64::MIN)
    }

    fn count(&mut self, before: &Entry, after: &Entry) {
        self.marking = self.marking + after.marking - before.marking;
        self.total.replace(Table::Nat, before.rules, after.rules);
        after.lines.iter().for_each(|line| self.total.replace(line.place.0, 0, 1));
        before.lines.iter().for_each(|line| self.total.replace(line.place.0, 1, 0));
    }
}
