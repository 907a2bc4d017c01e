use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::config_watch::{ConfigWatch, RestartOnChange};
use super::logging;
use super::open_mode::{OpenedMode, iptables, ipvs, nftables, userspace};
use super::servers::PortServers;
use super::settings::{ObjectOrigin, ResolvedSettings};
use super::{VERSION, kernel_settings};
use crate::config::{Config, Mode, WriterChoice};
use crate::daemon::{Daemon, HealthChecks, Runner, StopSignals};
use crate::events::{Event, EventSubject, EventType, Recorder};
use crate::habits::{self, Habit};
use crate::health::{HealthState, HealthzServer, applied_versions, recalled_state};
use crate::http::ConnectionLimit;
use crate::kernel::conntrack::ConntrackNetlink;
use crate::kernel::descriptors::{self, DescriptorShares};
use crate::kernel::instance::InstanceLock;
use crate::kernel::sysctl::SettingChange;
use crate::kernel::watch::TableWatch;
use crate::kernel::{addresses, capabilities, command, limits, threads};
use crate::kubeproxy_config::{ClientConnectionConfiguration, KubeProxyConfiguration, LoadedConfig};
use crate::metrics::{AtScrape, Metrics, MetricsServer, Requests, Slis, StaticPages};
use crate::mode::Mode as ModeAtWork;
use crate::mode::family::FamilyProxy;
use crate::model::Family;
use crate::mutants;
use crate::plan::node::node_port_relay;
use crate::source::{
    AcceptedTypes, Access, AwaitPodCidr, Connector, KubernetesSource, ManifestSource, ObjectSource, ReflectorTiming,
    SourceError, SourceReports, StateFileCounts, StateFileSettings, StateFileSource, WatchScope, record_events,
};

/// kube-proxy's warning (`checkBadConfig` in cmd/kube-proxy/app/server.go). The value `all` silences it.
const NODE_PORTS_EVERYWHERE: &str = "nodePortAddresses (--nodeport-addresses) is not set: node ports are accepted on all local \
    addresses; set it to primary, or to all to keep this behaviour";

/// How long `nft` may take for the table of a wrong proxy.
const TABLES_BESIDE: Duration = Duration::from_secs(30);

/// At exit everything except syncs must end within this time.
const END: Duration = Duration::from_millis(500);

