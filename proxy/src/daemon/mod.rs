//! The running proxy: waits for changes, the clock and other programs' writes, and syncs.

mod failures;
mod health_checks;
mod pacer;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::block_in_place;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use tracing::{debug, error, info, warn};

use crate::config::Config;
use crate::events::Recorder;
use crate::health::{Applied, HealthState, is_eligible};
use crate::kernel::conntrack::Conntrack;
use crate::kernel::watch::Watch;
use crate::kernel::{addresses, memory};
use crate::metrics::Metrics;
use crate::mode::Mode;
use crate::mode::family::FamilyProxy;
use crate::source::{Batch, Change, Source, SourceError};
use failures::Failures;
pub use health_checks::HealthChecks;
use pacer::Pacer;

/// How long the nft announcements of one change are gathered before the canary is looked at.
const SETTLE: Duration = Duration::from_millis(20);
/// After a failure, what goes on beside syncs is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// The whole state is compared with the kernel's at least so often (upstream's period of full syncs).
const FULL_SYNC: Duration = Duration::from_secs(3600);

/// Work that goes on beside syncs until it is done: says when to come again.
pub type Chore = Box<dyn FnMut(std::time::Instant) -> anyhow::Result<Option<std::time::Instant>>>;

/// A running proxy.
pub struct Daemon<S, M, C> {
    /// Where objects come from.
    pub source: S,
    /// One proxy per address family.
    pub families: Vec<FamilyProxy<M>>,
    /// Other programs' writes.
    pub watch: Watch,
    /// The node's addresses.
    pub addresses: addresses::Reader,
    /// Flows that outlive a change of rules.
    pub conntrack: C,
    /// What `/healthz` tells.
    pub health: HealthState,
    /// Listeners of the `healthCheckNodePort`s.
    pub health_checks: HealthChecks,
    /// What is counted and measured.
    pub metrics: Arc<Metrics>,
    /// Takes what an operator must see.
    pub events: Recorder,
    /// Settings.
    pub config: Config,
    /// What is to be done when the rules stand.
    pub chore: Option<Chore>,
}

enum Event {
    Batch(Result<Option<Batch>, SourceError>),
    SyncDue,
    Tick,
    Foreign,
    FollowUp,
    Stop,
}

