//! The running proxy: hands changes to a runner for each address family, which syncs by itself.

mod disputes;
mod failures;
mod flows;
mod health_checks;
mod leftovers;
mod losses;
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
use tokio::sync::watch;
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
use crate::source::{Source, SourceError};
pub use health_checks::HealthChecks;
pub use leftovers::Leftovers;
use own_node::OwnNode;
pub use runner::Runner;
use runner::{Delivery, Shared};

/// How long a sync that is under way at the end may take: the program ends within five seconds, whatever hangs.
const LAST_SYNC: Duration = Duration::from_secs(4);

/// A running proxy.
pub struct Daemon<S, M, C> {
    /// Where objects come from.
    pub source: S,
    /// One runner per address family.
    pub runners: Vec<Runner<M, C>>,
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
    /// What another mode left.
    pub leftovers: Option<Leftovers>,
}

/// Why a proxy cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Nothing tells it of changes any more.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A family's runner has ended, which is a fault of the program's.
    #[error("a task has ended that should not: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl<S, M, C> Daemon<S, M, C>
where
    S: Source,
    M: Mode + Send + 'static,
    C: Conntrack + Send + 'static,
{
    /// Runs until SIGTERM or SIGINT. The rules stay: an upgrade must not drop traffic. A sync that is under way is waited for, for
    /// four seconds at most; what hangs longer goes on, on its own thread, and may outlive the runtime: see `Runner::run`.
    ///
    /// # Errors
    /// When the source cannot go on.
    pub async fn run(self, mut stop: Stop) -> Result<(), DaemonError> {
        let mut stop = std::pin::pin!(stop.wait());
        let Daemon { mut source, runners, health, health_checks, metrics, events, config, leftovers } = self;
        let (synced, all_synced) = watch::channel(Vec::new());
        let shared = Shared {
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
        // Closed at the end.
        let (running, ends) = watch::channel(());
        if let Some(leftovers) = leftovers {
            tasks.spawn(leftovers::take_away(leftovers, all_synced, runners.len(), ends));
        }
        let mut inboxes = Vec::new();
        for runner in runners {
            let (sender, inbox) = unbounded_channel();
            tasks.spawn(runner.run(shared.clone(), inbox));
            inboxes.push(sender);
        }
        let result = loop {
            tokio::select! {
                () = &mut stop => break Ok(()),
                batch = source.next() => match batch {
                    Ok(Some(batch)) => {
                        own_node.look(&batch);
                        hand_out(batch, &shared, &inboxes);
                    }
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error.into()),
                },
                Some(ended) = tasks.join_next() => if let Err(error) = ended { break Err(error.into()) },
            }
        };
        drop((inboxes, running));
        // What still hangs after that is no reason to go on.
        let _ = timeout(LAST_SYNC, async { while tasks.join_next().await.is_some() {} }).await;
        result
    }
}

fn hand_out(batch: Batch, shared: &Shared, inboxes: &[UnboundedSender<Delivery>]) {
    for change in &batch.changes {
        if let Change::Node(name, Some(node)) = change
            && *name == shared.config.node_name
        {
            shared.health.set_node_eligible(is_eligible(node));
        }
    }
    let pending = Arc::new(shared.metrics.changed(&batch));
    let delivery = Delivery { complete: !batch.partial, batch: Arc::new(batch), pending };
    for inbox in inboxes {
        // A runner that has ended is noticed by its task.
        let _ = inbox.send(delivery.clone());
    }
}

/// SIGTERM and SIGINT, from the moment that this is made.
#[derive(Debug)]
pub struct Stop([Option<Signal>; 2]);

impl Stop {
    /// Waits for them from now on; must be called on a tokio runtime. Without it they end the program as it stands.
    pub fn at_signals() -> Stop {
        Stop([SignalKind::terminate(), SignalKind::interrupt()].map(|kind| signal(kind).ok()))
    }

    /// Resolves at the first of them; never, where the kernel refuses the handlers.
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
