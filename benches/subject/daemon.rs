//! Sends the daemon batches like a source, and polls the version that it has applied.

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
use svcproxy::kernel::addresses::{AddressReader, Addresses};
use svcproxy::kernel::conntrack::ConntrackNetlink;
use svcproxy::kernel::descriptors::{self, DescriptorShares};
use svcproxy::kernel::netlink::NetlinkError;
use svcproxy::kernel::packet_filter::PacketFilter;
use svcproxy::kernel::watch::TableWatch;
use svcproxy::metrics::Metrics;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::{Mode as AtWork, assemble};
use svcproxy::model::{Batch, Family};
use svcproxy::relay::{self, RelayEngine};
use svcproxy::source::{ObjectSource, SkippedObjects, SourceError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::kernel::{CallLog, CountedIptables, CountedNetlink, KernelRequests, SentTransaction};
use super::timed::Timed;
use super::{BenchWriter, KernelKind, config, node_addresses, port_range, table};
use crate::events::EventInput;

const PATIENCE: Duration = Duration::from_secs(300);
/// The interval of polls: the error of a measured time.
const POLL: Duration = Duration::from_micros(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonHost {
    /// An empty network namespace. [`EventInput::has_address`] decides the node's addresses.
    Empty,
    Node,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SyncTimes {
    /// From sending the batch until the daemon reports its version as applied.
    pub total: Duration,
    /// Time in the kernel and in commands.
    pub apply: Duration,
    pub render: Option<Duration>,
    /// Time of the longest transaction in the kernel, if known.
    pub longest: Option<Duration>,
    pub asked: KernelRequests,
}

/// Dropping it ends the daemon; the rules stay.
pub struct RunningDaemon {
    batches: Option<UnboundedSender<Batch>>,
    addresses: Arc<Mutex<NodeAddresses>>,
    health: HealthState,
    log: CallLog,
    version: u64,
    times_rendering: bool,
    runtime: Option<Runtime>,
}

/// Records pauses of other tasks until this is dropped.
pub struct Pauses(Arc<AtomicU64>);

impl Pauses {
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

impl RunningDaemon {
    pub fn start(writer: &BenchWriter, host: DaemonHost) -> Result<RunningDaemon> {
        let log = CallLog::default();
        match writer.kernel {
            KernelKind::Netlink => {
                let kernel = CountedNetlink::open(Family::V4, log.clone())?;
                RunningDaemon::over(writer, host, log, kernel)
            }
            KernelKind::Ipvs => {
                let kernel = super::ipvs::open(Family::V4, &log)?;
                let proxy = assemble::ipvs(&config(writer.mode, writer.option), Family::V4, kernel);
                let proxy = proxy.map_mode(|engine| Timed::engine(engine, &log));
                RunningDaemon::with(writer, host, log, proxy)
            }
            KernelKind::Table => {
                let table = table::CountedTable::open(Family::V4, log.clone())?;
                let relays = |_| relay::FakeRelays::default();
                let proxy = assemble::nftables(&config(writer.mode, writer.option), Family::V4, table, relays);
                RunningDaemon::with(writer, host, log, proxy)
            }
            KernelKind::Silent | KernelKind::Commands(_) => {
                let kernel = CountedIptables::new(writer.open()?, log.clone());
                RunningDaemon::over(writer, host, log, kernel)
            }
        }
    }

    fn over<K: PacketFilter + Send + 'static>(
        writer: &BenchWriter,
        host: DaemonHost,
        log: CallLog,
        kernel: K,
    ) -> Result<RunningDaemon> {
        match writer.mode {
            Mode::Iptables => {
                let proxy = assemble::iptables(&config(writer.mode, writer.option), Family::V4, kernel);
                let proxy = proxy.map_mode(|engine| Timed::engine(engine, &log));
                RunningDaemon::with(writer, host, log, proxy)
            }
            Mode::Userspace => {
                let descriptors = DescriptorShares::of(descriptors::raise()).relays;
                let hour = Duration::from_secs(3600);
                let tcp = relay::tcp::TcpTimeouts { idle: hour, half_closed: hour };
                let udp = relay::udp::UdpTimeouts { single: hour, conversation: hour };
                let shared = relay::engine::RelayShared::new(relay::limits::RelayLimits::of(descriptors), tcp, udp);
                let relays = RelayEngine::new(Family::V4, shared);
                let config = Config { port_range: port_range()?, ..config(writer.mode, writer.option) };
                let proxy = assemble::userspace(&config, Family::V4, kernel, relays);
                let proxy = proxy.map_mode(|engine| Timed::engine(engine, &log));
                RunningDaemon::with(writer, host, log, proxy)
            }
            mode => bail!("the benchmarks have no daemon in {mode} mode"),
        }
    }

    fn with<M: AtWork + Send + 'static>(
        writer: &BenchWriter,
        host: DaemonHost,
        log: CallLog,
        proxy: FamilyProxy<M>,
    ) -> Result<RunningDaemon> {
        let config = config(writer.mode, writer.option);
        let addresses = Arc::new(Mutex::new(node_addresses(false)));
        let health = HealthState::new(config.sync_period, &[Family::V4]);
        // As many threads as in `svcproxy`. They share the network namespace of this thread.
        let threads = if writer.mode == Mode::Userspace { thread::available_parallelism()?.get().max(2) } else { 2 };
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        let (batches, inbox) = unbounded_channel();
        let daemon = {
            let _context = runtime.enter();
            let watch = match writer.kernel {
                KernelKind::Silent => TableWatch::notified(Family::V4, Arc::new(Notify::new())),
                _ if writer.is_nft() => TableWatch::nft(Family::V4)?,
                KernelKind::Commands(_) | KernelKind::Netlink | KernelKind::Table | KernelKind::Ipvs => {
                    TableWatch::legacy(Family::V4)
                }
            };
            let runner = Runner {
                family: proxy,
                watch,
                addresses: match host {
                    DaemonHost::Empty => Box::new(Settable(Arc::clone(&addresses), NodeAddresses::default())),
                    DaemonHost::Node => Box::new(AddressReader::default()),
                },
                conntrack: ConntrackNetlink::default(),
            };
            daemon(config, runner, inbox, health.clone())?
        };
        runtime.spawn(async move { daemon.run(StopSignals::at_signals()).await });
        let (batches, runtime, times_rendering) = (Some(batches), Some(runtime), writer.kernel != KernelKind::Table);
        Ok(RunningDaemon { batches, addresses, health, log, version: 0, times_rendering, runtime })
    }

    pub fn follow(&mut self, input: EventInput) -> Result<SyncTimes> {
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
        while self.health.snapshot().applied.manifests != version {
            if let Some(error) = &self.log.lock().error {
                bail!("{error}");
            }
            if start.elapsed() > PATIENCE {
                bail!("the daemon has not applied the change within {PATIENCE:?}");
            }
            thread::sleep(POLL);
        }
        let total = start.elapsed();
        let (asked_now, busy_now, rendered_now) = self.seen();
        if let Some(error) = &self.log.lock().error {
            bail!("{error}");
        }
        let apply = busy_now - busy;
        let render = Some(rendered_now - rendered).filter(|_| self.times_rendering);
        let longest = Some(table::take_longest(&self.log)).filter(|longest| !longest.is_zero());
        Ok(SyncTimes { total, apply, render, longest, asked: asked_now - asked })
    }

    /// Starts to record how late a task that sleeps for a millisecond runs.
    pub fn pauses(&self) -> Result<Pauses> {
        let latest = Arc::new(AtomicU64::new(0));
        let note = Arc::clone(&latest);
        let runtime = self.runtime.as_ref().context("a runtime")?;
        runtime.spawn(async move {
            // tokio rounds timers up to the next millisecond.
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

    pub fn keep_sent(&self) -> Vec<SentTransaction> {
        self.log.lock().sent.replace(Vec::new()).unwrap_or_default()
    }

    pub fn forget_sent(&self) {
        self.log.lock().sent = None;
    }

    fn seen(&self) -> (KernelRequests, Duration, Duration) {
        let seen = self.log.lock();
        (seen.asked, seen.busy, seen.rendered)
    }
}

impl Drop for RunningDaemon {
    /// Waits for the runner, which would panic without its runtime.
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
    runner: Runner<M, ConntrackNetlink>,
    inbox: UnboundedReceiver<Batch>,
    health: HealthState,
) -> Result<Daemon<Batches, M, ConntrackNetlink>> {
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
