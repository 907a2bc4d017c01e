//! A standing cluster with its objects and proxies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use svclab_apiserver::SharedStore;
use svclab_apiserver::objects::Store;
use svclab_cluster::process::{ExecOutput, ProcessEnd};
use svclab_cluster::traffic::client::ProbeConnection;
use svclab_cluster::traffic::probe::ClusterHost;
use svclab_cluster::{Cluster, ClusterError};
use svclab_netns::sandbox::WORK_DIR;

use super::applied::PATIENCE;
use super::background::{Background, Epochs};
use super::error::{LabError, make};
use super::evidence::Keeper;
use super::fakes;
use super::faults::Faults;
use super::feed::Feed;
use super::marker::Marker;
use super::proxies::Proxies;
use super::{Break, RunOptions};
use crate::expect::Mismatch;
use crate::mode::Mode;
use crate::report::Idle;
use crate::scenario::{Scenario, Variant};

/// How long a command of a step may take.
pub(super) const COMMAND: Duration = Duration::from_secs(30);

/// The cluster, its objects, its proxies, and what earlier steps left for later ones.
pub struct Lab {
    pub(super) started: Instant,
    /// Damage that is done before steps of this scenario.
    pub(super) breaks: Vec<Break>,
    pub(super) cluster: Cluster,
    pub(super) store: SharedStore,
    pub(super) feed: Feed,
    pub(super) proxies: Proxies,
    pub(super) patience: Duration,
    pub(super) virtual_time: bool,
    tools: Option<PathBuf>,
    /// Tells when a change has been applied, where the proxies do not.
    pub(super) marker: Option<Marker>,
    /// From each change to the moment at which a node had applied it, where that is measured.
    pub(super) took: Vec<Duration>,
    /// What the proxies did while nothing happened.
    pub(super) rested: Idle,
    pub(super) connections: BTreeMap<String, ProbeConnection>,
    pub(super) traffic: BTreeMap<String, Background>,
    pub(super) epochs: Epochs,
    /// Nodes that a `partition` step has cut off.
    pub(super) cut_off: BTreeSet<String>,
    /// Nodes whose proxies the next step kills in the middle of a restore, each with how long after its begin.
    pub(super) armed: BTreeMap<String, Duration>,
    /// What steps have done to nodes and not ended yet.
    pub(super) faults: Faults,
    /// Metrics as `metric` steps have noted them, by node and name.
    pub(super) metrics: BTreeMap<(String, String), f64>,
    /// What is kept of failed steps.
    pub(super) keeper: Option<Keeper>,
    /// Whether nodes are audited after steps.
    pub(super) audits: bool,
    /// What a real API server has refused: from then on the cluster is not what the scenario says.
    pub(super) refused: Option<String>,
}

