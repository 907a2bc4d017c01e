//! The proxy's daemon, fed with batches as a source would and asked what it has applied, in the network namespace of the
//! thread that starts it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use svcproxy::config::{Config, Mode, NodeAddresses};
use svcproxy::daemon::{Daemon, HealthChecks, Runner, StopSignals};
use svcproxy::events::Recorder;
use svcproxy::health::HealthState;
use svcproxy::http::ConnectionLimit;
use svcproxy::kernel::addresses::{Addresses, Reader};
use svcproxy::kernel::conntrack::Netlink;
use svcproxy::kernel::descriptors::{self, Shares};
use svcproxy::kernel::netlink::NetlinkError;
use svcproxy::kernel::packet_filter::PacketFilter;
use svcproxy::kernel::watch::Watch;
use svcproxy::metrics::Metrics;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::{Mode as AtWork, assemble};
use svcproxy::model::{Batch, Family};
use svcproxy::relay::{self, RelayEngine};
use svcproxy::source::{ObjectSource, SkippedObjects, SourceError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::kernel::{Asked, Log, Observed, ObservedNetlink, Sent};
use super::timed::Timed;
use super::{KernelKind, Writer, config, node_addresses, port_range, table};
use crate::events::Input;

/// Longer than any sync that is measured: one that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks at what is applied: what a figure may be too large by.
const LOOK: Duration = Duration::from_micros(20);

/// Where a daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// An empty network namespace; what addresses the node has is [`Input::has_address`]'s to say.
    Empty,
    /// A node with links and addresses of its own.
    Node,
}

/// What following an event took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    /// From handing the batch over to the daemon's word that it is in the kernel.
    pub total: Duration,
    /// The part of it in calls of the kernel and of commands.
    pub apply: Duration,
    /// The part of it in which rules were written down, where that is known.
    pub render: Option<Duration>,
    /// How long the kernel took for the longest transaction, where that is known.
    pub longest: Option<Duration>,
    /// What was asked of the kernel in that time.
    pub asked: Asked,
}

/// A running daemon; it ends when this is dropped, and its rules stay.
pub struct Running {
    batches: Option<UnboundedSender<Batch>>,
    addresses: Arc<Mutex<NodeAddresses>>,
    health: HealthState,
    log: Log,
    version: u64,
    times_rendering: bool,
    runtime: Option<Runtime>,
}

/// How long other tasks had to wait; counted until this is dropped.
pub struct Pauses(Arc<AtomicU64>);

impl Pauses {
    /// The longest wait so far.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

struct Batches(UnboundedReceiver<Batch>);

impl ObjectSource for Batches {
    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        Ok(self.0.recv().await)
    }

    fn skipped(&self) -> SkippedObjects {
        SkippedObjects::default()
    }
}

struct Settable(Arc<Mutex<NodeAddresses>>, NodeAddresses);

impl Addresses for Settable {
    fn read(&mut self) -> Result<&NodeAddresses, NetlinkError> {
        self.1 = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(&self.1)
    }
}

impl Running {
    /// Starts a daemon that knows of no object yet.
    ///
    /// # Errors
    /// When the commands are not installed or the kernel refuses what a daemon needs.
    pub fn start(writer: &Writer, host: Host) -> Result<Running> {
        let log = Log::default();
        match writer.kernel {
            KernelKind::Netlink => {
                let kernel = ObservedNetlink::open(Family::V4, log.clone())?;
                Running::over(writer, host, log, kernel)
            }
            KernelKind::Ipvs => {
                let kernel = super::ipvs::open(Family::V4, &log)?;
                let proxy = assemble::ipvs(&config(writer.mode), Family::V4, kernel);
                let proxy = proxy.map_mode(|engine| Timed::engine(engine, &log));
                Running::with(writer, host, log, proxy)
            }
            KernelKind::Table => {
                let table = table::Observed::open(Family::V4, log.clone())?;
                let relays = |_| relay::FakeRelays::default();
                let proxy = assemble::nftables(&config(writer.mode), Family::V4, table, relays);
                Running::with(writer, host, log, proxy)
            }
            KernelKind::Silent | KernelKind::Commands(_) => {
                let kernel = Observed::new(writer.open()?, log.clone());
                Running::over(writer, host, log, kernel)
            }
        }
    }

