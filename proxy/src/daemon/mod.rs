//! The running proxy: waits for changes, the clock and other programs' writes, and syncs.

mod pacer;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::block_in_place;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use tracing::{debug, error, info, warn};

use crate::config::Config;
use crate::health::{HealthState, ServiceHealth, ServiceHealthServers};
use crate::kernel::conntrack::Conntrack;
use crate::kernel::iptables::Iptables;
use crate::kernel::watch::Watch;
use crate::kernel::{addresses, memory};
use crate::mode::iptables::family::FamilyProxy;
use crate::source::{Batch, ResourceVersions, Source, SourceError};
use pacer::Pacer;

/// How long the nft announcements of one change are gathered before the canary is looked at.
const SETTLE: Duration = Duration::from_millis(20);
/// The whole state is compared with the kernel's at least so often (upstream's period of full syncs).
const FULL_SYNC: Duration = Duration::from_secs(3600);

/// A running proxy.
pub struct Daemon<S, K, C> {
    /// Where objects come from.
    pub source: S,
    /// One proxy per address family.
    pub families: Vec<FamilyProxy<K>>,
    /// Other programs' writes.
    pub watch: Watch,
    /// Flows that outlive a change of rules.
    pub conntrack: C,
    /// What `/healthz` tells.
    pub health: HealthState,
    /// Listeners of the `healthCheckNodePort`s.
    pub service_health: ServiceHealthServers,
    /// Settings.
    pub config: Config,
}

enum Event {
    Batch(Result<Option<Batch>, SourceError>),
    SyncDue,
    Tick,
    Foreign,
    Stop,
}

impl<S: Source, K: Iptables, C: Conntrack> Daemon<S, K, C> {
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
        let mut version = None;
        let mut versions = ResourceVersions::default();
        let mut synced_once = false;
        let mut known = false;
        loop {
            let due = known && self.families.iter().any(FamilyProxy::is_due);
            let event = tokio::select! {
                biased;
                () = &mut terminate => Event::Stop,
                () = &mut interrupt => Event::Stop,
                batch = self.source.next() => Event::Batch(batch),
                () = self.watch.changed(), if synced_once => Event::Foreign,
                () = sleep_until(pacer.next()), if due => Event::SyncDue,
                _ = tick.tick(), if known => Event::Tick,
            };
            match event {
                Event::Stop => {
                    info!("stopping; the rules stay in place");
                    return Ok(());
                }
                Event::Batch(batch) => {
                    let Some(batch) = batch? else { return Ok(()) };
                    version = batch.resource_version.clone().or(version);
                    versions.advance(&batch.resource_versions);
                    self.take(&batch);
                    known |= !batch.partial;
                    if known && !self.families.iter().any(FamilyProxy::is_due) {
                        self.health.synced(version.clone(), versions.clone());
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
                Event::SyncDue => {}
            }
            if self.sync() {
                pacer.succeeded(Instant::now());
                self.health.synced(version.clone(), versions.clone());
                synced_once = true;
            } else {
                pacer.failed(Instant::now());
            }
            self.serve_health_checks();
        }
    }

    fn take(&mut self, batch: &Batch) {
        for family in &mut self.families {
            family.apply(&batch.changes);
        }
        self.health.queued();
    }

    /// Whether a canary was lost, and so a full sync is due.
    fn check_canary(&mut self) -> bool {
        let mut lost = false;
        for family in &mut self.families {
            match block_in_place(|| family.canary_lives()) {
                Ok(true) => {}
                Ok(false) => {
                    warn!(family = %family.family(), "the canary chain is gone: somebody flushed the tables; writing them anew");
                    family.doubt();
                    lost = true;
                }
                Err(error) => warn!(family = %family.family(), %error, "cannot look for the canary chain"),
            }
        }
        lost
    }

    /// Syncs every family that has something to do; whether all succeeded.
    fn sync(&mut self) -> bool {
        let addresses = addresses::read();
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
            full |= family.needs_full();
            match block_in_place(|| family.sync()) {
                Ok(report) if report.is_empty() => debug!(family = %family.family(), "in sync"),
                Ok(report) => info!(
                    family = %family.family(),
                    full = report.full,
                    rules = report.rules,
                    removed_chains = report.removed_chains,
                    jumps = report.jumps,
                    took = ?started.elapsed(),
                    "synced"
                ),
                Err(error) => {
                    error!(family = %family.family(), %error, "sync failed; will be tried again");
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

    /// Deletes conntrack entries that lead where no rule leads any more. What fails is tried again after the next sync:
    /// the rules themselves are in place, so it does not hold up anything.
    fn delete_stale_flows(&mut self) {
        for family in &mut self.families {
            let Some(flows) = family.flows_due() else { continue };
            let number = family.family();
            let deleted = if flows.is_empty() {
                Ok(0)
            } else {
                block_in_place(|| self.conntrack.delete(number, &|flow| flows.is_stale(flow)))
            };
            match deleted {
                Ok(deleted) => {
                    family.flows_judged(&flows);
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

    fn serve_health_checks(&mut self) {
        let mut wanted: BTreeMap<u16, ServiceHealth> = BTreeMap::new();
        for (name, check) in self.families.iter().flat_map(FamilyProxy::health_checks) {
            // A dual-stack Service has the same pods in both families.
            let entry = wanted.entry(check.port).or_insert_with(|| ServiceHealth {
                namespace: name.service.namespace.clone(),
                name: name.service.name.clone(),
                local_endpoints: 0,
            });
            entry.local_endpoints = entry.local_endpoints.max(check.local_endpoints);
        }
        for error in self.service_health.sync(wanted) {
            warn!(%error, "a load balancer will take this node for unhealthy");
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
