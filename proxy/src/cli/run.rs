use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::VERSION;
use super::config_watch::{ConfigWatch, RestartOnChange};
use super::leftovers::{self, all};
use super::logging;
use super::other_variant;
use super::servers::PortServers;
use super::settings::{ObjectOrigin, ResolvedSettings};
use crate::config::{Config, Mode, Variant, WriterChoice};
use crate::daemon::{Daemon, HealthChecks, LeftoverCleanup, Runner, StopSignals};
use crate::events::{Event, EventSubject, EventType, Recorder};
use crate::habits::{self, Habit};
use crate::health::{HealthState, HealthzServer, applied_versions, recalled_state};
use crate::http::ConnectionLimit;
use crate::kernel;
use crate::kernel::conntrack::ConntrackNetlink;
use crate::kernel::descriptors::{self, DescriptorShares};
use crate::kernel::instance::InstanceLock;
use crate::kernel::ipvs::Genetlink;
use crate::kernel::nftables::{FlowtableSpec, NetlinkFlowtable};
use crate::kernel::watch::TableWatch;
use crate::kernel::writer::{CounterReader, IptablesWriter, OpenedWriter};
use crate::kernel::{addresses, capabilities, command, input_policy, limits, sysctl, threads};
use crate::kubeproxy_config::LoadedConfig;
use crate::metrics::{AtScrape, Metrics, MetricsServer, Slis, StaticPages};
use crate::metrics::{localhost, relays, rules};
use crate::mode::Mode as ModeAtWork;
use crate::mode::assemble;
use crate::mode::family::FamilyProxy;
use crate::mode::flowtable::LongConnections;
use crate::mode::iptables_family::iptables;
use crate::mode::iptables_family::ipvs::kernel::LinuxIpvs;
use crate::mode::iptables_family::ipvs::{self, prepare};
use crate::mode::iptables_family::userspace;
use crate::mode::nftables::flowtable as of_flowtable;
use crate::mode::nftables::{self, layout};
use crate::model::Family;
use crate::mutants;
use crate::plan::node::{node_port_relay, ranges_without_relay, routes_loopback};
use crate::relay::{self, RelayEngine};
use crate::source::{
    AcceptedTypes, AwaitPodCidr, Connector, KubernetesSource, ManifestSource, ObjectSource, ReflectorTiming,
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
    if configuration.node_port_addresses.is_empty() && config.mode != Mode::Nftables {
        warn!("{NODE_PORTS_EVERYWHERE}");
    }
    let instance = InstanceLock::claim()?;
    let about = StaticPages {
        mode: config.mode.to_string(),
        configuration: serde_json::to_value(&configuration).context("cannot serialise the configuration")?,
        flags: config.gates.flagz.then_some(flags),
        statusz: config.gates.statusz,
    };
    let descriptors = descriptors::raise();
    descriptors::check(descriptors)?;
    let shares = DescriptorShares::of(descriptors);
    let start_up = StartContext { shares, about, instance };
    let restart = RestartOnChange::new(config.restart_on_config_change, check);
    prepare_kernel(&mut config)?;
    if habits::has(Habit::FlushesAtStart) {
        super::cleanup::run(&config)?;
    }
    program_tables_beside()?;
    match limits::set_oom_score_adj(config.oom_score_adj) {
        // A refusal is expected in a user namespace.
        Some(refused) if limits::in_user_namespace() => info!("{refused}"),
        Some(refused) => warn!("{refused}"),
        None => {}
    }
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

fn ipvs(config: &Config) -> anyhow::Result<OpenedMode<ipvs::syncer::IpvsSyncer<LinuxIpvs<IptablesWriter>>>> {
    let mut usable =
        open_iptables(config, |family, writer| Ok(assemble::ipvs(config, family, LinuxIpvs::open(writer)?)))?;
    for family in usable.proxies.iter().map(FamilyProxy::family) {
        for chain in input_policy::dropping(family) {
            warn!(
                %family,
                "{chain} has policy drop: in IPVS mode packets to services pass the hook input, and are dropped unless a rule \
                 accepts them; accept the addresses and node ports of services there"
            );
        }
    }
    usable.leftovers = all(vec![leftovers::nftables(&usable.proxies)]);
    Ok(usable)
}

fn userspace(
    config: &Config,
    shares: DescriptorShares,
) -> anyhow::Result<OpenedMode<userspace::syncer::UserspaceSyncer<IptablesWriter, RelayEngine>>> {
    let (shared, mut stats) = (relays(config, shares), Vec::new());
    let mut usable = open_iptables(config, |family, writer| {
        let relays = RelayEngine::new(family, Arc::clone(&shared));
        stats.push((family, relays.stats()));
        Ok(assemble::userspace(config, family, writer, relays))
    })?;
    usable.leftovers = all(vec![leftovers::ipvs(config), leftovers::nftables(&usable.proxies)]);
    usable.metrics.extend(invalid_packets(config, &usable.counters)?);
    usable.metrics.push(relays::metrics(stats)?);
    Ok(usable)
}

fn iptables(config: &Config) -> anyhow::Result<OpenedMode<iptables::syncer::IptablesSyncer<IptablesWriter>>> {
    let mut usable = open_iptables(config, |family, writer| Ok(assemble::iptables(config, family, writer)))?;
    usable.leftovers = all(vec![leftovers::ipvs(config), leftovers::nftables(&usable.proxies)]);
    usable.metrics.extend(invalid_packets(config, &usable.counters)?);
    if config.count_localhost_node_ports {
        let counters = usable.counters.iter().map(|(_, one)| one.clone()).collect();
        usable.metrics.push(rules::localhost_node_ports(counters)?);
    }
    if config.service_counters {
        usable.metrics.push(rules::service_ports(usable.counters.clone())?);
    }
    Ok(usable)
}

/// Each family logs its variant when it opens its tables.
fn announce(config: &Config, origin: &ObjectOrigin) {
    let writer = if config.mode == Mode::Nftables { WriterChoice::Netlink } else { config.writer };
    info!(mode = %config.mode, %writer, node = config.node_name, source = %origin, "svcproxy {VERSION}");
}

/// Relayed connections may be idle as long as conntrack keeps their entries.
fn relays(config: &Config, shares: DescriptorShares) -> Arc<relay::engine::RelayShared> {
    let limits = relay::limits::RelayLimits::of(shares.relays);
    info!(
        listeners = limits.listeners,
        connections = limits.connections,
        associations = limits.associations,
        "limits of the relays"
    );
    let timeouts = limits::timeouts(&config.conntrack);
    let tcp = relay::tcp::TcpTimeouts { idle: timeouts.tcp_established, half_closed: timeouts.tcp_close_wait };
    let udp = relay::udp::UdpTimeouts { single: timeouts.udp, conversation: timeouts.udp_stream };
    relay::engine::RelayShared::new(limits, tcp, udp)
}

/// `None` if no rule drops INVALID packets, to save reading counters.
fn invalid_packets(config: &Config, counters: &[(Family, CounterReader)]) -> anyhow::Result<Option<AtScrape>> {
    let of_all_families = || rules::invalid_packets(counters.iter().map(|(_, one)| one.clone()).collect());
    Ok((!config.tcp_be_liberal).then(of_all_families).transpose()?)
}

/// Probes the kernel's features first.
fn nftables(
    config: &Config,
    shares: DescriptorShares,
) -> anyhow::Result<OpenedMode<nftables::syncer::NftablesSyncer<kernel::nftables::NetlinkTable>>> {
    let (mut proxies, mut stats) = (Vec::new(), Vec::new());
    for range in ranges_without_relay(config) {
        warn!(
            "nodePortAddresses (--nodeport-addresses): node ports do not answer in {range}: the only loopback addresses for them are 127.0.0.1 and ::1"
        );
    }
    let mut shared = None;
    for family in Family::ALL {
        let opened = kernel::nftables::NetlinkTable::probe(family, layout::PROBE, &nftables::syncer::probe(family))
            .and_then(|()| kernel::nftables::NetlinkTable::open(family, layout::TABLE, layout::COMMENT));
        match opened {
            Ok(table) => {
                let proxy = assemble::nftables(config, family, table, |address| {
                    let shared = shared.get_or_insert_with(|| relays(config, shares));
                    let relays = RelayEngine::on(address, Arc::clone(shared));
                    stats.push((family, relays.stats()));
                    relays
                });
                proxies.push(match flowtable(config, family) {
                    Some(flowtable) => proxy.with_companion(LongConnections::new(flowtable)),
                    None => proxy,
                });
            }
            Err(error) if family != config.primary_family => warn!(%family, %error, "this family is not proxied"),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot proxy {family}, the primary family, in nftables mode"));
            }
        }
    }
    let families: Vec<Family> = proxies.iter().map(FamilyProxy::family).collect();
    let without = if config.flowtable { None } else { leftovers::flowtables(&proxies) };
    let leftovers = all(vec![leftovers::ipvs(config), leftovers::iptables(families), without]);
    let metrics = if stats.is_empty() {
        Vec::new()
    } else {
        vec![
            localhost::listeners(stats.clone())?,
            localhost::rejected(stats.iter().map(|(family, _)| *family))?,
            relays::metrics(stats)?,
        ]
    };
    Ok(OpenedMode { proxies, counters: Vec::new(), nft: true, leftovers, metrics })
}