impl<S: Source, M: Mode, C: Conntrack> Daemon<S, M, C> {
    /// Runs until SIGTERM or SIGINT. The rules stay: an upgrade must not drop traffic.
    ///
    /// # Errors
    /// When the source cannot go on.
    pub async fn run(mut self) -> Result<(), SourceError> {
        let mut terminate = stop_signal(SignalKind::terminate());
        let mut interrupt = stop_signal(SignalKind::interrupt());
        let mut pacer = Pacer::new(self.config.min_sync_period, self.config.sync_period, Instant::now());
        let mut tick = interval_at(Instant::now() + self.config.sync_period, self.config.sync_period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next_full = Instant::now() + FULL_SYNC;
        let mut seen = Applied::default();
        let mut synced_once = false;
        let mut known = false;
        let mut failures = Failures::default();
        let mut follow_up: Option<Instant> = None;
        loop {
            let due = known && self.families.iter().any(FamilyProxy::is_due);
            let event = tokio::select! {
                biased;
                () = &mut terminate => Event::Stop,
                () = &mut interrupt => Event::Stop,
                batch = self.source.next() => Event::Batch(batch),
                () = self.watch.changed(), if synced_once => Event::Foreign,
                () = sleep_until(pacer.next()), if due => Event::SyncDue,
                () = sleep_until(follow_up.unwrap_or_else(Instant::now)), if follow_up.is_some() => Event::FollowUp,
                _ = tick.tick(), if known => Event::Tick,
            };
            match event {
                Event::Stop => {
                    info!("stopping; the rules stay in place");
                    return Ok(());
                }
                Event::Batch(batch) => {
                    let Some(batch) = batch? else { return Ok(()) };
                    seen.manifests = batch.resource_version.clone().or(seen.manifests);
                    seen.api.advance(&batch.resource_versions);
                    self.take(&batch);
                    if !known && !batch.partial {
                        known = true;
                        // What led to what was there already is older than the proxy's being able to do anything.
                        let now = Timestamp::now();
                        self.families.iter_mut().for_each(|family| family.count_triggers_since(now));
                    }
                    if known {
                        let due = self.families.iter().filter(|family| family.is_due() && !batch.changes.is_empty());
                        due.for_each(|family| self.metrics.queued(family.family()));
                        self.tell_what_is_due(&seen);
                    }
                    continue;
                }
                Event::Tick => {
                    if Instant::now() >= next_full {
                        self.families.iter_mut().for_each(FamilyProxy::doubt);
                        next_full = Instant::now() + FULL_SYNC;
                    }
                    self.check_canary();
                }
                Event::Foreign => {
                    tokio::time::sleep(SETTLE).await;
                    self.watch.forget();
                    if !self.check_canary() {
                        continue;
                    }
                }
                Event::FollowUp => {
                    follow_up = self.follow_up();
                    continue;
                }
                Event::SyncDue => {}
            }
            if self.sync(&mut failures) {
                pacer.succeeded(Instant::now());
                self.metrics.nothing_pending();
                synced_once = true;
                follow_up = self.follow_up();
            } else {
                pacer.failed(Instant::now());
            }
            self.tell_what_is_due(&seen);
            self.health_checks.sync(&self.families, &self.events);
        }
    }

    fn take(&mut self, batch: &Batch) {
        for family in &mut self.families {
            family.apply(&batch.changes);
        }
        for change in &batch.changes {
            if let Change::Node(name, Some(node)) = change
                && *name == self.config.node_name
            {
                self.health.set_node_eligible(is_eligible(node));
            }
        }
        self.metrics.changed(batch);
    }

    /// Tells which families have something to do, and which are up to date with everything that was seen.
    fn tell_what_is_due(&self, seen: &Applied) {
        for family in &self.families {
            if family.is_due() {
                self.health.queued(family.family());
            } else {
                self.health.synced(family.family(), seen);
            }
        }
    }

    /// Whether a canary was lost, and so a full sync is due.
    fn check_canary(&mut self) -> bool {
        let mut lost = false;
        // All at once: each time that a thread says that it will block, others take its work over.
        let looks: Vec<_> = block_in_place(|| self.families.iter_mut().map(FamilyProxy::lost).collect());
        for (family, look) in self.families.iter_mut().zip(looks) {
            match look {
                Ok(None) => {}
                Ok(Some(what)) => {
                    warn!(family = %family.family(), "{what} is gone: somebody flushed the kernel's tables; writing them anew");
                    family.doubt();
                    lost = true;
                }
                Err(error) => warn!(family = %family.family(), %error, "cannot look whether anything was flushed"),
            }
        }
        lost
    }

    /// Syncs every family that has something to do; whether all succeeded.
    fn sync(&mut self, failures: &mut Failures) -> bool {
        let addresses = self.addresses.read();
        let mut all = true;
        let mut full = false;
        for family in &mut self.families {
            match &addresses {
                Ok(addresses) => family.set_addresses(addresses),
                Err(error) => warn!(%error, "cannot read the node's addresses; going on with those from before"),
            }
            if !family.is_due() {
                continue;
            }
            let started = Instant::now();
            let whole = family.needs_full();
            full |= whole;
            let result = block_in_place(|| family.sync());
            let number = family.family();
            self.metrics.took(number, whole, started.elapsed());
            match result {
                Ok(report) => {
                    failures.forget(number);
                    self.metrics.synced(number, &report);
                    self.metrics.standing(number, family.tally());
                    family.take_triggers().for_each(|time| self.metrics.programmed(number, SystemTime::from(time)));
                    if report.is_empty() {
                        debug!(family = %number, "in sync");
                    } else {
                        info!(
                            family = %number,
                            full = report.full,
                            rules = report.rules,
                            removed_chains = report.removed_chains,
                            jumps = report.jumps,
                            changes = report.changes,
                            took = ?started.elapsed(),
                            "synced"
                        );
                    }
                }
                Err(error) => {
                    error!(family = %number, %error, "sync failed; will be tried again");
                    self.metrics.failed(number, whole);
                    failures.failed(number, &error.to_string(), &self.events);
                    all = false;
                }
            }
        }
        self.delete_stale_flows();
        if full {
            memory::give_back();
        }
        all
    }

    /// Looks after what goes on beside syncs; when to come again.
    fn follow_up(&mut self) -> Option<Instant> {
        let now = Instant::now().into_std();
        let mut next = Vec::new();
        for family in &mut self.families {
            match block_in_place(|| family.follow_up(now)) {
                Ok(again) => next.extend(again),
                Err(error) => {
                    warn!(family = %family.family(), %error, "cannot look after what drains; will be tried again");
                    next.push(now + AGAIN);
                }
            }
        }
        if let Some(chore) = &mut self.chore {
            match block_in_place(|| chore(now)) {
                Ok(Some(again)) => next.push(again),
                Ok(None) => {
                    self.chore = None;
                    info!("what another mode left is gone");
                }
                Err(error) => {
                    warn!(%error, "cannot take away what another mode left; will be tried again");
                    next.push(now + AGAIN);
                }
            }
        }
        next.into_iter().min().map(Instant::from_std)
    }

    /// Deletes conntrack entries that lead where no rule leads any more. What fails is tried again after the next sync:
    /// the rules themselves are in place, so it does not hold up anything.
    fn delete_stale_flows(&mut self) {
        for family in &mut self.families {
            let Some(flows) = family.flows_due() else { continue };
            let number = family.family();
            let started = Instant::now();
            let deleted = if flows.is_empty() {
                Ok(0)
            } else {
                block_in_place(|| self.conntrack.delete(number, &|flow| flows.is_stale(flow)))
            };
            match deleted {
                Ok(deleted) => {
                    family.flows_judged(&flows);
                    self.metrics.conntrack(number, deleted, started.elapsed());
                    if deleted > 0 {
                        info!(family = %number, deleted, "conntrack entries of stale flows deleted");
                    }
                }
                Err(error) => {
                    warn!(family = %number, %error, "cannot look through conntrack's entries: old flows may go on")
                }
            }
        }
    }
}

/// Resolves at the first signal of this kind; never, where the kernel refuses the handler.
fn stop_signal(kind: SignalKind) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        match signal(kind) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    })
}
