//! A full sync: everything that is wanted against everything that stands.
//!
//! Service ports are rendered one after the other. Where the kernel takes new chains ahead of what leads to them, they are sent in
//! pieces and forgotten, so that the rules of a large cluster are never in memory together.

use std::collections::BTreeSet;
use std::thread;

use super::compare::{Comparing, Standing};
use super::{Engine, Failed, HasPacketFilter, Ledger, Place, Plans, Renderer, Report, Sent};
use crate::config::NodeAddresses;
use crate::kernel::iptables::IptablesError;
use crate::mode::iptables_family::rules::difference::{self, ensure_jumps, remove_other_modes};
use crate::mode::iptables_family::rules::found::{self, conntrack_frontends};
use crate::mode::iptables_family::rules::names;
use crate::plan::NodePlan;
use crate::ruleset::{Saved, SavedTable, Table, Transaction};

/// Rules of new chains that are sent together.
const PIECE: usize = 8000;

/// A full sync under way.
pub(super) struct FullSync<'a, R: Renderer<K>, K> {
    engine: &'a mut Engine<R, K>,
    ledger: Ledger,
    /// Chains that are not there, to which nothing leads yet.
    ahead: Transaction,
    /// A piece has been sent.
    is_ahead: bool,
    /// Everything else.
    rest: Transaction,
    report: Report,
}