fn flowtable(config: &Config, family: Family) -> Option<NetlinkFlowtable> {
    let spec = |table| FlowtableSpec {
        table,
        comment: of_flowtable::COMMENT,
        name: of_flowtable::FLOWTABLE,
        priority: of_flowtable::PRIORITY,
        chain: of_flowtable::chain(),
    };
    let opened = || {
        NetlinkFlowtable::probe(family, spec(of_flowtable::PROBE))?;
        NetlinkFlowtable::open(family, spec(of_flowtable::TABLE))
    };
    let opened = config.flowtable.then(opened)?;
    opened
        .inspect_err(|error| {
            warn!(%family, %error, "nftables.flowtable (--nftables-flowtable) has no effect: this kernel, or this namespace, has no flowtables");
        })
        .ok()
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
    let relaying = config.mode == Mode::Userspace || relays_localhost(&config);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = if relaying { processors.max(2) } else { 2 };
    threads::check(workers)?;
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
        let StartContext { shares, about, instance } = start_up;
        tokio::spawn(instance.answer());
        let metrics = Metrics::of_mode(config.mode, &[]).context("cannot set up the metrics")?;
        metrics.register(unknown_fields(file)?)?;
        match origin {
            ObjectOrigin::Manifests(directory) => {
                let proxy = StartedProxy::serve(config, shares, about, metrics, Recorder::default())?;
                proxy.run(opening, |_| ManifestSource::open(directory)).await
            }
            ObjectOrigin::Kubernetes(access, connection) => {
                let accepted = AcceptedTypes::new(&connection.accept_content_types, &connection.content_type);
                let connector = Connector::new(access.clone(), &metrics.requests())
                    .accepting(accepted)
                    .limited_to(connection.qps, u32::try_from(connection.burst).unwrap_or_default());
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
                            let api = (access, &connector, &proxy.scope());
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
    prepare_kernel(&mut config)
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

    fn scope(&self) -> WatchScope {
        let service_cidrs = self.config.mode == Mode::Nftables;
        WatchScope { node_name: self.config.node_name.clone(), service_cidrs }
    }

    fn kubernetes(&self, connector: Connector) -> KubernetesSource {
        let reports = SourceReports { failures: self.metrics.api_failures(), events: self.events.clone() };
        KubernetesSource::start(connector, self.scope(), &ReflectorTiming::default(), &reports)
    }

    async fn run<M: ModeAtWork + Send + 'static, S: ObjectSource + Send>(
        mut self,
        opening: oneshot::Receiver<anyhow::Result<OpenedMode<M>>>,
        source: impl FnOnce(&StartedProxy) -> Result<S, SourceError>,
    ) -> anyhow::Result<()> {
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
        let source = AwaitPodCidr::new(source(&self)?, &self.config);
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
    shares: DescriptorShares,
    about: StaticPages,
    instance: InstanceLock,
}

struct StartFile<'a> {
    file: Option<&'a LoadedConfig>,
    restart: RestartOnChange,
}

struct OpenedMode<M> {
    proxies: Vec<FamilyProxy<M>>,
    counters: Vec<(Family, CounterReader)>,
    nft: bool,
    leftovers: Option<LeftoverCleanup>,
    metrics: Vec<AtScrape>,
}

fn open_iptables<M: ModeAtWork>(
    config: &Config,
    mut assemble: impl FnMut(Family, IptablesWriter) -> anyhow::Result<FamilyProxy<M>>,
) -> anyhow::Result<OpenedMode<M>> {
    let (mut proxies, mut counters) = (Vec::new(), Vec::new());
    let mut nft = config.variant == Variant::Nft;
    for family in Family::ALL {
        let opened = IptablesWriter::open(family, config.variant, config.writer).and_then(|mut opened| {
            nft = opened.writer.is_nft();
            opened.writer.probe()?;
            Ok(opened)
        });
        match opened {
            Ok(OpenedWriter { writer, because }) => {
                info!(%family, writer = writer.name(), "how the tables are written: {because}");
                other_variant::warn_about_rules(family, nft);
                counters.push((family, writer.counters()));
                proxies.push(assemble(family, writer)?);
            }
            // As in kube-proxy: a node may lack one family.
            Err(error) if family != config.primary_family => warn!(%family, %error, "this family is not proxied"),
            Err(error) => return Err(error).with_context(|| format!("cannot proxy {family}, the primary family")),
        }
    }
    Ok(OpenedMode { proxies, counters, nft, leftovers: None, metrics: Vec::new() })
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

fn prepare_kernel(config: &mut Config) -> anyhow::Result<()> {
    for refused in limits::set_conntrack(&config.conntrack) {
        warn!("{refused}");
    }
    if config.tcp_be_liberal {
        sysctl::ensure(sysctl::TCP_BE_LIBERAL, "1").context("conntrack.tcpBeLiberal (--conntrack-tcp-be-liberal)")?;
    } else if sysctl::read(sysctl::TCP_BE_LIBERAL).is_ok_and(|value| value != "0") {
        // The node has set the sysctl: dropping INVALID packets would undo its effect.
        config.tcp_be_liberal = true;
    }
    if config.mode == Mode::Ipvs {
        // Loads the kernel module, which provides the sysctls below.
        let mut servers = Genetlink::open().context("IPVS mode")?;
        prepare::apply(config.ipvs.strict_arp).context("IPVS mode")?;
        servers.set_timeouts(&config.ipvs.timeouts)?;
        servers.try_scheduler(&config.ipvs.scheduler).context("ipvs.scheduler (--ipvs-scheduler)")?;
    }
    if routes_loopback(config)
        && let Err(error) = sysctl::ensure(sysctl::ROUTE_LOCALNET, "1")
    {
        warn!(%error, "node ports on 127.0.0.1 will not work; --iptables-localhost-nodeports=false does without");
        config.localhost_node_ports = false;
    }
    Ok(())
}
