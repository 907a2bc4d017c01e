//! A running cluster with its objects and proxies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use svclab_apiserver::SharedStore;
use svclab_apiserver::objects::Store;
use svclab_cluster::process::{ExecOutput, ProcessEnd};
use svclab_cluster::traffic::client::ProbeConnection;
use svclab_cluster::traffic::probe::ClusterHost;
use svclab_cluster::{Cluster, ClusterError};
use svclab_netns::sandbox::{WORK_DIR, path_with_sbin};

use super::applied::{LateProxy, ProxyPart};
use super::background::{BackgroundTraffic, Epochs};
use super::command_faults;
use super::error::{FailedStart, LabError, make};
use super::evidence::EvidenceKeeper;
use super::faults::Faults;
use super::feed::{Feed, FeedPlace};
use super::marker::{self, Marker};
use super::proxies::Proxies;
use super::{Damage, RunOptions};
use crate::expect::Mismatch;
use crate::mode::Mode;
use crate::report::Idle;
use crate::scenario::{IptablesVariant, Scenario};

/// The limit of a command, and of a request to a proxy: whatever takes longer hangs. An audit took six seconds on a busy
/// machine.
pub(super) const HANGS_AFTER: Duration = Duration::from_secs(30);
/// The last lines of each proxy's log in the report of a failed start.
const START_LOG_LINES: usize = 10;

pub struct KernelLab {
    pub(super) started: Instant,
    pub(super) breaks: Vec<Damage>,
    pub(super) cluster: Cluster,
    pub(super) store: SharedStore,
    pub(super) feed: Feed,
    pub(super) proxies: Proxies,
    /// `--patience`.
    pub(super) patience: Option<Duration>,
    pub(super) virtual_time: bool,
    /// Whether the processor may be emulated while the clock is the host's.
    pub(super) emulated: bool,
    /// Whether the machine is a microVM, where nothing but this lab runs.
    pub(super) in_guest: bool,
    tools: Option<PathBuf>,
    /// Shows applied changes of proxies that do not report them.
    pub(super) marker: Option<Marker>,
    pub(super) took: Vec<Duration>,
    pub(super) idle_usage: Idle,
    pub(super) connections: BTreeMap<String, ProbeConnection>,
    pub(super) traffic: BTreeMap<String, BackgroundTraffic>,
    pub(super) epochs: Epochs,
    pub(super) cut_off: BTreeSet<String>,
    /// Nodes whose proxies the next step kills, with the time since the start of the restore.
    pub(super) armed: BTreeMap<String, Duration>,
    pub(super) faults: Faults,
    pub(super) metrics: BTreeMap<(String, String), f64>,
    pub(super) keeper: Option<EvidenceKeeper>,
    pub(super) audits: bool,
    /// A real API server's refusal: from then on the cluster differs from the scenario.
    pub(super) refused: Option<String>,
    /// The parts of proxies that the last change has not reached, although it has reached others.
    pub(super) late: Vec<Mismatch>,
}