    fn over<K: PacketFilter + Send + 'static>(writer: &Writer, host: Host, log: Log, kernel: K) -> Result<Running> {
        match writer.mode {
            Mode::Iptables => {
                let proxy = assemble::iptables(&config(writer.mode), Family::V4, kernel);
                let proxy = proxy.map_mode(|engine| Timed::engine(engine, &log));
                Running::with(writer, host, log, proxy)
            }
            Mode::Userspace => {
                let descriptors = Shares::of(descriptors::raise()).relays;
                let hour = Duration::from_secs(3600);
                let tcp = relay::tcp::TcpTimeouts { idle: hour, half_closed: hour };
                let udp = relay::udp::UdpTimeouts { single: hour, conversation: hour };
                let shared = relay::engine::RelayShared::new(relay::limits::RelayLimits::of(descriptors), tcp, udp);
                let relays = RelayEngine::new(Family::V4, shared);
                let config = Config { port_range: port_range()?, ..config(writer.mode) };
                let proxy = assemble::userspace(&config, Family::V4, kernel, relays);
                let proxy = proxy.map_mode(|engine| Timed::engine(engine, &log));
                Running::with(writer, host, log, proxy)
            }
            mode => bail!("the benchmarks have no daemon in {mode} mode"),
        }
    }

    fn with<M: AtWork + Send + 'static>(
        writer: &Writer,
        host: Host,
        log: Log,
        proxy: FamilyProxy<M>,
    ) -> Result<Running> {
        let config = config(writer.mode);
        let addresses = Arc::new(Mutex::new(node_addresses(false)));
        let health = HealthState::new(config.sync_period, &[Family::V4]);
        // As the program does it; its threads are in the network namespace of this one.
        let threads = if writer.mode == Mode::Userspace { thread::available_parallelism()?.get().max(2) } else { 2 };
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        let (batches, inbox) = unbounded_channel();
        let daemon = {
            let _context = runtime.enter();
            let watch = match writer.kernel {
                KernelKind::Silent => Watch::notified(Family::V4, Arc::new(Notify::new())),
                _ if writer.is_nft() => Watch::nft(Family::V4)?,
                KernelKind::Commands(_) | KernelKind::Netlink | KernelKind::Table | KernelKind::Ipvs => {
                    Watch::legacy(Family::V4)
                }
            };
            let runner = Runner {
                family: proxy,
                watch,
                addresses: match host {
                    Host::Empty => Box::new(Settable(Arc::clone(&addresses), NodeAddresses::default())),
                    Host::Node => Box::new(Reader::default()),
                },
                conntrack: Netlink::default(),
            };
            daemon(config, runner, inbox, health.clone())?
        };
        runtime.spawn(async move { daemon.run(StopSignals::at_signals()).await });
        let (batches, runtime, times_rendering) = (Some(batches), Some(runtime), writer.kernel != KernelKind::Table);
        Ok(Running { batches, addresses, health, log, version: 0, times_rendering, runtime })
    }

    /// Hands `input` over and waits until it is in the kernel.
    ///
    /// # Errors
    /// When a call of the kernel or a command failed, or the daemon does not get there.
    pub fn follow(&mut self, input: Input) -> Result<Took> {
        if let Some(has_address) = input.has_address {
            *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = node_addresses(has_address);
        }
        self.version += 1;
        let version = Some(self.version.to_string());
        let batch = Batch { changes: input.changes, resource_version: version.clone(), ..Batch::default() };
        let (asked, busy, rendered) = self.seen();
        table::take_longest(&self.log);
        let batches = self.batches.as_ref().context("a daemon that runs")?;
        let start = Instant::now();
        batches.send(batch).ok().context("the daemon has ended")?;
        while self.health.look().applied.manifests != version {
            if let Some(error) = &self.log.lock().error {
                bail!("{error}");
            }
            if start.elapsed() > PATIENCE {
                bail!("the daemon has not applied the change within {PATIENCE:?}");
            }
            thread::sleep(LOOK);
        }
        let total = start.elapsed();
        let (asked_now, busy_now, rendered_now) = self.seen();
        if let Some(error) = &self.log.lock().error {
            bail!("{error}");
        }
        let apply = busy_now - busy;
        let render = Some(rendered_now - rendered).filter(|_| self.times_rendering);
        let longest = Some(table::take_longest(&self.log)).filter(|longest| !longest.is_zero());
        Ok(Took { total, apply, render, longest, asked: asked_now - asked })
    }

    /// From now on, how late a task of the daemon's runtime comes that wants to run each millisecond: for so long nothing else could run,
    /// either. Asked for, it starts over.
    pub fn pauses(&self) -> Result<Pauses> {
        let latest = Arc::new(AtomicU64::new(0));
        let note = Arc::clone(&latest);
        let runtime = self.runtime.as_ref().context("a runtime")?;
        runtime.spawn(async move {
            // Timers are rounded up to the next millisecond.
            let (period, expected) = (Duration::from_millis(1), Duration::from_millis(2));
            while Arc::strong_count(&note) > 1 {
                let begun = Instant::now();
                tokio::time::sleep(period).await;
                let late = begun.elapsed().saturating_sub(expected);
                note.fetch_max(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Ok(Pauses(latest))
    }

    /// Keeps every transaction from now on, and returns those that were kept before.
    pub fn keep_sent(&self) -> Vec<Sent> {
        self.log.lock().sent.replace(Vec::new()).unwrap_or_default()
    }

    /// Keeps no transaction any more.
    pub fn forget_sent(&self) {
        self.log.lock().sent = None;
    }

    fn seen(&self) -> (Asked, Duration, Duration) {
        let seen = self.log.lock();
        (seen.asked, seen.busy, seen.rendered)
    }
}

impl Drop for Running {
    /// Ends the source, and so the daemon. Its runner may be at work still: a runtime that goes under it would make it panic.
    fn drop(&mut self) {
        drop(self.batches.take());
        if let Some(runtime) = self.runtime.take() {
            let deadline = Instant::now() + Duration::from_secs(10);
            while runtime.metrics().num_alive_tasks() > 0 && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}

fn daemon<M: AtWork + Send + 'static>(
    config: Config,
    runner: Runner<M, Netlink>,
    inbox: UnboundedReceiver<Batch>,
    health: HealthState,
) -> Result<Daemon<Batches, M, Netlink>> {
    Ok(Daemon {
        source: Batches(inbox),
        runners: vec![runner],
        health_checks: HealthChecks::new(health.clone(), ConnectionLimit::new("health checks", 8)),
        health,
        metrics: Arc::new(Metrics::new(&[Family::V4])?),
        events: Recorder::default(),
        config,
        leftovers: None,
    })
}