/// `check` reads the settings again, and fails if they are wrong.
pub fn run(
    resolved: ResolvedSettings,
    origin: &ObjectOrigin,
    check: impl Fn() -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<()> {
    let ResolvedSettings { mut config, configuration, file, flags, .. } = resolved;
    announce(&config, origin);
    warn_about_node_ports(&configuration, config.mode);
    let instance = InstanceLock::claim()?;
    let about = StaticPages {
        mode: config.mode.to_string(),
        configuration: serde_json::to_value(&configuration).context("cannot serialise the configuration")?,
        flags: config.gates.flagz.then_some(flags),
        statusz: config.gates.statusz,
    };
    let limits = process_limits(&config)?;
    let shares = limits.shares;
    let start_up = StartContext { limits, about, instance };
    let restart = RestartOnChange::new(config.restart_on_config_change, check);
    kernel_settings::prepare(&mut config, SettingChange::Write)?;
    if habits::has(Habit::FlushesAtStart) {
        super::cleanup::run(&config)?;
    }
    program_tables_beside()?;
    let started = StartFile { file: file.as_ref(), restart: restart.clone() };
    // Also loads kernel modules, before `start` drops the capabilities.
    match config.mode {
        Mode::Ipvs => start(config, start_up, started, origin, ipvs),
        Mode::Nftables => start(config, start_up, started, origin, move |config: &Config| nftables(config, shares)),
        Mode::Userspace => start(config, start_up, started, origin, move |config: &Config| userspace(config, shares)),
        Mode::Iptables => start(config, start_up, started, origin, iptables),
    }?;
    restart.outcome()
}

/// Each family logs its variant when it opens its tables.
fn announce(config: &Config, origin: &ObjectOrigin) {
    let writer = if config.mode == Mode::Nftables { WriterChoice::Netlink } else { config.writer };
    info!(mode = %config.mode, %writer, node = config.node_name, source = %origin, "svcproxy {VERSION}");
}

pub(super) fn warn_about_node_ports(configuration: &KubeProxyConfiguration, mode: Mode) {
    if configuration.node_port_addresses.is_empty() && mode != Mode::Nftables {
        warn!("{NODE_PORTS_EVERYWHERE}");
    }
}

pub(super) struct ProcessLimits {
    pub(super) shares: DescriptorShares,
    relaying: bool,
    workers: usize,
}

/// Fails if the limits of this process do not allow a start.
pub(super) fn process_limits(config: &Config) -> anyhow::Result<ProcessLimits> {
    let descriptors = descriptors::raise();
    descriptors::check(descriptors)?;
    let relaying = config.mode == Mode::Userspace || relays_localhost(config);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = if relaying { processors.max(2) } else { 2 };
    threads::check(workers)?;
    match limits::set_oom_score_adj(config.oom_score_adj) {
        // A refusal is expected in a user namespace.
        Some(refused) if limits::in_user_namespace() => info!("{refused}"),
        Some(refused) => warn!("{refused}"),
        None => {}
    }
    Ok(ProcessLimits { shares: DescriptorShares::of(descriptors), relaying, workers })
}

fn relays_localhost(config: &Config) -> bool {
    Family::ALL.into_iter().any(|family| node_port_relay(config, family).is_some())
}

fn start<M: ModeAtWork + Send + 'static>(
    config: Config,
    start_up: StartContext,
    StartFile { file, restart }: StartFile<'_>,
    origin: &ObjectOrigin,
    open: impl FnOnce(&Config) -> anyhow::Result<OpenedMode<M>> + Send + 'static,
) -> anyhow::Result<()> {
    let ProcessLimits { relaying, workers, .. } = start_up.limits;
    // Opening the tables may hang, so a thread that keeps its capabilities does it while the ports are served.
    let (opened, opening) = oneshot::channel();
    let of_thread = config.clone();
    std::thread::Builder::new().name("open-tables".to_owned()).spawn(move || {
        // Sending fails only while the program ends.
        let _ = opened.send(open(&of_thread));
    })?;
    let ports = [config.healthz_bind_address, config.metrics_bind_address].into_iter().flatten();
    // The API server may assign any node port: binding a low one needs a capability.
    let relayed = relaying.then(|| if config.mode == Mode::Userspace { config.port_range.first() } else { 1 });
    if let Err(error) = capabilities::keep_what_is_needed(ports.map(|address| address.port()).chain(relayed)) {
        warn!("{error}; continuing with more capabilities than needed");
    }
    let _watch = file.map(|file| ConfigWatch::start(file, restart)).transpose().unwrap_or_else(|error| {
        warn!(%error, "cannot watch the configuration file: a change of it will not be noticed");
        None
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_keep_alive(threads::KEEP)
        .enable_all()
        .build()?;
    threads::start_waiting(runtime.handle());
    let result = runtime.block_on(async {
        let StartContext { limits: ProcessLimits { shares, .. }, about, instance } = start_up;
        tokio::spawn(instance.answer());
        let metrics = Metrics::of_mode(config.mode, &[]).context("cannot set up the metrics")?;
        metrics.register(unknown_fields(file)?)?;
        match origin {
            ObjectOrigin::Manifests(directory) => {
                let proxy = StartedProxy::serve(config, shares, about, metrics, Recorder::default())?;
                proxy.run(opening, |_| ManifestSource::open(directory)).await
            }
            ObjectOrigin::Kubernetes(access, connection) => {
                let connector = connector(access, connection, &metrics.requests());
                let events = record_events(connector.clone(), &config.node_name);
                let proxy = StartedProxy::serve(config, shares, about, metrics, events)?;
                match proxy.config.state_file.clone() {
                    None => proxy.run(opening, |proxy| Ok(proxy.kubernetes(connector))).await,
                    Some(file) => {
                        let counts = StateFileCounts::default();
                        proxy.metrics.register(recalled_state(proxy.health.clone())?)?;
                        proxy.metrics.register(counts.metrics()?)?;
                        let source = |proxy: &StartedProxy| {
                            let source = proxy.kubernetes(connector.clone());
                            let settings = StateFileSettings::new(file.path, file.max_age);
                            let api = (access, &connector, &scope(&proxy.config));
                            Ok(StateFileSource::start(source, settings, api, &counts))
                        };
                        proxy.run(opening, source).await
                    }
                }
            }
        }
    });
    // `Daemon::run` has waited for a sync in progress.
    runtime.shutdown_timeout(END);
    command::kill_all();
    result
}

pub(super) fn connector(access: &Access, settings: &ClientConnectionConfiguration, requests: &Requests) -> Connector {
    Connector::new(access.clone(), requests)
        .accepting(AcceptedTypes::new(&settings.accept_content_types, &settings.content_type))
        .limited_to(settings.qps, u32::try_from(settings.burst).unwrap_or_default())
}

pub(super) fn scope(config: &Config) -> WatchScope {
    WatchScope { node_name: config.node_name.clone(), service_cidrs: config.mode == Mode::Nftables }
}

fn unknown_fields(file: Option<&LoadedConfig>) -> Result<AtScrape, prometheus::Error> {
    let number = file.map_or(0, |file| u32::try_from(file.ignored.len()).unwrap_or(u32::MAX));
    let help = "Unknown or repeated fields of the configuration file";
    AtScrape::new(move || vec![vec![(Vec::new(), f64::from(number))]]).gauge(
        "svcproxy_config_unknown_fields",
        help,
        &[],
    )
}

/// Does what needs more privileges than proxying (`--init-only`).
pub fn prepare(resolved: ResolvedSettings) -> anyhow::Result<()> {
    let mut config = resolved.config;
    kernel_settings::prepare(&mut config, SettingChange::Write)
}

struct StartedProxy {
    config: Config,
    shares: DescriptorShares,
    stop: StopSignals,
    metrics: Arc<Metrics>,
    health: HealthState,
    servers: PortServers,
    events: Recorder,
}

impl StartedProxy {
    fn serve(
        config: Config,
        shares: DescriptorShares,
        about: StaticPages,
        metrics: Metrics,
        events: Recorder,
    ) -> anyhow::Result<StartedProxy> {
        // Handles signals before any port answers.
        let stop = StopSignals::at_signals();
        let (metrics, health) = (Arc::new(metrics), HealthState::new(config.sync_period, &Family::ALL));
        metrics.register(logging::dropped_lines()?)?;
        metrics.register(applied_versions(health.clone())?)?;
        let mut servers = PortServers::new(config.bind_address_hard_fail, events.clone());
        if let Some(address) = config.healthz_bind_address {
            let (health, metrics) = (health.clone(), Arc::clone(&metrics));
            let limit = ConnectionLimit::new("the port of /healthz", shares.healthz);
            servers.serve("FailedToStartProxierHealthcheck", move || {
                HealthzServer::bind(address, &limit, health.clone(), Arc::clone(&metrics))
            })?;
        }
        if let Some(address) = config.metrics_bind_address {
            let (metrics, slis) = (Arc::clone(&metrics), Arc::new(Slis::new().context("cannot set up the metrics")?));
            let limit = ConnectionLimit::new("the port of /metrics", shares.metrics);
            servers.serve("FailedToStartMetricsServer", move || {
                MetricsServer::bind(address, &limit, Arc::clone(&metrics), Arc::clone(&slis), &about)
            })?;
        }
        Ok(StartedProxy { config, shares, stop, metrics, health, servers, events })
    }

    fn kubernetes(&self, connector: Connector) -> KubernetesSource {
        let reports = SourceReports { failures: self.metrics.api_failures(), events: self.events.clone() };
        KubernetesSource::start(connector, scope(&self.config), &ReflectorTiming::default(), &reports)
    }

    async fn run<M: ModeAtWork + Send + 'static, S: ObjectSource + Send>(
        mut self,
        opening: oneshot::Receiver<anyhow::Result<OpenedMode<M>>>,
        source: impl FnOnce(&StartedProxy) -> Result<S, SourceError>,
    ) -> anyhow::Result<()> {
        // The lists are on their way while the tables are opened.
        let source = source(&self)?;
        // `/livez` reports a hanging command.
        let busy = Family::ALL.map(|family| self.health.busy(family));
        let usable = tokio::select! {
            () = self.stop.wait() => return Ok(()),
            opened = opening => opened.context("the thread that opens the tables has ended")??,
        };
        drop(busy);
        // Without these capabilities the first sync fails.
        if let Some(lacking) = capabilities::lacking(!usable.nft) {
            warn!("{lacking}: this node's packet filter cannot be written without it");
        }
        let runners = self.runners(usable.proxies, usable.nft)?;
        usable.metrics.into_iter().try_for_each(|one| self.metrics.register(one))?;
        let source = AwaitPodCidr::new(source, &self.config);
        self.metrics.register(source.skipped().metric()?)?;
        self.events.record(starting(self.config.mode));
        let StartedProxy { config, shares, stop, metrics, health, servers: _servers, events } = self;
        let health_checks =
            HealthChecks::new(health.clone(), ConnectionLimit::new("health-check node ports", shares.health_checks));
        let leftovers = usable.leftovers;
        let daemon = Daemon { source, runners, health, health_checks, metrics, events, config, leftovers };
        daemon.run(stop).await?;
        Ok(())
    }

    fn runners<M: ModeAtWork>(
        &self,
        proxies: Vec<FamilyProxy<M>>,
        nft: bool,
    ) -> anyhow::Result<Vec<Runner<M, ConntrackNetlink>>> {
        let families: Vec<Family> = proxies.iter().map(FamilyProxy::family).collect();
        self.health.proxies(&families);
        families.iter().for_each(|family| self.metrics.begin_at_zero(*family));
        let mut runners = Vec::new();
        for proxy in proxies {
            let family = proxy.family();
            let watch = if nft { TableWatch::nft(family) } else { Ok(TableWatch::legacy(family)) };
            let watch = watch.context("cannot watch the packet filter")?;
            let addresses = Box::new(addresses::AddressReader::new(self.config.mode == Mode::Ipvs));
            runners.push(Runner { family: proxy, watch, addresses, conntrack: ConntrackNetlink::default() });
        }
        Ok(runners)
    }
}

/// kube-proxy's start Event (`birthCry` in cmd/kube-proxy/app/server.go).
fn starting(mode: Mode) -> Event {
    Event {
        kind: EventType::Normal,
        about: EventSubject::Node,
        reason: "Starting",
        action: "StartKubeProxy",
        note: format!("svcproxy {} in {mode} mode", env!("CARGO_PKG_VERSION")),
    }
}

struct StartContext {
    limits: ProcessLimits,
    about: StaticPages,
    instance: InstanceLock,
}

struct StartFile<'a> {
    file: Option<&'a LoadedConfig>,
    restart: RestartOnChange,
}

/// Programs the table of a wrong proxy, whose name is `mutant`, by `nft`.
fn program_tables_beside() -> anyhow::Result<()> {
    let tables = mutants::tables_beside();
    if tables.is_empty() {
        return Ok(());
    }
    let input = format!("table inet mutant\ndelete table inet mutant\n{tables}");
    let output =
        command::run("nft", &["-f", "-"], Some(&input), TABLES_BESIDE).context("cannot run nft for a mutant")?;
    anyhow::ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