impl Lab {
    /// Builds the cluster, publishes the objects, starts a proxy on every node and waits until all have applied them.
    ///
    /// # Errors
    /// Whatever of that does not work.
    pub async fn start(scenario: &Scenario, options: &RunOptions) -> Result<Lab, LabError> {
        let store = SharedStore::new(scenario.initial_objects()?);
        let tools = tools(options.variant)?;
        let cluster = Cluster::build(&store.read(|store| store.cluster_spec())).await?;
        let feed =
            Feed::start(options.source, options.control_plane.as_ref(), &cluster, &store, &scenario.options).await?;
        let mut proxies = Proxies::new(options, &scenario.proxy, tools.as_deref().map(path_with));
        let real = tools.as_deref().map_or_else(machine_path, path_with);
        proxies.find_first(fakes::paths(scenario, &real)?);
        let marker = if proxies.are_foreign() || options.measure.is_some() { Marker::new(&cluster) } else { None };
        let mut epochs = Epochs::default();
        store.read(|store| epochs.begin(store));
        let breaks = options.breaks.iter().filter(|damage| damage.is_for(&scenario.name));
        let mut lab = Lab {
            started: Instant::now(),
            breaks: breaks.cloned().collect(),
            cluster,
            store,
            feed,
            proxies,
            patience: options.patience,
            virtual_time: options.machine.as_ref().is_some_and(|machine| machine.deterministic),
            tools,
            marker,
            took: Vec::new(),
            rested: Idle::default(),
            connections: BTreeMap::new(),
            traffic: BTreeMap::new(),
            epochs,
            cut_off: BTreeSet::new(),
            armed: BTreeMap::new(),
            faults: Faults::default(),
            metrics: BTreeMap::new(),
            keeper: Keeper::new(scenario, options),
            audits: options.audit,
            refused: None,
        };
        if lab.publish().await?.is_some() {
            return Ok(lab);
        }
        for node in lab.nodes() {
            lab.proxies.start(&lab.cluster, &lab.feed, &node).await?;
        }
        match lab.applied(Instant::now()).await? {
            None => Ok(lab),
            Some(mismatch) => Err(lab.proxies.refused().map_or(LabError::Proxy(mismatch), LabError::Refused)),
        }
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Looks at the objects.
    pub fn read<R>(&self, look: impl FnOnce(&Store) -> R) -> R {
        self.store.read(look)
    }

    /// The kubeconfig of a node, if the lab serves the Kubernetes API.
    pub fn kubeconfig(&self, node: &str) -> Option<PathBuf> {
        self.feed.kubeconfig(node)
    }

    pub(super) fn nodes(&self) -> Vec<String> {
        self.cluster.spec().nodes.into_iter().map(|node| node.name).collect()
    }

    /// Tells the proxies and the load balancer what there is now. What comes back is what a real API server refuses of it.
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

    /// Waits until every running proxy has applied the objects as they have been since `since`, unless its node is cut off or
    /// has a fault;
    /// not while the API keeps something from them.
    pub(super) async fn applied(&mut self, since: Instant) -> Result<Option<Mismatch>, LabError> {
        if self.feed.withholds() {
            return Ok(None);
        }
        let unheard = &(&self.cut_off | &self.faults.nodes());
        let late = match &mut self.marker {
            None => self.version_applied(unheard).await?,
            Some(marker) => {
                marker.keep_off(&self.cluster, &self.cut_off);
                marker.advance(&self.cluster, &self.store).await?;
                self.feed.publish(&self.store).await?;
                match self.proxies.applied(&self.cluster, &self.feed, None, unheard).await? {
                    Some(unwell) => Some(unwell),
                    None => {
                        let nodes = self.proxies.running(unheard);
                        let reached = tokio::select! {
                            reached = marker.reached(&self.cluster, &nodes, since, PATIENCE) => reached,
                            ended = self.proxies.one_ends(&nodes) => Err(ended),
                            refused = self.proxies.one_is_refused() => Err(refused),
                        };
                        match reached {
                            Ok(took) => {
                                self.took.extend(took.into_values());
                                // The marker may show some milliseconds before the rest of the same change.
                                if self.proxies.are_foreign() { None } else { self.version_applied(unheard).await? }
                            }
                            Err(late) => Some(late),
                        }
                    }
                }
            }
        };
        // A proxy that is dead, cut off or in trouble leaves its node's rules as they were: older states are not over there.
        if late.is_none() && self.proxies.running(unheard) == self.nodes() {
            self.epochs.settle();
        }
        Ok(late)
    }

    /// Waits until every running proxy but those of `unheard` says that it has applied the objects as they are.
    async fn version_applied(&self, unheard: &BTreeSet<String>) -> Result<Option<Mismatch>, LabError> {
        let version = self.feed.version(&self.store);
        Ok(self.proxies.applied(&self.cluster, &self.feed, Some(&version), unheard).await?)
    }

    /// Runs a command with the chosen iptables first in its `PATH`.
    pub(super) async fn exec(&self, place: &ClusterHost, argv: &[String]) -> Result<ExecOutput, ClusterError> {
        self.exec_within(place, argv, COMMAND).await
    }

    /// The same with a limit of its own.
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

    /// Like [`Lab::exec`], for commands of the lab's own: anything but success is an error.
    pub(super) async fn must(&self, place: &ClusterHost, argv: &[String]) -> Result<String, LabError> {
        let output = self.exec(place, argv).await?;
        if output.ended == ProcessEnd::Exited(0) {
            return Ok(output.stdout);
        }
        let problem = format!("{:?}: {}", output.ended, output.stderr.trim());
        Err(LabError::Command { command: argv.join(" "), place: place.to_string(), problem })
    }

    /// Does damage on purpose.
    pub(super) async fn damage(&self, damage: &Break) -> Result<(), LabError> {
        // In userspace mode one that is stopped relays nothing, whatever the rules say; nor does it notice what leaves its
        // canary chains in place.
        let nodes = self.nodes();
        let relayed = nodes.iter().any(|node| self.proxies.mode_of(node) == Mode::Userspace);
        if !relayed || damage.commands.is_empty() {
            self.proxies.freeze().await?;
        }
        let chosen = damage.on.among(nodes.iter().map(String::as_str)).map_err(LabError::Step)?;
        for node in chosen {
            for command in &damage.commands {
                let argv = ["sh", "-euc", command].map(str::to_owned);
                self.must(&ClusterHost::Node(node.clone()), &argv).await?;
            }
        }
        Ok(())
    }

    /// The end of every proxy's log.
    pub fn logs(&self, lines: usize) -> String {
        self.proxies.logs(lines)
    }
}

/// `PATH` with `tools` first.
fn path_with(tools: &std::path::Path) -> String {
    format!("{}:{}", tools.display(), machine_path())
}

fn machine_path() -> String {
    std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned())
}

/// A directory in which `iptables` and its kin are the chosen variant's; `None` leaves the machine's own choice.
fn tools(variant: Variant) -> Result<Option<PathBuf>, LabError> {
    let program = match variant {
        Variant::Auto => return Ok(None),
        Variant::Nft | Variant::NftCommands => "xtables-nft-multi",
        Variant::Legacy => "xtables-legacy-multi",
    };
    let directory = PathBuf::from(WORK_DIR).join(variant.name());
    make(&directory)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let found =
        std::env::split_paths(&path).chain(sbin).map(|directory| directory.join(program)).find(|path| path.exists());
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
