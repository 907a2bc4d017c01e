//! Brings one family's kernel objects to what is wanted, in every mode: the whole state against what stands (full), or what
//! changed against what was sent last (partial). A mode is a [`Renderer`]; this is everything else.
//!
//! A partial transaction that failed is repeated, whatever it had done: chains are written as a whole, and removed whether they are
//! there or not. After anything that makes the kernel's state uncertain – a transaction that is refused twice, a lost canary, a
//! start – the next sync is a full one, computed from the whole state. So no update can get lost between a failed sync and the
//! next (kubernetes/kubernetes#121362), and a killed proxy's successor sends only what differs.
//!
//! A rule that the kernel refuses costs its service port alone: that one is set aside, and the rest is sent.

mod compare;
mod full;
mod ledger;
pub mod render;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::rules::guard::Guard;
use super::rules::names;
use crate::config::NodeAddresses;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::mode::{Mode, Plans};
use crate::model::{Protocol, ServicePortName};
use crate::plan::flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::{Report, Saved, Table, Transaction};
use full::FullSync;
use ledger::{Entry, Ledger};
use render::{FollowUp, Place, Renderer};

/// How often a sync is begun anew without the service ports whose rules were refused. Netlink names all of them at once, a command
/// one at a time.
const ROUNDS: usize = 8;

/// A kernel adapter that writes the iptables tables, alone or besides other objects.
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
    guard: Guard,
    /// What was read in advance.
    ahead: Option<Saved>,
    /// What was sent last; `None` while the kernel's state is not known.
    sent: Option<Sent<R::Node>>,
    previous_frontends: BTreeSet<(Protocol, Frontend)>,
    /// Service ports whose rules the kernel refuses, and why. They are tried again when they change, and by full syncs.
    refused: BTreeMap<ServicePortName, String>,
}

struct Sent<N> {
    node: N,
    ledger: Ledger,
    /// Shared chains that failed transactions would have written, or did.
    unsure: BTreeSet<Place>,
    failures: u32,
}

/// What stopped a sync.
enum Failed<E> {
    /// Rules: they can be sent again.
    Rules(IptablesError),
    /// Other objects.
    Objects(E),
}

impl<E: From<IptablesError>> Failed<E> {
    fn into_error(self) -> E {
        match self {
            Failed::Rules(error) => error.into(),
            Failed::Objects(error) => error,
        }
    }
}

impl<R: Renderer<K>, K: HasPacketFilter> Engine<R, K> {
    /// Knows nothing of the kernel's state yet.
    pub fn with(kernel: K, renderer: R) -> Engine<R, K> {
        Engine {
            kernel,
            renderer,
            guard: Guard::default(),
            ahead: None,
            sent: None,
            previous_frontends: BTreeSet::new(),
            refused: BTreeMap::new(),
        }
    }

    /// The kernel adapter, for tests.
    pub fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// The kernel adapter and the mode's own part, which [`Engine::with`] puts together.
    pub fn into_parts(self) -> (K, R) {
        (self.kernel, self.renderer)
    }

    /// The mode's own part.
    pub fn renderer(&mut self) -> &mut R {
        &mut self.renderer
    }

    /// What stands now, but for the rules of service ports' own chains.
    fn look(&mut self) -> Result<Saved, IptablesError> {
        if let Some(saved) = self.ahead.take() {
            let filter = self.kernel.filter();
            let generation = filter.generation()?;
            if filter.is_untouched(generation) {
                return Ok(saved);
            }
        }
        let is_unread = |table, chain: &str| names::is_ours(table, chain) && !R::READ.contains(&(table, chain));
        self.kernel.filter().look(&Table::ALL, &is_unread)
    }

    /// Puts the service ports aside that refused rules belong to. Not if that would be all there are, or one rule belongs to none:
    /// then it is not for a service port that the kernel refuses. Nor if one is not `sent` by this sync: to leave that out would
    /// change nothing.
    fn set_aside(&mut self, error: &IptablesError, ledger: &Ledger, sent: impl Fn(&ServicePortName) -> bool) -> bool {
        let Some(owners) = ledger.owners(error.refusals()) else { return false };
        if !owners.keys().all(sent) {
            return false;
        }
        let others = ledger.len() - owners.len();
        if others == 0 && owners.len() + self.refused.len() > 1 {
            return false;
        }
        self.refused.extend(owners);
        true
    }

    /// Whether the chains that service ports had are there. Where another program has removed one, a refusal is none of the service
    /// port's fault, and a full sync mends it.
    fn still_stand(&mut self, before: &[(&ServicePortName, Entry)]) -> bool {
        let chains: Vec<&str> = before.iter().flat_map(|(_, entry)| entry.standing_chains()).collect();
        self.kernel.filter().uses(Table::Nat, &chains).is_ok_and(|uses| uses.iter().all(Option::is_some))
    }

