use std::collections::BTreeSet;
use std::thread;

use super::compare::{ChainComparison, PresentChain};
use super::render::{fixed_chains, service_rules};
use super::{ChainId, Engine, HasPacketFilter, Plans, Programmed, Renderer, RuleLedger, SyncFailure, SyncReport};
use crate::config::NodeAddresses;
use crate::kernel::iptables::IptablesError;
use crate::mode::iptables_family::rules::difference::{self, ensure_jumps, remove_other_modes};
use crate::mode::iptables_family::rules::names;
use crate::mode::iptables_family::rules::previous_frontends::{self, conntrack_frontends};
use crate::plan::NodePlan;
use crate::ruleset::{SavedTable, SavedTables, Table, Transaction};

const PIECE: usize = 8000;

pub(super) struct FullSync<'a, R: Renderer<K>, K> {
    engine: &'a mut Engine<R, K>,
    ledger: RuleLedger,
    /// New chains that are sent first, because no rule jumps to them yet.
    ahead: Transaction,
    is_ahead: bool,
    rest: Transaction,
    report: SyncReport,
}

impl<'a, R: Renderer<K>, K: HasPacketFilter> FullSync<'a, R, K> {
    pub(super) fn new(engine: &'a mut Engine<R, K>) -> FullSync<'a, R, K> {
        let (ahead, rest) = (Transaction::default(), Transaction::default());
        FullSync { engine, ledger: RuleLedger::new(), ahead, is_ahead: false, rest, report: SyncReport::default() }
    }

    pub(super) fn into_ledger(self) -> RuleLedger {
        self.ledger
    }

    pub(super) fn run(
        &mut self,
        node: NodePlan,
        addresses: &NodeAddresses,
        plans: &dyn Plans,
    ) -> Result<SyncReport, SyncFailure<R::Error>> {
        let mut saved = self.engine.read_tables().map_err(SyncFailure::Rules)?;
        self.engine.renderer.begin(&saved);
        let node = self.engine.renderer.node(node, addresses, plans);
        let random_fully = self.engine.kernel.filter().random_fully();
        self.ledger.fix(fixed_chains(&self.engine.renderer, &node, random_fully));
        self.service_ports(&node, plans, &mut saved)?;
        self.engine
            .renderer
            .before_rules(&mut self.engine.kernel, &node, Some(&saved))
            .map_err(SyncFailure::Objects)?;
        let jumps = R::jumps(&node);
        let fixed = self.ledger.fixed().iter().map(|chain| (chain.id, self.ledger.rules(chain)));
        self.engine.tamper_check.expect(fixed, self.ledger.marking(), jumps.iter().copied());
        let jumps_made = ensure_jumps(self.engine.kernel.filter(), &jumps, &saved).map_err(SyncFailure::Rules)?;
        self.fixed_chains(&saved).map_err(SyncFailure::Rules)?;
        self.stale_chains(&saved).map_err(SyncFailure::Rules)?;
        self.send_rest()?;
        let wanted: BTreeSet<ChainId> = self.ledger.fixed().iter().map(|chain| chain.id).collect();
        let is_wanted = |table, chain: &str| wanted.contains(&(table, chain));
        let (jumps_gone, chains_gone) =
            remove_other_modes(self.engine.kernel.filter(), &jumps, is_wanted, &saved).map_err(SyncFailure::Rules)?;
        let changes = self.engine.renderer.after_rules(&mut self.engine.kernel, &node).map_err(SyncFailure::Objects)?;
        let mut report = self.report;
        report.full = true;
        report.jumps = jumps_made + jumps_gone;
        report.removed_chains += chains_gone;
        report.changes = changes;
        report.total = self.ledger.total();
        self.engine.tamper_check.full_sync_done(&report);
        let ledger = std::mem::replace(&mut self.ledger, RuleLedger::new());
        self.engine.programmed = Some(Programmed { node, ledger, uncertain: BTreeSet::new(), failures: 0 });
        Ok(report)
    }

    /// Renders all service ports. Removes their chains from `saved`.
    fn service_ports(
        &mut self,
        node: &R::Node,
        plans: &dyn Plans,
        saved: &mut SavedTables,
    ) -> Result<(), SyncFailure<R::Error>> {
        let mut differing = thread::scope(|scope| {
            let mut comparing = ChainComparison::new(scope);
            self.render_all(node, plans, saved, &mut comparing)?;
            comparing.finish(self.engine.kernel.filter()).map_err(SyncFailure::Rules)
        })?;
        self.rest.table(Table::Nat).write.append(&mut differing);
        Ok(())
    }

    fn render_all(
        &mut self,
        node: &R::Node,
        plans: &dyn Plans,
        saved: &mut SavedTables,
        comparing: &mut ChainComparison<'_, '_>,
    ) -> Result<(), SyncFailure<R::Error>> {
        let mut rules_ahead = 0;
        for plan in plans.iter() {
            if self.engine.refused.contains_key(&plan.name) {
                continue;
            }
            let rules = service_rules(&mut self.engine.renderer, node, &plan.name, Some(&plan));
            for (chain, rules) in self.ledger.insert(&plan.name, rules) {
                let there = saved.tables.entry(Table::Nat).or_default();
                if let Some(present) = there.chains.remove(&chain) {
                    let present = PresentChain { chain, present, rules };
                    comparing.add(self.engine.kernel.filter(), present).map_err(SyncFailure::Rules)?;
                } else {
                    rules_ahead += rules.len() + 1;
                    self.ahead.table(Table::Nat).absent.insert(chain.clone());
                    self.ahead.table(Table::Nat).write.insert(chain, rules);
                }
            }
            if rules_ahead >= PIECE && self.engine.kernel.filter().supports_early_chains() {
                self.send_ahead(saved)?;
                rules_ahead = 0;
            }
        }
        for name in self.engine.renderer.take_unrendered() {
            if self.engine.refused.contains_key(&name) {
                continue;
            }
            let rules = service_rules(&mut self.engine.renderer, node, &name, None);
            self.ledger.insert(&name, rules);
        }
        Ok(())
    }

    /// Sends the chains in `ahead`; the first time also the missing fixed chains, empty, as targets of jumps.
    fn send_ahead(&mut self, saved: &SavedTables) -> Result<(), SyncFailure<R::Error>> {
        if !std::mem::replace(&mut self.is_ahead, true) {
            let mut targets = Transaction::default();
            for (table, chain) in self.ledger.fixed().iter().map(|chain| chain.id) {
                if saved.tables.get(&table).is_none_or(|saved| !saved.chains.contains_key(chain)) {
                    targets.table(table).write.insert(chain.to_owned(), Vec::new());
                }
            }
            self.engine.kernel.filter().commit(&targets).map_err(SyncFailure::Rules)?;
        }
        let ahead = std::mem::take(&mut self.ahead);
        self.engine.kernel.filter().commit(&ahead).map_err(SyncFailure::Rules)?;
        self.report.add(&SyncReport::of(&ahead));
        Ok(())
    }

    fn send_rest(&mut self) -> Result<(), SyncFailure<R::Error>> {
        let mut rest = std::mem::take(&mut self.rest);
        rest.append(std::mem::take(&mut self.ahead));
        self.engine.kernel.filter().commit(&rest).map_err(SyncFailure::Rules)?;
        self.report.add(&SyncReport::of(&rest));
        Ok(())
    }

    /// Adds changes of fixed chains, and records a previous proxy's frontends for conntrack.
    fn fixed_chains(&mut self, saved: &SavedTables) -> Result<(), IptablesError> {
        let nothing = SavedTable::default();
        let kernel = self.engine.kernel.filter();
        let mut as_wanted = BTreeSet::new();
        for chain in self.ledger.fixed() {
            let (table, name) = chain.id;
            let present = saved.tables.get(&table).unwrap_or(&nothing).chains.get(name);
            let change = self.rest.table(table);
            if name == names::FIREWALL {
                difference::shared_with_kubelet(change, name, present, self.ledger.rules(chain));
                continue;
            }
            let stands = match present {
                Some(present) => kernel.chain_equals(table, name, present, &mut self.ledger.rules(chain))?,
                None => {
                    change.absent.insert(name.to_owned());
                    false
                }
            };
            if stands {
                as_wanted.insert(chain.id);
            } else {
                change.write.insert(name.to_owned(), self.ledger.rules(chain).cloned().collect());
            }
        }
        let there = saved.tables.get(&Table::Nat).unwrap_or(&nothing);
        for name in previous_frontends::CHAINS.into_iter().filter(|name| !as_wanted.contains(&(Table::Nat, *name))) {
            if let Some(present) = there.chains.get(name) {
                let rules = kernel.rules(Table::Nat, name, present)?;
                self.engine.previous_frontends.extend(conntrack_frontends(&rules));
            }
        }
        Ok(())
    }

    /// Empties stale chains, and removes those without references. The kernel would refuse the whole transaction if a
    /// rule of another program or mode refers to a removed chain.
    fn stale_chains(&mut self, saved: &SavedTables) -> Result<(), IptablesError> {
        let wanted: BTreeSet<ChainId> = self.ledger.fixed().iter().map(|chain| chain.id).collect();
        for (table, saved) in &saved.tables {
            let is_wanted = |chain: &str| wanted.contains(&(*table, chain));
            let is_stale = |chain: &&String| names::is_ours(*table, chain) && !is_wanted(chain);
            let mut stale: Vec<&String> = saved.chains.keys().filter(is_stale).collect();
            stale.sort_unstable();
            let referenced = saved.targets(|from| !is_wanted(from) && !names::is_ours(*table, from));
            let change = self.rest.table(*table);
            for chain in stale {
                let present = saved.chains.get(chain).map_or(&[][..], |rules| &rules[..]);
                if !referenced.contains(&chain[..]) {
                    change.remove.push(chain.clone());
                } else if !self.engine.kernel.filter().chain_equals(*table, chain, present, &mut std::iter::empty())? {
                    change.write.insert(chain.clone(), Vec::new());
                }
            }
        }
        Ok(())
    }
}
