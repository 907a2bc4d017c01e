//! Syncs one family's kernel objects: all desired objects against the kernel's (full), or the changes against what was
//! sent last (partial). A mode is a [`Renderer`].
//!
//! A failed partial transaction can be repeated whatever part of it was done: chains are written as a whole, and
//! removed whether or not they exist. The next sync is full if the kernel's state is uncertain: after a start, two
//! refusals, or the canary chain's deletion. So no update is lost (kubernetes/kubernetes#121362), and the successor of
//! a killed proxy sends only differences.
//!
//! A service port whose rules the kernel refuses is set aside, and the rest is sent.

mod compare;
mod full;
mod ledger;
pub mod render;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::rules::names;
use super::rules::tamper_check::TamperCheck;
use crate::config::NodeAddresses;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::mode::{Mode, Plans};
use crate::model::{Protocol, ServicePortName};
use crate::plan::stale_flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::{SavedTables, SyncReport, Table, Transaction};
use full::FullSync;
use ledger::{LedgerEntry, RuleLedger};
use render::{ChainId, FollowUp, Renderer, service_rules};

const ROUNDS: usize = 8;

/// A kernel adapter that writes the iptables tables, alone or with other objects.
pub trait HasPacketFilter {
    fn filter(&mut self) -> &mut dyn PacketFilter;
}

impl<K: PacketFilter> HasPacketFilter for K {
    fn filter(&mut self) -> &mut dyn PacketFilter {
        self
    }
}

pub struct Engine<R: Renderer<K>, K> {
    kernel: K,
    renderer: R,
    tamper_check: TamperCheck,
    /// The tables that [`Mode::look_ahead`] has read.
    ahead: Option<SavedTables>,
    /// `None` while the kernel's state is unknown.
    programmed: Option<Programmed<R::Node>>,
    previous_frontends: BTreeSet<(Protocol, Frontend)>,
    /// Service ports that are set aside, with the kernel's message.
    refused: BTreeMap<ServicePortName, String>,
}

struct Programmed<N> {
    node: N,
    ledger: RuleLedger,
    /// Shared chains that a failed transaction may have written.
    uncertain: BTreeSet<ChainId>,
    failures: u32,
}

enum SyncFailure<E> {
    Rules(IptablesError),
    Objects(E),
}

impl<E: From<IptablesError>> SyncFailure<E> {
    fn into_error(self) -> E {
        match self {
            SyncFailure::Rules(error) => error.into(),
            SyncFailure::Objects(error) => error,
        }
    }
}

impl<R: Renderer<K>, K: HasPacketFilter> Engine<R, K> {
    pub fn with(kernel: K, renderer: R) -> Engine<R, K> {
        Engine {
            kernel,
            renderer,
            tamper_check: TamperCheck::default(),
            ahead: None,
            programmed: None,
            previous_frontends: BTreeSet::new(),
            refused: BTreeMap::new(),
        }
    }

    pub fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    pub fn into_parts(self) -> (K, R) {
        (self.kernel, self.renderer)
    }

    pub fn renderer(&mut self) -> &mut R {
        &mut self.renderer
    }

    /// Reads the tables without the rules of service ports' own chains.
    fn read_tables(&mut self) -> Result<SavedTables, IptablesError> {
        if let Some(saved) = self.ahead.take() {
            let filter = self.kernel.filter();
            let generation = filter.generation()?;
            if filter.is_untouched(generation) {
                return Ok(saved);
            }
        }
        let is_unread = |table, chain: &str| names::is_ours(table, chain) && !R::READ.contains(&(table, chain));
        self.kernel.filter().list(&Table::ALL, &is_unread)
    }

    /// Sets the service ports of refused rules aside. Returns false if no single service port is the cause (all of
    /// several are refused, or a rule belongs to none), or if a service port is not part of this sync.
    fn set_aside(
        &mut self,
        error: &IptablesError,
        ledger: &RuleLedger,
        programmed: impl Fn(&ServicePortName) -> bool,
    ) -> bool {
        let Some(owners) = ledger.owners(error.refusals()) else { return false };
        if !owners.keys().all(programmed) {
            return false;
        }
        let others = ledger.len() - owners.len();
        if others == 0 && owners.len() + self.refused.len() > 1 {
            return false;
        }
        self.refused.extend(owners);
        true
    }

    /// Whether the chains still exist. If not, another program is at fault, and a full sync repairs them.
    fn still_exist(&mut self, before: &[(&ServicePortName, LedgerEntry)]) -> bool {
        let chains: Vec<&str> = before.iter().flat_map(|(_, entry)| entry.known_chains()).collect();
        self.kernel.filter().reference_counts(Table::Nat, &chains).is_ok_and(|uses| uses.iter().all(Option::is_some))
    }

