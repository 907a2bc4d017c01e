//! Each address family has its own thread: a failing or hanging kernel delays only this family.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, info, warn};

use super::HealthChecks;
use super::deleted_rules::{DeletedRules, DeletionLine};
use super::disputes::Disputes;
use super::failures::SyncFailures;
use super::flows::{FlowCleanup, filters};
use super::ignored_annotations::ReportedAnnotations;
use super::other_machines::OtherMachines;
use super::refusals::Refusals;
use super::schedule::Schedule;
use super::spared_ranges::SparedRanges;
use crate::config::Config;
use crate::events::Recorder;
use crate::habits::{self, Habit};
use crate::health::{AppliedVersions, HealthState};
use crate::kernel::addresses::Addresses;
use crate::kernel::conntrack::Conntrack;
use crate::kernel::memory::{self, Waste};
use crate::kernel::watch::TableWatch;
use crate::metrics::{Metrics, Pending};
use crate::mode::Mode;
use crate::mode::family::FamilyProxy;
use crate::model::{Batch, Family, Flow};
use crate::mutants;
use crate::ruleset::SyncReport;

const AGAIN: Duration = Duration::from_secs(10);
/// Longest wait for other families before listening to other programs' writes, which slows large syncs.
const QUIET: Duration = Duration::from_secs(5);

pub struct Runner<M, C> {
    pub family: FamilyProxy<M>,
    pub watch: TableWatch,
    pub addresses: Box<dyn Addresses + Send>,
    pub conntrack: C,
}

#[derive(Clone)]
pub(super) struct RunnerContext {
    pub(super) config: Arc<Config>,
    pub(super) health: HealthState,
    pub(super) health_checks: Arc<Mutex<HealthChecks>>,
    pub(super) disputes: Arc<Mutex<Disputes>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Recorder,
    pub(super) synced: Arc<watch::Sender<Vec<Family>>>,
    pub(super) families: usize,
}

/// Batches wait in memory while the runner is busy; [`FirstPieces`](super::first_pieces) bounds them before the first sync, and
/// command timeouts afterwards.
#[derive(Clone)]
pub(super) struct BatchDelivery {
    pub(super) batch: Arc<Batch>,
    pub(super) pending: Arc<Pending>,
    /// This batch completes the first state: syncs may begin.
    pub(super) complete: bool,
    /// Dropped when the batch is applied.
    pub(super) place: Option<Arc<OwnedSemaphorePermit>>,
}

struct RunningFamily<M, C> {
    runner: Runner<M, C>,
    shared: RunnerContext,
    schedule: Schedule,
    failures: SyncFailures,
    deleted_rules: DeletedRules,
    refusals: Refusals,
    other_machines: OtherMachines,
    ignored_annotations: ReportedAnnotations,
    spared_ranges: SparedRanges,
    cleanup: Option<FlowCleanup>,
    seen: AppliedVersions,
    pending: Vec<Arc<Pending>>,
    /// Batches that are applied, but not synced. Freed after the sync: freeing a large cluster's objects takes time.
    taken: Vec<Arc<Batch>>,
    complete: bool,
    first_synced: Option<Instant>,
    waste: Waste,
}