impl KernelLab {
    /// Builds the cluster, publishes the objects, starts the proxies and waits until all have applied the objects. Starts
    /// also if only some families have; [`KernelLab::take_late`] has the others.
    pub async fn start(scenario: &Scenario, options: &RunOptions) -> Result<KernelLab, LabError> {
        let store = SharedStore::new(scenario.initial_objects()?);
        let tools = tools(options.variant)?;
        let cluster = Cluster::build(&store.read(|store| store.cluster_spec())).await?;
        let at = FeedPlace { source: options.source, api_server: scenario.api_server.as_deref() };
        let feed = Feed::start(at, options.control_plane.as_ref(), &cluster, &store, &scenario.options).await?;
        let mut proxies = Proxies::new(options, &scenario.proxy, tools.as_deref().map(path_with));
        let real = tools.as_deref().map_or_else(machine_path, path_with);
        proxies.set_fault_paths(command_faults::paths(scenario, &real)?);
        let marker = if proxies.are_foreign() || options.measure.is_some() { Marker::new(&cluster) } else { None };
        let mut epochs = Epochs::default();
        store.read(|store| epochs.begin(store));
        let breaks = options.breaks.iter().filter(|damage| damage.is_for(&scenario.name));
        let mut lab = KernelLab {
            started: Instant::now(),
            breaks: breaks.cloned().collect(),
            cluster,
            store,
            feed,
            proxies,
            patience: options.patience,
            in_guest: options.machine.is_some(),
            virtual_time: options.machine.as_ref().is_some_and(|machine| machine.deterministic),
            emulated: options.machine.as_ref().is_some_and(|machine| !machine.deterministic),
            tools,
            marker,
            took: Vec::new(),
            idle_usage: Idle::default(),
            connections: BTreeMap::new(),
            traffic: BTreeMap::new(),
            epochs,
            cut_off: BTreeSet::new(),
            armed: BTreeMap::new(),
            faults: Faults::default(),
            metrics: BTreeMap::new(),
            keeper: EvidenceKeeper::new(scenario, options),
            audits: options.audit,
            refused: None,
            late: Vec::new(),
        };
        if lab.publish().await?.is_some() {
            return Ok(lab);
        }
        for node in lab.nodes() {
            lab.proxies.start(&lab.cluster, &lab.feed, &node).await?;
        }
        match lab.applied(Instant::now()).await? {
            None => Ok(lab),
            Some(mismatch) => {
                let logs = lab.logs(START_LOG_LINES);
                if let Some(refused) = lab.proxies.refused() {
                    return Err(LabError::Refused(refused));
                }
                let never_ready = lab.proxies.are_alive();
                let evidence = lab.keep_start(&mismatch).await;
                Err(LabError::Proxy(Box::new(FailedStart { mismatch, logs, never_ready, evidence })))
            }
        }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn read<R>(&self, look: impl FnOnce(&Store) -> R) -> R {
        self.store.read(look)
    }

    pub fn kubeconfig(&self, node: &str) -> Option<PathBuf> {
        self.feed.kubeconfig(node)
    }

    pub(super) fn nodes(&self) -> Vec<String> {
        self.cluster.spec().nodes.into_iter().map(|node| node.name).collect()
    }

    /// Publishes the objects, also load-balancer addresses. Returns a real API server's refusal.
    pub(super) async fn publish(&mut self) -> Result<Option<String>, LabError> {
        match self.feed.publish(&self.store).await {
            Err(LabError::ControlPlane(error)) if error.is_refusal() => {
                self.refused = Some(error.to_string());
                return Ok(self.refused.clone());
            }
            published => published?,
        }
        if self.cluster.spec().load_balancer.is_some() {
            self.cluster.set_vips(self.store.read(|store| store.vips())).await?;
        }
        Ok(None)
    }

    /// Waits until the running proxies have applied the objects as of `since`, except on nodes that are cut off or have
    /// a fault. Returns at once while the API withholds changes.
    pub(super) async fn applied(&mut self, since: Instant) -> Result<Option<Mismatch>, LabError> {
        if self.feed.withholds() {
            // The lists after the fault are empty without Services.
            if let Some(marker) = self.marker.as_mut().filter(|_| self.store.read(marker::is_alone)) {
                marker.withdraw(&self.store)?;
                self.feed.publish(&self.store).await?;
            }
            return Ok(None);
        }
        let excluded = &(&self.cut_off | &self.faults.nodes());
        let late = match self.marker {
            None => self.version_applied(excluded).await?,
            Some(_) => self.marker_applied(since, excluded).await?,
        };
        self.proxies.have_been_waited_for(&self.proxies.running(excluded));
        let (partly, mut wholly): (Vec<_>, Vec<_>) = late.into_iter().partition(|late| !late.parts.is_empty());
        for late in partly {
            self.proxies.give_up(&late);
            self.late.push(late.mismatch);
        }
        // Older states may still apply where a proxy is dead, late, cut off or has a fault.
        let all = self.proxies.given_up().is_empty() && self.proxies.running(excluded) == self.nodes();
        if wholly.is_empty() && all {
            self.epochs.settle();
        }
        Ok(if wholly.is_empty() { None } else { Some(wholly.swap_remove(0).mismatch) })
    }

    /// Returns what the last change has not reached, for one report.
    pub fn take_late(&mut self) -> Vec<Mismatch> {
        std::mem::take(&mut self.late)
    }

    /// Waits by the marker service, for proxies that do not report what they have applied.
    async fn marker_applied(
        &mut self,
        since: Instant,
        excluded: &BTreeSet<String>,
    ) -> Result<Vec<LateProxy>, LabError> {
        let Some(marker) = &mut self.marker else { return Ok(Vec::new()) };
        marker.avoid_nodes(&self.cluster, &self.cut_off);
        if self.store.read(marker::is_alone) {
            marker.withdraw(&self.store)?;
        } else {
            marker.advance(&self.cluster, &self.store).await?;
        }
        self.feed.publish(&self.store).await?;
        let nodes = self.proxies.running(excluded);
        // `/healthz` says 503 where the node is about to be deleted, however well the proxy is.
        let unasked = excluded | &self.store.read(|store| store.leaving_nodes());
        let both = async {
            tokio::join!(
                self.proxies.applied(&self.cluster, &self.feed, None, &unasked),
                marker.reached(&self.cluster, &self.proxies, &nodes, since),
            )
        };
        let (unwell, (took, mut late)) = tokio::select! {
            both = both => both,
            ended = self.proxies.wait_for_exit(&nodes) => (Ok(vec![ended]), Default::default()),
            refused = self.proxies.wait_for_refusal() => (Ok(vec![refused]), Default::default()),
        };
        let mut unwell = unwell?;
        // The health is a part of the proxy if services answer, and explains it if no service does.
        for proxy in unwell.iter_mut().filter(|proxy| took.contains_key(&proxy.node) || is_partial(&late, &proxy.node))
        {
            proxy.parts = vec![ProxyPart::Health];
        }
        unwell.append(&mut late);
        let late = unwell;
        self.took.extend(took.into_values());
        // The marker may be some milliseconds ahead of the change.
        if late.is_empty() && !self.proxies.are_foreign() {
            return self.version_applied(excluded).await;
        }
        Ok(late)
    }

    async fn version_applied(&self, excluded: &BTreeSet<String>) -> Result<Vec<LateProxy>, LabError> {
        let version = self.feed.version(&self.store);
        Ok(self.proxies.applied(&self.cluster, &self.feed, Some(&version), excluded).await?)
    }

    pub(super) async fn exec(&self, place: &ClusterHost, argv: &[String]) -> Result<ExecOutput, ClusterError> {
        self.exec_within(place, argv, HANGS_AFTER).await
    }

    pub(super) async fn exec_within(
        &self,
        place: &ClusterHost,
        argv: &[String],
        limit: Duration,
    ) -> Result<ExecOutput, ClusterError> {
        let with_path = self.tools.as_ref().map(|tools| {
            let assignment = format!("PATH={}", path_with(tools));
            ["env".to_owned(), assignment].into_iter().chain(argv.iter().cloned()).collect::<Vec<_>>()
        });
        self.cluster.exec(place, with_path.as_deref().unwrap_or(argv), limit).await
    }

    /// Like [`KernelLab::exec`], but fails if the command fails.
    pub(super) async fn output_of(&self, place: &ClusterHost, argv: &[String]) -> Result<String, LabError> {
        let output = self.exec(place, argv).await?;
        if output.ended == ProcessEnd::Exited(0) {
            return Ok(output.stdout);
        }
        let problem = format!("{:?}: {}", output.ended, output.stderr.trim());
        Err(LabError::Command { command: argv.join(" "), place: place.to_string(), problem })
    }

    pub(super) async fn damage(&self, damage: &Damage) -> Result<(), LabError> {
        // Stopped proxies cannot repair the damage. In userspace mode the proxy keeps running: a stopped one relays
        // nothing, and a running one misses damage outside its canary chains.
        let nodes = self.nodes();
        let relayed = nodes.iter().any(|node| self.proxies.mode_of(node) == Mode::Userspace);
        if !relayed || damage.commands.is_empty() {
            self.proxies.stop_all().await?;
        }
        let chosen = damage.at.among(nodes.iter().map(String::as_str)).map_err(LabError::Step)?;
        for node in chosen {
            for command in &damage.commands {
                let argv = ["sh", "-euc", command].map(str::to_owned);
                self.output_of(&ClusterHost::Node(node.clone()), &argv).await?;
            }
        }
        Ok(())
    }

    pub fn logs(&self, lines: usize) -> String {
        self.proxies.logs(lines)
    }
}

fn is_partial(late: &[LateProxy], node: &str) -> bool {
    late.iter().any(|late| late.node == node && !late.parts.is_empty())
}

fn path_with(tools: &std::path::Path) -> String {
    format!("{}:{}", tools.display(), machine_path())
}

fn machine_path() -> String {
    path_with_sbin().to_string_lossy().into_owned()
}

/// Returns a directory with the commands of the chosen iptables; `None`: the machine's choice.
fn tools(variant: IptablesVariant) -> Result<Option<PathBuf>, LabError> {
    let program = match variant {
        IptablesVariant::Auto => return Ok(None),
        IptablesVariant::Nft | IptablesVariant::NftCommands => "xtables-nft-multi",
        IptablesVariant::Legacy => "xtables-legacy-multi",
    };
    let directory = PathBuf::from(WORK_DIR).join(variant.name());
    make(&directory)?;
    let path = path_with_sbin();
    let found = std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.exists());
    let found = found
        .ok_or_else(|| LabError::Step(format!("this machine has no {program}; the package iptables brings it")))?;
    for name in ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"] {
        let link = directory.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(&found, &link).map_err(|source| LabError::Directory { path: link, source })?;
        }
    }
    Ok(Some(directory))
}
