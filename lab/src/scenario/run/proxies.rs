//! A cluster's proxies, one per node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use svclab_audit::owner::ProxyTables;
use svclab_cluster::process::{OutputReader, ProcessEnd, ProcessHandle, ProcessSpec, ProcessUsage};
use svclab_cluster::traffic::probe::ClusterHost;
use svclab_cluster::{Cluster, ClusterError};
use svclab_netns::sandbox::{self, WORK_DIR};

use super::RunOptions;
use super::applied::{LateProxy, PAUSE, ProxyPart, ReadinessQuestion, ended, wait};
use super::error::LabError;
use super::feed::{Feed, ObjectsVersion};
use super::node_modes::NodeModes;
use super::patience::{PATIENCE, Patience};
use super::proxy::{ForeignProxy, HEALTH, Placeholders, ProxyUnderTest, Ready};
use crate::expect::Mismatch;
use crate::mode::Mode;
use crate::scenario::file::ProxyOverride;
use crate::scenario::{IptablesVariant, ProxySettings};

/// The EMSGSIZE error of iptables-nft and nft: the socket buffer is too small for a transaction.
const TOO_LONG: &str = "Message too long";

/// The nftables tables of both svcproxy and kube-proxy.
const NFT_TABLES: [&str; 2] = ["ip kube-proxy", "ip6 kube-proxy"];

const LOOK: Duration = Duration::from_secs(1);

/// svcproxy's state files, one per node. Not beside the configuration, which proxies watch.
const STATE_FILES: &str = "/run/svclab/state";

pub(super) const SIGKILL: i32 = 9;
pub(super) const SIGTERM: i32 = 15;

pub(super) struct Proxies {
    proxy: ProxyUnderTest,
    modes: NodeModes,
    /// What steps have changed, by node.
    different: BTreeMap<String, ProxyOverride>,
    variant: IptablesVariant,
    /// `PATH` with the chosen iptables first, for foreign proxies.
    path: Option<(String, String)>,
    faked: BTreeMap<String, String>,
    settings: ProxySettings,
    prepared: BTreeSet<String>,
    running: BTreeMap<String, ProcessHandle>,
    /// Nodes whose proxy the lab has not yet waited for since its start.
    starting: BTreeSet<String>,
    last_logs: BTreeMap<String, String>,
    used: Vec<ProcessUsage>,
    /// The parts of nodes' proxies that were late once; the lab no longer waits for them.
    given_up: BTreeMap<String, BTreeSet<ProxyPart>>,
    /// Whether the API server has failed: its clients may sleep before they ask again.
    backs_off: bool,
}

impl Proxies {
    pub(super) fn new(options: &RunOptions, settings: &ProxySettings, path: Option<String>) -> Self {
        // Files of an earlier scenario must not reach the proxies.
        let _ = std::fs::remove_dir_all(STATE_FILES);
        Proxies {
            proxy: options.proxy.clone(),
            modes: NodeModes::new(options.mode),
            different: BTreeMap::new(),
            variant: options.variant,
            path: path.map(|path| ("PATH".to_owned(), path)),
            faked: BTreeMap::new(),
            settings: settings.clone(),
            prepared: BTreeSet::new(),
            running: BTreeMap::new(),
            starting: BTreeSet::new(),
            last_logs: BTreeMap::new(),
            used: Vec::new(),
            given_up: BTreeMap::new(),
            backs_off: false,
        }
    }

    pub(super) fn set_backs_off(&mut self) {
        self.backs_off = true;
    }

    pub(super) fn give_up(&mut self, late: &LateProxy) {
        self.given_up.entry(late.node.clone()).or_default().extend(late.parts.iter().cloned());
    }

    pub(super) fn given_up(&self) -> &BTreeMap<String, BTreeSet<ProxyPart>> {
        &self.given_up
    }