impl<M: Mode + Send, C: Conntrack> Runner<M, C> {
    /// Runs until the inbox is closed; then a blocking call may have outlived the runtime, and a timer would panic.
    pub(super) async fn run(self, shared: RunnerContext, mut inbox: UnboundedReceiver<BatchDelivery>) {
        let schedule = Schedule::new(shared.config.min_sync_period, shared.config.sync_period, Instant::now());
        let mut running = RunningFamily {
            failures: SyncFailures::new(self.family.family()),
            deleted_rules: DeletedRules::default(),
            refusals: Refusals::default(),
            other_machines: OtherMachines::default(),
            ignored_annotations: ReportedAnnotations::default(),
            spared_ranges: SparedRanges::default(),
            cleanup: None,
            runner: self,
            shared,
            schedule,
            seen: AppliedVersions::default(),
            pending: Vec::new(),
            taken: Vec::new(),
            complete: false,
            first_synced: None,
            waste: Waste::default(),
        };
        let mut synced = running.shared.synced.subscribe();
        running.blocking(|runner| runner.family.look_ahead());
        loop {
            let next = running.schedule.next(running.runner.family.is_due());
            // A conntrack cleanup continues at once, with new events between its pieces.
            let next = if running.cleanup.is_some() { Instant::now() } else { next };
            let (first_synced, families) = (running.first_synced, running.shared.families);
            let has_listened = running.runner.watch.listens();
            let listens = first_synced.is_some() && has_listened && !running.schedule.is_check_scheduled();
            let hears = first_synced.is_some()
                && !running.schedule.is_read_scheduled()
                && !habits::has(Habit::AddressesAreNotWatched);
            tokio::select! {
                delivery = inbox.recv() => match delivery {
                    Some(delivery) => running.take(delivery),
                    None => return,
                },
                () = running.runner.watch.changed(), if listens => running.schedule.check_soon(Instant::now()),
                () = poll_fn(|context| running.runner.addresses.poll_changed(context)), if hears => {
                    running.schedule.read_addresses_soon(Instant::now());
                }
                () = quiet(&mut synced, families, first_synced), if !has_listened => running.listen(),
                () = sleep_until(next), if running.complete => {}
            }
            while let Ok(delivery) = inbox.try_recv() {
                running.take(delivery);
            }
            if running.complete {
                running.work();
            }
            if inbox.is_closed() {
                return;
            }
        }
    }
}

async fn quiet(synced: &mut watch::Receiver<Vec<Family>>, families: usize, first_synced: Option<Instant>) {
    let Some(first_synced) = first_synced else { return std::future::pending().await };
    tokio::select! {
        _ = synced.wait_for(|synced| synced.len() >= families) => {}
        () = sleep_until(first_synced + QUIET) => {}
    }
}

impl<M: Mode + Send, C: Conntrack> RunningFamily<M, C> {
    /// Listens to other programs' writes; checks for writes since the first sync.
    fn listen(&mut self) {
        let family = self.runner.family.family();
        if let Err(error) = self.runner.watch.listen() {
            warn!(%family, %error, "cannot listen to other programs' writes: they are noticed only once per sync period");
        }
        self.schedule.check_soon(Instant::now());
    }

    fn take(&mut self, delivery: BatchDelivery) {
        let BatchDelivery { batch, pending, complete, place: _place } = delivery;
        let is_replaced = self.seen.recalled.is_some() && batch.recalled.is_none();
        self.seen.recalled = batch.recalled;
        self.seen.manifests = batch.resource_version.clone().or(self.seen.manifests.take());
        self.seen.api.advance(&batch.resource_versions);
        let family = &mut self.runner.family;
        family.apply(&batch.changes);
        if is_replaced {
            // Judged anew by the API's objects; after the sync, if one is due.
            let flows = if family.is_due() { None } else { family.stale_flows() };
            self.cleanup = FlowCleanup::after_sync(None, flows);
        }
        if complete && !self.complete {
            self.complete = true;
            // Changes before the first sync do not count as the proxy's latency.
            family.count_triggers_since(Timestamp::now());
        }
        if family.is_due() {
            self.pending.push(pending);
            if self.complete && !batch.changes.is_empty() {
                self.shared.metrics.queued(family.family());
            }
            if self.complete {
                self.taken.push(batch);
            }
        }
        if self.complete {
            self.report_due();
        }
    }

    /// Runs each due job once, so that none starves the others.
    fn work(&mut self) {
        if self.schedule.take_repair(Instant::now()) {
            self.runner.family.require_full_sync();
        }
        if self.schedule.are_addresses_due(Instant::now()) {
            self.read_addresses();
            self.report_due();
        }
        if self.runner.family.is_due() && self.schedule.may_sync(Instant::now()) {
            self.sync();
        }
        self.delete_stale_flows();
        if self.schedule.is_check_due(Instant::now()) {
            self.check_rules();
        }
        if self.schedule.take_tick(Instant::now()) {
            if !self.schedule.is_repair_scheduled() {
                self.check_rules();
            }
            self.read_addresses();
            // Lists that arrive in pieces, and reads of whole tables, leave their holes after the first sync.
            self.waste.give_back(|| self.runner.family.compact());
            if self.schedule.take_full(Instant::now()) {
                self.runner.family.require_full_sync();
            }
        }
        if self.schedule.take_follow_up(Instant::now()) {
            self.follow_up();
        }
    }