    /// `Ok(None)`: service ports were set aside, and it is to be tried without them.
    fn try_partial(
        &mut self,
        sent: &mut Sent<R::Node>,
        changed: &BTreeMap<ServicePortName, Option<ServicePortPlan>>,
    ) -> Result<Option<Report>, Failed<R::Error>> {
        let mut transaction = Transaction::default();
        let mut replaced: Vec<(&ServicePortName, Entry)> = Vec::new();
        let marking = sent.ledger.marking();
        for (name, plan) in changed.iter().filter(|(name, _)| !self.refused.contains_key(*name)) {
            let rules = self.renderer.render(&sent.node, name, plan.as_ref());
            let nat = transaction.table(Table::Nat);
            replaced.push((name, sent.ledger.replace(name, rules, nat, &mut sent.unsure)));
        }
        self.renderer.before_rules(&mut self.kernel, &sent.node, None).map_err(Failed::Objects)?;
        for chain in sent.ledger.fixed().iter().filter(|chain| sent.unsure.contains(&chain.place)) {
            let (table, name) = chain.place;
            transaction.table(table).write.insert(name.to_owned(), sent.ledger.rules(chain).cloned().collect());
        }
        if let Err(error) = self.kernel.filter().commit(&transaction) {
            let is_sent = |name: &ServicePortName| replaced.iter().any(|(sent, _)| *sent == name);
            if self.still_stand(&replaced) && self.set_aside(&error, &sent.ledger, is_sent) {
                replaced.into_iter().for_each(|(name, before)| sent.ledger.restore(name, before));
                return Ok(None);
            }
            sent.failures += 1;
            replaced.iter().for_each(|(name, before)| sent.ledger.distrust(name, before));
            return Err(Failed::Rules(error));
        }
        for place in std::mem::take(&mut sent.unsure) {
            let rules = transaction.tables.get(&place.0).and_then(|change| change.write.get(place.1));
            self.guard.rewritten(place, rules.into_iter().flatten());
        }
        self.guard.marking(marking, sent.ledger.marking());
        sent.failures = 0;
        let mut report = Report::of(&transaction);
        report.changes = self.renderer.after_rules(&mut self.kernel, &sent.node).map_err(Failed::Objects)?;
        report.total = sent.ledger.total();
        Ok(Some(report))
    }
}

impl<R: Renderer<K>, K: HasPacketFilter> Mode for Engine<R, K> {
    type Error = R::Error;

    fn needs_full(&self) -> bool {
        self.sent.is_none()
    }

    fn require_full_sync(&mut self) {
        self.sent = None;
        self.guard.require_full_sync();
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
        // After a transaction that failed either state may be there.
        let Some(sent) = self.sent.as_ref().filter(|sent| sent.failures == 0) else { return Ok(None) };
        if let Some(lost) = self.guard.lost(self.kernel.filter())? {
            return Ok(Some(lost));
        }
        self.renderer.lost(&mut self.kernel, &sent.node)
    }

    /// A command's dump of the tables would hold every rule in memory, for as long as the source takes.
    fn look_ahead(&mut self) {
        if self.sent.is_none() && self.kernel.filter().takes_chains_ahead() {
            self.ahead = self.look().ok();
        }
    }

    fn compact(&mut self) {
        if let Some(sent) = &mut self.sent {
            sent.ledger.compact();
        }
    }

    fn full(&mut self, node: NodePlan, addresses: &NodeAddresses, plans: &dyn Plans) -> Result<Report, R::Error> {
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
                Failed::Rules(error) if round < ROUNDS && self.set_aside(error, &ledger, |_| true) => {}
                _ => return Err(failed.into_error()),
            }
        }
    }

    fn partial(&mut self, changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>) -> Result<Report, R::Error> {
        let Some(mut sent) = self.sent.take() else { return Ok(Report::default()) };
        changed.keys().for_each(|name| drop(self.refused.remove(name)));
        let result = loop {
            match self.try_partial(&mut sent, &changed) {
                Ok(None) => {}
                Ok(Some(report)) => break Ok(report),
                Err(failed) => break Err(failed),
            }
        };
        // What is refused twice was computed from something else than what stands; of other objects nothing is known.
        let stands = match &result {
            Ok(_) => true,
            Err(Failed::Rules(error)) => sent.failures < 2 || !error.is_refusal(),
            Err(Failed::Objects(_)) => false,
        };
        self.sent = Some(sent).filter(|_| stands);
        result.map_err(Failed::into_error)
    }

    fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, R::Error> {
        if self.sent.is_none() {
            return Ok(None);
        }
        let FollowUp { next, full } = self.renderer.follow_up(&mut self.kernel, now)?;
        if full {
            self.require_full_sync();
        }
        Ok(next)
    }
}