    /// Tries a partial sync. `Ok(None)`: retry without the service ports that were set aside.
    fn try_partial(
        &mut self,
        programmed: &mut Programmed<R::Node>,
        changed: &BTreeMap<ServicePortName, Option<ServicePortPlan>>,
    ) -> Result<Option<SyncReport>, SyncFailure<R::Error>> {
        let mut transaction = Transaction::default();
        let mut replaced: Vec<(&ServicePortName, LedgerEntry)> = Vec::new();
        let marking = programmed.ledger.marking();
        for (name, plan) in changed.iter().filter(|(name, _)| !self.refused.contains_key(*name)) {
            let rules = service_rules(&mut self.renderer, &programmed.node, name, plan.as_ref());
            let nat = transaction.table(Table::Nat);
            replaced.push((name, programmed.ledger.replace(name, rules, nat, &mut programmed.uncertain)));
        }
        self.renderer.before_rules(&mut self.kernel, &programmed.node, None).map_err(SyncFailure::Objects)?;
        for chain in programmed.ledger.fixed().iter().filter(|chain| programmed.uncertain.contains(&chain.id)) {
            let (table, name) = chain.id;
            transaction.table(table).write.insert(name.to_owned(), programmed.ledger.rules(chain).cloned().collect());
        }
        if let Err(error) = self.kernel.filter().commit(&transaction) {
            let is_sent = |name: &ServicePortName| replaced.iter().any(|(programmed, _)| *programmed == name);
            if self.still_exist(&replaced) && self.set_aside(&error, &programmed.ledger, is_sent) {
                replaced.into_iter().for_each(|(name, before)| programmed.ledger.restore(name, before));
                return Ok(None);
            }
            programmed.failures += 1;
            replaced.iter().for_each(|(name, before)| programmed.ledger.mark_uncertain(name, before));
            return Err(SyncFailure::Rules(error));
        }
        for id in std::mem::take(&mut programmed.uncertain) {
            let rules = transaction.tables.get(&id.0).and_then(|change| change.write.get(id.1));
            self.tamper_check.chain_written(id, rules.into_iter().flatten());
        }
        self.tamper_check.marking(marking, programmed.ledger.marking());
        programmed.failures = 0;
        let mut report = SyncReport::of(&transaction);
        report.changes = self.renderer.after_rules(&mut self.kernel, &programmed.node).map_err(SyncFailure::Objects)?;
        report.total = programmed.ledger.total();
        Ok(Some(report))
    }
}

impl<R: Renderer<K>, K: HasPacketFilter> Mode for Engine<R, K> {
    type Error = R::Error;

    fn needs_full(&self) -> bool {
        self.programmed.is_none()
    }

    fn require_full_sync(&mut self) {
        self.programmed = None;
        self.tamper_check.require_full_sync();
    }

    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        let mut frontends = std::mem::take(&mut self.previous_frontends);
        frontends.append(&mut self.renderer.take_previous_frontends());
        frontends
    }

    fn relay_ports(&self, name: &ServicePortName) -> Vec<u16> {
        self.renderer.relay_ports(name)
    }

    fn refused(&self) -> &BTreeMap<ServicePortName, String> {
        &self.refused
    }

    fn depends_on(&self, node: &NodePlan, before: &NodeAddresses, after: &NodeAddresses) -> bool {
        self.renderer.depends_on(node, before, after)
    }

    fn detect_flush(&mut self) -> Result<Option<String>, R::Error> {
        let Some(programmed) = self.programmed.as_ref().filter(|programmed| programmed.failures == 0) else {
            return Ok(None);
        };
        if let Some(lost) = self.tamper_check.find_loss(self.kernel.filter())? {
            return Ok(Some(lost));
        }
        self.renderer.detect_flush(&mut self.kernel, &programmed.node)
    }

    /// Only with netlink, since a command's dump would keep every rule in memory.
    fn look_ahead(&mut self) {
        if self.programmed.is_none() && self.kernel.filter().supports_early_chains() {
            self.ahead = self.read_tables().ok();
        }
    }

    fn compact(&mut self) {
        if let Some(programmed) = &mut self.programmed {
            programmed.ledger.compact();
        }
    }

    fn full(&mut self, node: NodePlan, addresses: &NodeAddresses, plans: &dyn Plans) -> Result<SyncReport, R::Error> {
        self.refused.clear();
        let mut round = 0;
        loop {
            round += 1;
            self.require_full_sync();
            let mut sync = FullSync::new(self);
            let failed = match sync.run(node.clone(), addresses, plans) {
                Ok(report) => return Ok(report),
                Err(failed) => failed,
            };
            let ledger = sync.into_ledger();
            match &failed {
                SyncFailure::Rules(error) if round < ROUNDS && self.set_aside(error, &ledger, |_| true) => {}
                _ => return Err(failed.into_error()),
            }
        }
    }

    fn partial(&mut self, changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>) -> Result<SyncReport, R::Error> {
        let Some(mut programmed) = self.programmed.take() else { return Ok(SyncReport::default()) };
        changed.keys().for_each(|name| drop(self.refused.remove(name)));
        let result = loop {
            match self.try_partial(&mut programmed, &changed) {
                Ok(None) => {}
                Ok(Some(report)) => break Ok(report),
                Err(failed) => break Err(failed),
            }
        };
        // After two refusals the ledger may not match the kernel.
        let stands = match &result {
            Ok(_) => true,
            Err(SyncFailure::Rules(error)) => programmed.failures < 2 || !error.is_refusal(),
            Err(SyncFailure::Objects(_)) => false,
        };
        self.programmed = Some(programmed).filter(|_| stands);
        result.map_err(SyncFailure::into_error)
    }

    fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, R::Error> {
        if self.programmed.is_none() {
            return Ok(None);
        }
        let FollowUp { next, full } = self.renderer.follow_up(&mut self.kernel, now)?;
        if full {
            self.require_full_sync();
        }
        Ok(next)
    }
}