    /// `/livez` reports how long the work waits for the kernel or a command.
    fn blocking<T>(&mut self, work: impl FnOnce(&mut Runner<M, C>) -> T) -> T {
        let _busy = self.shared.health.busy(self.runner.family.family());
        block_in_place(|| work(&mut self.runner))
    }

    fn sync(&mut self) {
        self.read_addresses();
        let (family, started) = (self.runner.family.family(), Instant::now());
        let full = self.runner.family.needs_full();
        self.shared.health.queued(family);
        let result = self.blocking(|runner| {
            let _other_family = mutants::hold_other_family();
            std::thread::sleep(mutants::delay(full));
            runner.family.sync()
        });
        self.shared.metrics.sync_took(family, full, started.elapsed());
        // The next part follows at once, with the changes that arrived meanwhile.
        let has_rest = result.is_ok() && self.runner.family.has_rest();
        if !has_rest {
            self.schedule.synced(full, result.is_ok(), Instant::now());
        }
        match result {
            Ok(report) => {
                self.synced(&report, started);
                self.cleanup = FlowCleanup::after_sync(self.cleanup.take(), self.runner.family.stale_flows());
                self.delete_stale_flows();
                self.follow_up();
            }
            Err(error) => {
                error!(%family, %error, "sync failed; will be tried again");
                self.shared.metrics.failed(family, full);
                self.failures.failed(&error.to_string(), &self.shared.events);
            }
        }
        self.report_due();
        self.taken.clear();
        let family = &mut self.runner.family;
        if family.take_much_forgotten() {
            memory::compact(|| family.compact());
        } else if full {
            memory::trim();
            self.waste.give_back(|| family.compact());
        }
    }