impl<'a, R: Renderer<K>, K: HasPacketFilter> FullSync<'a, R, K> {
    pub(super) fn new(engine: &'a mut Engine<R, K>) -> FullSync<'a, R, K> {
        let (ahead, rest) = (Transaction::default(), Transaction::default());
        FullSync { engine, ledger: Ledger::new(), ahead, is_ahead: false, rest, report: Report::default() }
    }

    /// What was rendered so far.
    pub(super) fn into_ledger(self) -> Ledger {
        self.ledger
    }

    pub(super) fn run(
        &mut self,
        node: NodePlan,
        addresses: &NodeAddresses,
        plans: &dyn Plans,
    ) -> Result<Report, Failed<R::Error>> {
        let mut saved = self.engine.look().map_err(Failed::Rules)?;
        self.engine.renderer.begin(&saved);
        let node = self.engine.renderer.node(node, addresses, plans);
        let random_fully = self.engine.kernel.filter().random_fully();
        self.ledger.fix(self.engine.renderer.fixed(&node, random_fully));
        self.service_ports(&node, plans, &mut saved)?;
        self.engine.renderer.before_rules(&mut self.engine.kernel, &node, Some(&saved)).map_err(Failed::Objects)?;
        let jumps = R::jumps(&node);
        let fixed = self.ledger.fixed().iter().map(|chain| (chain.place, self.ledger.rules(chain)));
        self.engine.guard.expect(fixed, self.ledger.marking(), jumps.iter().copied());
        let jumps_made = ensure_jumps(self.engine.kernel.filter(), &jumps, &saved).map_err(Failed::Rules)?;
        self.fixed_chains(&saved).map_err(Failed::Rules)?;
        self.stale_chains(&saved).map_err(Failed::Rules)?;
        self.send_rest()?;
        let wanted: BTreeSet<Place> = self.ledger.fixed().iter().map(|chain| chain.place).collect();
        let is_wanted = |table, chain: &str| wanted.contains(&(table, chain));
        let (jumps_gone, chains_gone) =
            remove_other_modes(self.engine.kernel.filter(), &jumps, is_wanted, &saved).map_err(Failed::Rules)?;
        let changes = self.engine.renderer.after_rules(&mut self.engine.kernel, &node).map_err(Failed::Objects)?;
        let mut report = self.report;
        report.full = true;
        report.jumps = jumps_made + jumps_gone;
        report.removed_chains += chains_gone;
        report.changes = changes;
        report.total = self.ledger.total();
        self.engine.guard.mended(&report);
        let ledger = std::mem::replace(&mut self.ledger, Ledger::new());
        self.engine.sent = Some(Sent { node, ledger, unsure: BTreeSet::new(), failures: 0 });
        Ok(report)
    }

    /// Renders every service port, and takes the chains that are wanted out of `saved`.
    fn service_ports(&mut self, node: &R::Node, plans: &dyn Plans, saved: &mut Saved) -> Result<(), Failed<R::Error>> {
        let mut differing = thread::scope(|scope| {
            let mut comparing = Comparing::new(scope);
            self.render_all(node, plans, saved, &mut comparing)?;
            comparing.finish(self.engine.kernel.filter()).map_err(Failed::Rules)
        })?;
        self.rest.table(Table::Nat).write.append(&mut differing);
        Ok(())
    }

    fn render_all(
        &mut self,
        node: &R::Node,
        plans: &dyn Plans,
        saved: &mut Saved,
        comparing: &mut Comparing<'_, '_>,
    ) -> Result<(), Failed<R::Error>> {
        let mut rules_ahead = 0;
        for plan in plans.iter() {
            if self.engine.refused.contains_key(&plan.name) {
                continue;
            }
            let rules = self.engine.renderer.render(node, &plan.name, Some(&plan));
            for (chain, rules) in self.ledger.insert(&plan.name, rules) {
                let there = saved.tables.entry(Table::Nat).or_default();
                if let Some(present) = there.chains.remove(&chain) {
                    let standing = Standing { chain, present, rules };
                    comparing.add(self.engine.kernel.filter(), standing).map_err(Failed::Rules)?;
                } else {
                    rules_ahead += rules.len() + 1;
                    self.ahead.table(Table::Nat).absent.insert(chain.clone());
                    self.ahead.table(Table::Nat).write.insert(chain, rules);
                }
            }
            if rules_ahead >= PIECE && self.engine.kernel.filter().takes_chains_ahead() {
                self.send_ahead(saved)?;
                rules_ahead = 0;
            }
        }
        Ok(())
    }

    /// The first piece brings the fixed chains, still empty: its rules jump to some of them.
    fn send_ahead(&mut self, saved: &Saved) -> Result<(), Failed<R::Error>> {
        if !std::mem::replace(&mut self.is_ahead, true) {
            let mut targets = Transaction::default();
            for (table, chain) in self.ledger.fixed().iter().map(|chain| chain.place) {
                if saved.tables.get(&table).is_none_or(|saved| !saved.chains.contains_key(chain)) {
                    targets.table(table).write.insert(chain.to_owned(), Vec::new());
                }
            }
            self.engine.kernel.filter().commit(&targets).map_err(Failed::Rules)?;
        }
        let ahead = std::mem::take(&mut self.ahead);
        self.engine.kernel.filter().commit(&ahead).map_err(Failed::Rules)?;
        self.report.add(&Report::of(&ahead));
        Ok(())
    }

    fn send_rest(&mut self) -> Result<(), Failed<R::Error>> {
        let mut rest = std::mem::take(&mut self.rest);
        rest.append(std::mem::take(&mut self.ahead));
        self.engine.kernel.filter().commit(&rest).map_err(Failed::Rules)?;
        self.report.add(&Report::of(&rest));
        Ok(())
    }

    /// The chains that are there whatever the services. What a predecessor's lead somewhere is noted where they differ.
    fn fixed_chains(&mut self, saved: &Saved) -> Result<(), IptablesError> {
        let nothing = SavedTable::default();
        let kernel = self.engine.kernel.filter();
        let mut as_wanted = BTreeSet::new();
        for chain in self.ledger.fixed() {
            let (table, name) = chain.place;
            let present = saved.tables.get(&table).unwrap_or(&nothing).chains.get(name);
            let change = self.rest.table(table);
            if name == names::FIREWALL {
                difference::shared_with_kubelet(change, name, present, self.ledger.rules(chain));
                continue;
            }
            let stands = match present {
                Some(present) => kernel.holds(table, name, present, &mut self.ledger.rules(chain))?,
                None => {
                    change.absent.insert(name.to_owned());
                    false
                }
            };
            if stands {
                as_wanted.insert(chain.place);
            } else {
                change.write.insert(name.to_owned(), self.ledger.rules(chain).cloned().collect());
            }
        }
        let there = saved.tables.get(&Table::Nat).unwrap_or(&nothing);
        for name in found::CHAINS.into_iter().filter(|name| !as_wanted.contains(&(Table::Nat, *name))) {
            if let Some(present) = there.chains.get(name) {
                let rules = kernel.rules(Table::Nat, name, present)?;
                self.engine.previous_frontends.extend(conntrack_frontends(&rules));
            }
        }
        Ok(())
    }

    /// Chains of ours, of whatever mode, that nothing wants are emptied, and removed unless a rule of another program, or a jump
    /// of another mode, still leads to them: such a jump would make the kernel refuse the whole table.
    fn stale_chains(&mut self, saved: &Saved) -> Result<(), IptablesError> {
        let wanted: BTreeSet<Place> = self.ledger.fixed().iter().map(|chain| chain.place).collect();
        for (table, saved) in &saved.tables {
            let is_wanted = |chain: &str| wanted.contains(&(*table, chain));
            let is_stale = |chain: &&String| names::is_ours(*table, chain) && !is_wanted(chain);
            let mut stale: Vec<&String> = saved.chains.keys().filter(is_stale).collect();
            stale.sort_unstable();
            let led = saved.targets(|from| !is_wanted(from) && !names::is_ours(*table, from));
            let change = self.rest.table(*table);
            for chain in stale {
                let present = saved.chains.get(chain).map_or(&[][..], |rules| &rules[..]);
                if !led.contains(&chain[..]) {
                    change.remove.push(chain.clone());
                } else if !self.engine.kernel.filter().holds(*table, chain, present, &mut std::iter::empty())? {
                    change.write.insert(chain.clone(), Vec::new());
                }
            }
        }
        Ok(())
    }
}