    pub(super) fn patience(&self, node: &str) -> Option<Patience<'_>> {
        Some(self.patience_with(node, self.running.get(node)?))
    }

    fn patience_with<'a>(&self, node: &str, handle: &'a ProcessHandle) -> Patience<'a> {
        let limit = match &self.proxy {
            ProxyUnderTest::Foreign(foreign) if self.starting.contains(node) => foreign.start_timeout(),
            ProxyUnderTest::Own(_) | ProxyUnderTest::Foreign(_) => None,
        };
        Patience::new(handle, self.backs_off, limit)
    }

    pub(super) fn have_been_waited_for(&mut self, nodes: &[String]) {
        self.starting.retain(|node| !nodes.contains(node));
    }

    pub(super) fn are_alive(&self) -> bool {
        self.running.values().all(ProcessHandle::is_alive)
    }

    pub(super) fn set_fault_paths(&mut self, paths: BTreeMap<String, String>) {
        self.faked = paths;
    }

    pub(super) fn mode_of(&self, node: &str) -> Mode {
        self.modes.of(node)
    }

    /// Returns the tables of nftables that a node's proxy writes.
    pub(super) fn nft_tables(&self, node: &str) -> Vec<String> {
        let described = match &self.proxy {
            ProxyUnderTest::Own(_) => None,
            ProxyUnderTest::Foreign(foreign) => foreign.tables(),
        };
        match (described, self.mode_of(node)) {
            (Some(tables), _) => tables.to_vec(),
            (None, Mode::Nftables) => NFT_TABLES.map(str::to_owned).to_vec(),
            (None, Mode::Iptables | Mode::Ipvs | Mode::Userspace | Mode::Other) => Vec::new(),
        }
    }

    /// Returns the tables of nftables by which audits know the proxy's rules.
    pub(super) fn audited_tables(&self) -> ProxyTables {
        match &self.proxy {
            ProxyUnderTest::Own(_) => ProxyTables::default(),
            ProxyUnderTest::Foreign(foreign) => foreign.audited_tables(),
        }
    }

    pub(super) fn excused_promises(&self, node: &str) -> BTreeMap<String, String> {
        match &self.proxy {
            ProxyUnderTest::Own(_) => BTreeMap::new(),
            ProxyUnderTest::Foreign(foreign) => foreign.excused_promises(self.mode_of(node)),
        }
    }

    pub(super) fn set(&mut self, node: &str, different: ProxyOverride) {
        if let Some(mode) = different.mode {
            self.modes.set(node, mode);
        }
        let all = self.different.entry(node.to_owned()).or_default();
        *all = different.or(*all);
    }

    pub(super) async fn start(&mut self, cluster: &Cluster, feed: &Feed, node: &str) -> Result<(), LabError> {
        self.configure(feed, node)?;
        self.prepare(cluster, feed, node).await?;
        let mut process = match &self.proxy {
            ProxyUnderTest::Own(program) => {
                let mut args =
                    vec![format!("--config={}", configuration(node).display()), format!("--hostname-override={node}")];
                args.extend(feed.manifests().map(|directory| format!("--manifests={}", directory.display())));
                args.extend(self.variant.flags(&self.settings.flags()));
                ProcessSpec { program: program.clone(), args, env: Vec::new() }
            }
            ProxyUnderTest::Foreign(foreign) => self.foreign(foreign, &foreign.command, feed, node),
        };
        process.env.extend(self.faked.get(node).map(|path| ("PATH".to_owned(), path.clone())));
        let handle = cluster.spawn_on_node(node, process).await?;
        self.running.insert(node.to_owned(), handle);
        self.starting.insert(node.to_owned());
        Ok(())
    }

    /// Whether only traffic shows what the proxy has applied.
    pub(super) fn are_foreign(&self) -> bool {
        self.proxy.is_foreign()
    }

    /// Returns why the machine is to blame: it refused a privilege that every node grants.
    pub(super) fn refused(&self) -> Option<String> {
        let seen = || self.logs(usize::MAX).contains(TOO_LONG);
        (self.are_foreign() && sandbox::lacks_root() && seen()).then(|| {
            format!(
                "this user namespace refuses SO_SNDBUFFORCE, so that a transaction of the proxy's was too long ({TOO_LONG}): \
                 run as root, or with --kernel debian-6.1"
            )
        })
    }

    /// Writes the proxy's configuration file. Must not run while the proxy starts and reads the file.
    fn configure(&self, feed: &Feed, node: &str) -> Result<(), ClusterError> {
        let mut config =
            self.settings.configuration(self.mode_of(node), self.different.get(node).copied().unwrap_or_default());
        if let Some(kubeconfig) = feed.kubeconfig(node) {
            config["clientConnection"] = json!({ "kubeconfig": kubeconfig });
        }
        match &self.proxy {
            ProxyUnderTest::Foreign(foreign) => config = foreign.configuration(&config),
            ProxyUnderTest::Own(_) => {
                config["restartOnConfigChange"] = self.settings.restarts_on_config_change().into();
                if self.settings.has_state_file() && feed.manifests().is_none() {
                    config["stateFile"] = json!({ "path": Path::new(STATE_FILES).join(node) });
                }
            }
        }
        let path = configuration(node);
        let directory = path.parent().unwrap_or(Path::new(WORK_DIR));
        let written = [directory, Path::new(STATE_FILES)]
            .into_iter()
            .try_for_each(std::fs::create_dir_all)
            .and_then(|()| std::fs::write(&path, format!("{config:#}\n")));
        written.map_err(ClusterError::io(format!("writing {}", path.display())))
    }

    /// Runs `init` once per node.
    async fn prepare(&mut self, cluster: &Cluster, feed: &Feed, node: &str) -> Result<(), LabError> {
        let ProxyUnderTest::Foreign(foreign) = &self.proxy else { return Ok(()) };
        let Some(init) = foreign.init.as_ref().filter(|_| !self.prepared.contains(node)) else { return Ok(()) };
        let argv = argv(self.foreign(foreign, init, feed, node));
        let output = cluster.exec(&ClusterHost::Node(node.to_owned()), &argv, PATIENCE).await?;
        if !output.success() {
            let problem = format!("{:?}: {}", output.ended, output.stderr.trim());
            let (command, place) = (format!("init of {}: {}", foreign.name, init.join(" ")), format!("node/{node}"));
            return Err(LabError::Command { command, place, problem });
        }
        self.prepared.insert(node.to_owned());
        Ok(())
    }

    fn foreign(&self, foreign: &ForeignProxy, command: &[String], feed: &Feed, node: &str) -> ProcessSpec {
        let shown = |path: &Path| path.display().to_string();
        let places: Placeholders = [
            ("node", node.to_owned()),
            ("kubeconfig", feed.kubeconfig(node).as_deref().map(shown).unwrap_or_default()),
            ("config", shown(&configuration(node))),
            ("mode", self.mode_of(node).to_string()),
        ];
        let mut process = foreign.process(command, &places);
        process.env.splice(..0, self.path.clone());
        process
    }

    /// Returns the question whether the proxy has applied `version`; `None`: whether it is healthy.
    fn question(
        &self,
        feed: &Feed,
        node: &str,
        version: Option<&ObjectsVersion>,
    ) -> Result<ReadinessQuestion, ClusterError> {
        if let Some(version) = version {
            let ignored = self.given_up.get(node).cloned().unwrap_or_default();
            return Ok(ReadinessQuestion::Version(version.clone(), ignored));
        }
        let ProxyUnderTest::Foreign(foreign) = &self.proxy else {
            return Ok(ReadinessQuestion::Url(HEALTH, "/healthz".to_owned()));
        };
        Ok(match &foreign.ready {
            _ if self.given_up.get(node).is_some_and(|parts| parts.contains(&ProxyPart::Health)) => {
                ReadinessQuestion::Running
            }
            Ready::Url { address, path } => ReadinessQuestion::Url(*address, path.clone()),
            Ready::Command(command) => ReadinessQuestion::Command(argv(self.foreign(foreign, command, feed, node))),
            Ready::Marker => ReadinessQuestion::Running,
        })
    }

    pub(super) async fn wait_for_exit(&self, nodes: &[String]) -> LateProxy {
        let running = || nodes.iter().filter_map(|node| Some((node, self.running.get(node)?)));
        loop {
            if let Some((node, handle)) = running().find(|(_, handle)| !handle.is_alive()) {
                return LateProxy::wholly(node, ended(ReadinessQuestion::Running.expected(node), handle));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(super) async fn wait_for_refusal(&self) -> LateProxy {
        loop {
            if let Some(why) = self.refused() {
                return LateProxy::wholly("", Mismatch::new("the proxies may have what they need", why));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Writes the changed configuration file, and waits until the proxy ends because of it. Its status has to be an
    /// error's: systemd's `Restart=on-failure` starts no other again.
    pub(super) async fn end_by_change(
        &self,
        feed: &Feed,
        node: &str,
        limit: Duration,
    ) -> Result<Option<Mismatch>, ClusterError> {
        self.configure(feed, node)?;
        let seen = match self.running.get(node) {
            None => "no proxy runs there".to_owned(),
            Some(handle) => match handle.wait(limit).await {
                Ok(ProcessEnd::Exited(1..)) => return Ok(None),
                Ok(ended) => format!("{ended:?}"),
                Err(_) => format!("it runs {} s later", limit.as_secs_f64()),
            },
        };
        let expected = format!("the proxy on {node} ends, with an error's status, when its configuration file changes");
        Ok(Some(Mismatch::new(expected, seen)))
    }

    pub(super) async fn end(&mut self, node: &str, signal: i32) -> Result<(), ClusterError> {
        if let Some(handle) = self.running.remove(node) {
            self.used.extend(handle.usage());
            handle.signal(signal)?;
            handle.wait(PATIENCE).await?;
            self.last_logs.insert(node.to_owned(), handle.log_tail(50));
        }
        Ok(())
    }

    pub(super) async fn stop_all(&self) -> Result<(), ClusterError> {
        for handle in self.running.values() {
            handle.stop(PATIENCE).await?;
        }
        Ok(())
    }

    pub(super) async fn cleanup(
        &mut self,
        cluster: &Cluster,
        feed: &Feed,
        node: &str,
    ) -> Result<Option<Mismatch>, ClusterError> {
        self.configure(feed, node)?;
        let argv = match &self.proxy {
            ProxyUnderTest::Own(program) => {
                let config = format!("--config={}", configuration(node).display());
                let mut line = vec![program.display().to_string(), "--cleanup".to_owned(), config];
                line.extend(self.variant.flags(&self.settings.flags()));
                line
            }
            ProxyUnderTest::Foreign(foreign) => match &foreign.cleanup {
                Some(command) => argv(self.foreign(foreign, command, feed, node)),
                None => {
                    let expected = format!("{} has a clean-up command", foreign.name);
                    return Ok(Some(Mismatch::new(expected, "`cleanup` is not in its description")));
                }
            },
        };
        let output = cluster.exec(&ClusterHost::Node(node.to_owned()), &argv, PATIENCE).await?;
        let clean = output.ended == ProcessEnd::Exited(0);
        self.modes.cleaned(node);
        let seen = || format!("{:?}: {}", output.ended, output.stderr.trim());
        Ok((!clean).then(|| Mismatch::new(format!("--cleanup succeeds on {node}"), seen())))
    }

    pub(super) fn handle(&self, node: &str) -> Option<&ProcessHandle> {
        self.running.get(node)
    }

    /// Returns the nodes with a running proxy, sorted, without `cut_off`.
    pub(super) fn running(&self, cut_off: &BTreeSet<String>) -> Vec<String> {
        self.running.keys().filter(|node| !cut_off.contains(*node)).cloned().collect()
    }

    pub(super) fn draining(&self) -> &BTreeSet<String> {
        self.modes.draining()
    }

    pub(super) fn usage(&self) -> Vec<ProcessUsage> {
        self.used.iter().copied().chain(self.running.values().filter_map(ProcessHandle::usage)).collect()
    }

    /// Waits until the running proxies outside `cut_off` have applied `version`; `None`: until they are healthy.
    pub(super) async fn applied(
        &self,
        cluster: &Cluster,
        feed: &Feed,
        version: Option<&ObjectsVersion>,
        cut_off: &BTreeSet<String>,
    ) -> Result<Vec<LateProxy>, ClusterError> {
        let reached = self.running.iter().filter(|(node, _)| !cut_off.contains(*node));
        let waits = reached.map(async |(node, handle)| {
            let question = self.question(feed, node, version)?;
            let patience = self.patience_with(node, handle);
            Ok(wait(cluster, feed, node, handle, (&question, patience)).await)
        });
        let late: Vec<_> = futures_util::future::try_join_all(waits).await?;
        Ok(late.into_iter().flatten().collect())
    }

    pub(super) fn set_reader(&self, node: &str, reader: OutputReader) -> Result<(), ClusterError> {
        self.running.get(node).map_or(Ok(()), |handle| handle.set_reader(reader))
    }

    pub(super) fn log_of(&self, node: &str) -> String {
        let live = self.running.get(node).map(|handle| handle.log_tail(usize::MAX));
        live.or_else(|| self.last_logs.get(node).cloned()).unwrap_or_default()
    }

    pub(super) fn logs(&self, lines: usize) -> String {
        let live = self.running.iter().map(|(node, handle)| (node, handle.log_tail(lines)));
        let dead = self.last_logs.iter().filter(|(node, _)| !self.running.contains_key(*node));
        let tail = |log: &str| {
            let all: Vec<&str> = log.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        };
        let all = live.chain(dead.map(|(node, log)| (node, tail(log))));
        all.flat_map(|(node, log)| log.lines().map(|line| format!("{node}: {line}\n")).collect::<Vec<_>>()).collect()
    }
}

/// Returns a node's configuration file. Each has its own directory, which a proxy may watch.
pub(super) fn configuration(node: &str) -> PathBuf {
    PathBuf::from(WORK_DIR).join("config").join(node).join("config.yaml")
}

fn argv(process: ProcessSpec) -> Vec<String> {
    let variables = process.env.iter().map(|(name, value)| format!("{name}={value}"));
    let program = process.program.display().to_string();
    ["env".to_owned()].into_iter().chain(variables).chain([program]).chain(process.args).collect()
}