    fn synced(&mut self, report: &SyncReport, started: Instant) {
        let RunnerContext { metrics, health_checks, disputes, events, .. } = &self.shared;
        let proxy = &mut self.runner.family;
        let family = proxy.family();
        self.failures.forget();
        let is_whole = !proxy.has_rest();
        if is_whole {
            self.pending.clear();
        }
        self.runner.watch.wrote(&report.total, report.full);
        metrics.synced(family, report);
        metrics.service_ports(family, proxy.summary());
        self.refusals.note(family, proxy.refused(), events);
        metrics.refused(family, proxy.refused().len());
        let spared = self.spared_ranges.note(proxy.service_ranges().spared);
        spared.iter().for_each(|sentence| warn!(%family, "{sentence}"));
        self.other_machines.note(family, proxy.published_of_other_machines(), events);
        self.ignored_annotations.note(family, proxy.ignored_annotations(), events);
        let disputed = proxy.take_disputes();
        if !disputed.is_empty() {
            let mut disputes = disputes.lock().unwrap_or_else(PoisonError::into_inner);
            metrics.disputed(family, disputes.note(family, disputed, events));
        }
        if is_whole {
            proxy.take_triggers().for_each(|time| metrics.programmed(family, SystemTime::from(time)));
        }
        health_checks.lock().unwrap_or_else(PoisonError::into_inner).sync(proxy, events);
        if self.first_synced.is_none() {
            self.first_synced = Some(Instant::now());
            self.shared.synced.send_modify(|families| families.push(family));
        }
        if report.is_empty() {
            debug!(%family, "in sync");
        } else if report.full && self.deleted_rules.repeat(Instant::now()) {
            debug!(%family, rules = report.rules, jumps = report.jumps, "synced after one of many deletions");
        } else {
            info!(
                %family,
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

    fn read_addresses(&mut self) {
        let begun = Instant::now();
        match self.runner.addresses.read() {
            Ok(addresses) => {
                if self.runner.family.set_addresses(addresses) {
                    self.schedule.follow_up(Some(Instant::now()));
                }
            }
            Err(error) => warn!(%error, "cannot read the node's addresses; continuing with the previous ones"),
        }
        self.schedule.read_addresses(begun, Instant::now());
    }

    fn report_due(&self) {
        let family = &self.runner.family;
        let is_due = family.is_due() || self.schedule.is_repair_scheduled();
        if is_due && !habits::has(Habit::ReportsAhead) {
            self.shared.health.queued(family.family());
        } else {
            self.shared.health.synced(family.family(), &self.seen);
        }
    }

    fn check_rules(&mut self) {
        let (family, begun) = (self.runner.family.family(), Instant::now());
        self.runner.watch.forget();
        match self.blocking(|runner| runner.family.detect_flush()) {
            Ok(None) => {}
            Ok(Some(_)) if mutants::skips(mutants::Duty::Repair) => {}
            Ok(Some(what)) => self.rule_deleted(&what),
            Err(error) => warn!(%family, %error, "cannot check whether rules were flushed"),
        }
        self.schedule.checked(begun, Instant::now());
    }

    fn rule_deleted(&mut self, what: &str) {
        let (family, now, pause) = (self.runner.family.family(), Instant::now(), self.schedule.repair_pause());
        match self.deleted_rules.record(now) {
            DeletionLine::First => {
                warn!(%family, "{what} is missing: another program has deleted it; comparing all rules")
            }
            DeletionLine::Again => warn!(
                %family,
                "{what} is missing again: comparing all rules at most once per {pause:?}, and counting further deletions"
            ),
            DeletionLine::Count(times) => {
                warn!(%family, times, "another program keeps deleting this proxy's rules; missing: {what}");
            }
            DeletionLine::None => debug!(%family, "{what} is missing"),
        }
        self.schedule.repair_soon(now);
        self.report_due();
    }

    /// Does the mode's work between syncs, such as removing drained backends.
    fn follow_up(&mut self) {
        let now = Instant::now();
        let again = match self.blocking(|runner| runner.family.follow_up(now.into_std())) {
            Ok(again) => again.map(Instant::from_std),
            Err(error) => {
                let family = self.runner.family.family();
                self.shared.metrics.cleanup_failed(family);
                warn!(%family, %error, "cannot clean up drained or unused objects; retrying");
                Some(now + AGAIN)
            }
        };
        self.schedule.follow_up(again);
        if self.runner.family.take_ended() {
            self.cleanup = FlowCleanup::after_sync(self.cleanup.take(), self.runner.family.stale_flows());
        }
    }

    /// Whether the rules are those of a state file.
    fn recalls(&self) -> bool {
        self.seen.recalled.is_some()
    }

    /// A failure is retried after the next sync.
    fn delete_stale_flows(&mut self) {
        let Some(mut cleanup) = self.cleanup.take() else { return };
        let (family, started) = (self.runner.family.family(), Instant::now());
        let anew = std::mem::take(&mut cleanup.is_new);
        let flows = &cleanup.flows;
        // A predecessor's rules may be newer than a state file: where it sent a flow may be right.
        let keeps_translated = self.recalls() && !habits::has(Habit::StateFileEndsFlows);
        let is_stale = |flow: &Flow| !(keeps_translated && flow.translated) && mutants::is_stale(flows, flow);
        let work = |runner: &mut Runner<M, C>| {
            runner.conntrack.delete_some(family, &mutants::dumps(filters(flows)), anew, &is_stale)
        };
        match self.blocking(work) {
            Ok(piece) => {
                cleanup.deleted += piece.deleted;
                cleanup.took += started.elapsed();
                if piece.is_last { self.deleted_stale_flows(&cleanup) } else { self.cleanup = Some(cleanup) }
            }
            Err(error) => warn!(%family, %error, "cannot list conntrack entries: stale flows may continue"),
        }
    }

    fn deleted_stale_flows(&mut self, FlowCleanup { deleted, took, .. }: &FlowCleanup) {
        let family = self.runner.family.family();
        if !self.recalls() {
            self.runner.family.conntrack_reconciled();
        }
        self.shared.metrics.conntrack(family, *deleted, *took);
        if *deleted > 0 {
            info!(%family, deleted, "conntrack entries of stale flows deleted");
        }
    }
}
