//! Passes changes to one runner per address family.

mod deleted_rules;
mod disputes;
mod failures;
mod first_pieces;
mod flows;
mod health_checks;
mod ignored_annotations;
mod leftovers;
mod other_machines;
mod own_node;
mod pacer;
mod refusals;
mod runner;
mod schedule;
mod spared_ranges;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::info;

use crate::config::Config;
use crate::events::Recorder;
use crate::health::{HealthState, is_eligible};
use crate::kernel::conntrack::Conntrack;
use crate::metrics::Metrics;
use crate::mode::Mode;
use crate::model::{Batch, Change};
use crate::mutants;
use crate::source::{ObjectSource, SourceError};
use first_pieces::FirstPieces;
pub use health_checks::HealthChecks;
pub use leftovers::LeftoverCleanup;
use own_node::OwnNode;
pub use own_node::{missing_node, warn_about_node};
pub use runner::Runner;
use runner::{BatchDelivery, RunnerContext};

/// The time for a sync in progress at exit. The program ends within five seconds, whatever hangs.
const LAST_SYNC: Duration = Duration::from_secs(4);

pub struct Daemon<S, M, C> {
    pub source: S,
    pub runners: Vec<Runner<M, C>>,
    pub health: HealthState,
    pub health_checks: HealthChecks,
    pub metrics: Arc<Metrics>,
    pub events: Recorder,
    pub config: Config,
    pub leftovers: Option<LeftoverCleanup>,
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    ObjectSource(#[from] SourceError),
    /// A family's runner has ended, which is a bug.
    #[error("a task has ended that should not: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl<S, M, C> Daemon<S, M, C>
where
    S: ObjectSource,
    M: Mode + Send + 'static,
    C: Conntrack + Send + 'static,
{
    /// Leaves the rules at the end: an upgrade must not drop traffic. Waits [`LAST_SYNC`] for a sync in progress; one
    /// that hangs longer may outlive the runtime (see `Runner::run`).
    pub async fn run(self, mut stop: StopSignals) -> Result<(), DaemonError> {
        let mut stop = std::pin::pin!(stop.wait());
        let Daemon { mut source, runners, health, health_checks, metrics, events, config, leftovers } = self;
        let (synced, all_synced) = watch::channel(Vec::new());
        let shared = RunnerContext {
            config: Arc::new(config),
            health,
            health_checks: Arc::new(Mutex::new(health_checks)),
            disputes: Arc::default(),
            metrics,
            events,
            synced: Arc::new(synced),
            families: runners.len(),
        };
        let mut own_node = OwnNode::new(Arc::clone(&shared.config));
        let mut tasks = JoinSet::new();
        // Closed when the proxy ends.
        let (running, ends) = watch::channel(());
        if let Some(leftovers) = leftovers {
            tasks.spawn(leftovers::take_away(leftovers, all_synced, runners.len(), ends));
        }
        let (mut inboxes, mut first_pieces) = (Vec::new(), FirstPieces::new());
        for runner in runners {
            let (sender, inbox) = unbounded_channel();
            tasks.spawn(runner.run(shared.clone(), inbox));
            inboxes.push(sender);
        }
        let result = loop {
            tokio::select! {
                () = &mut stop => break Ok(()),
                (batch, place) = async { let place = first_pieces.place().await; (source.next().await, place) } => match batch {
                    Ok(Some(mut batch)) => {
                        first_pieces.saw(&batch);
                        mutants::batch(&mut batch);
                        own_node.observe(&batch);
                        hand_out(batch, place, &shared, &inboxes);
                    }
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error.into()),
                },
                Some(ended) = tasks.join_next() => if let Err(error) = ended { break Err(error.into()) },
            }
        };
        drop((inboxes, running));
        // A hanging task does not keep the program running.
        let _ = timeout(LAST_SYNC, async { while tasks.join_next().await.is_some() {} }).await;
        result
    }
}

fn hand_out(
    batch: Batch,
    place: Option<Arc<OwnedSemaphorePermit>>,
    shared: &RunnerContext,
    inboxes: &[UnboundedSender<BatchDelivery>],
) {
    for change in &batch.changes {
        if let Change::Node(name, Some(node)) = change
            && *name == shared.config.node_name
        {
            shared.health.set_node_eligible(is_eligible(node));
        }
    }
    let pending = Arc::new(shared.metrics.count_changes(&batch));
    let delivery = BatchDelivery { complete: !batch.partial, batch: Arc::new(batch), pending, place };
    for inbox in inboxes {
        // Sending fails if the runner has ended, which `tasks` reports.
        let _ = inbox.send(delivery.clone());
    }
}

#[derive(Debug)]
pub struct StopSignals([Option<Signal>; 2]);

impl StopSignals {
    /// Needs a tokio runtime. Without these handlers the signals kill the program at once.
    pub fn at_signals() -> StopSignals {
        StopSignals([SignalKind::terminate(), SignalKind::interrupt()].map(|kind| signal(kind).ok()))
    }

    /// Waits forever if the kernel refused the handlers.
    pub async fn wait(&mut self) {
        let [terminate, interrupt] = self.0.each_mut().map(|signal| async move {
            match signal {
                Some(signal) => {
                    signal.recv().await;
                }
                None => std::future::pending().await,
            }
        });
        tokio::select! {
            () = terminate => {}
            () = interrupt => {}
        }
        info!("stopping; the rules stay in place");
    }
}
