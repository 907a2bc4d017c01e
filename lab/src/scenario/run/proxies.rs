//! One proxy per node: started, asked what it has applied, stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use svclab_cluster::process::{OutputReader, ProcessEnd, ProcessHandle, ProcessSpec, ProcessUsage};
use svclab_cluster::traffic::probe::ClusterHost;
use svclab_cluster::{Cluster, ClusterError};
use svclab_netns::sandbox::{self, WORK_DIR};

use super::RunOptions;
use super::applied::{PATIENCE, PAUSE, Question, ended, wait};
use super::error::LabError;
use super::feed::{Feed, Version};
use super::node_modes::NodeModes;
use super::proxy::{ForeignProxy, HEALTH, Places, Proxy, Ready};
use crate::expect::Mismatch;
use crate::mode::Mode;
use crate::scenario::file::{ProxyOverride, Scheduler};
use crate::scenario::{ProxySettings, Variant};

/// What iptables-nft and nft say of a transaction that the socket's buffer is too small for (EMSGSIZE).
const TOO_LONG: &str = "Message too long";

/// Between two looks at all that the proxies have said.
const LOOK: Duration = Duration::from_secs(1);

pub(super) const SIGKILL: i32 = 9;
pub(super) const SIGTERM: i32 = 15;

/// The proxies of a cluster.
pub(super) struct Proxies {
    proxy: Proxy,
    modes: NodeModes,
    /// The scheduler of each node's, where a step has said one.
    schedulers: BTreeMap<String, Scheduler>,
    variant: Variant,
    /// `PATH` with the chosen iptables first: the only way to tell a foreign proxy.
    path: Option<(String, String)>,
    /// `PATH` of nodes on which commands of iptables are faked.
    faked: BTreeMap<String, String>,
    settings: ProxySettings,
    /// Nodes on which another's proxy has been prepared by its `init`.
    prepared: BTreeSet<String>,
    running: BTreeMap<String, ProcessHandle>,
    last_words: BTreeMap<String, String>,
    /// What proxies that have been ended had used.
    used: Vec<ProcessUsage>,
}

impl Proxies {
    pub(super) fn new(options: &RunOptions, settings: &ProxySettings, path: Option<String>) -> Self {
        Proxies {
            proxy: options.proxy.clone(),
            modes: NodeModes::new(options.mode),
            schedulers: BTreeMap::new(),
            variant: options.variant,
            path: path.map(|path| ("PATH".to_owned(), path)),
            faked: BTreeMap::new(),
            settings: settings.clone(),
            prepared: BTreeSet::new(),
            running: BTreeMap::new(),
            last_words: BTreeMap::new(),
            used: Vec::new(),
        }
    }

    /// From their next start on the proxies of these nodes look for commands in these places.
    pub(super) fn find_first(&mut self, paths: BTreeMap<String, String>) {
        self.faked = paths;
    }

    /// The mode that the proxy of `node` is in, or was before its end.
    pub(super) fn mode_of(&self, node: &str) -> Mode {
        self.modes.of(node)
    }

    /// Promises that another's proxy is known to break in the mode that it has on `node`, each with the reason.
    pub(super) fn known(&self, node: &str) -> BTreeMap<String, String> {
        match &self.proxy {
            Proxy::Own(_) => BTreeMap::new(),
            Proxy::Foreign(foreign) => foreign.excused_promises(self.mode_of(node)),
        }
    }

    /// From its next start on the proxy of `node` is different.
    pub(super) fn set(&mut self, node: &str, different: ProxyOverride) {
        if let Some(mode) = different.mode {
            self.modes.set(node, mode);
        }
        self.schedulers.extend(different.scheduler.map(|scheduler| (node.to_owned(), scheduler)));
    }

    /// Starts the proxy of `node`; one that runs already is replaced.
    pub(super) async fn start(&mut self, cluster: &Cluster, feed: &Feed, node: &str) -> Result<(), LabError> {
        self.configure(feed, node)?;
        self.prepare(cluster, feed, node).await?;
        let mut process = match &self.proxy {
            Proxy::Own(program) => {
                let mut args =
                    vec![format!("--config={}", configuration(node).display()), format!("--hostname-override={node}")];
                args.extend(feed.manifests().map(|directory| format!("--manifests={}", directory.display())));
                args.extend(self.variant.flags(&self.settings.flags()));
                ProcessSpec { program: program.clone(), args, env: Vec::new() }
            }
            Proxy::Foreign(foreign) => self.foreign(foreign, &foreign.command, feed, node),
        };
        process.env.extend(self.faked.get(node).map(|path| ("PATH".to_owned(), path.clone())));
        let handle = cluster.spawn_on_node(node, process).await?;
        self.running.insert(node.to_owned(), handle);
        Ok(())
    }

    /// Whether what a proxy has applied shows in the traffic only.
    pub(super) fn are_foreign(&self) -> bool {
        self.proxy.is_foreign()
    }

    /// Why what another's proxy fails to do is no fault of its own: this machine has refused it what it has on any node.
    pub(super) fn refused(&self) -> Option<String> {
        let seen = || self.logs(usize::MAX).contains(TOO_LONG);
        (self.are_foreign() && sandbox::lacks_root() && seen()).then(|| {
            format!(
                "this user namespace refuses SO_SNDBUFFORCE, so that a transaction of the proxy's was too long ({TOO_LONG}): \
                 run as root, or with --kernel debian-6.1"
            )
        })
    }

    /// Writes the configuration file of `node`'s proxy. Not while that starts: it would read half a file.
    fn configure(&self, feed: &Feed, node: &str) -> Result<(), ClusterError> {
        let mut config = self.settings.configuration(self.mode_of(node), self.schedulers.get(node).copied());
        if let Some(kubeconfig) = feed.kubeconfig(node) {
            config["clientConnection"] = json!({ "kubeconfig": kubeconfig });
        }
        if let Proxy::Foreign(foreign) = &self.proxy {
            config = foreign.configuration(&config);
        }
        let path = configuration(node);
        let directory = path.parent().unwrap_or(Path::new(WORK_DIR));
        let written = std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, format!("{config:#}\n")));
        written.map_err(ClusterError::io(format!("writing {}", path.display())))
    }

    /// Runs the `init` of another's proxy, if it is the first time on this node.
    async fn prepare(&mut self, cluster: &Cluster, feed: &Feed, node: &str) -> Result<(), LabError> {
        let Proxy::Foreign(foreign) = &self.proxy else { return Ok(()) };
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

    /// A command of another's proxy.
    fn foreign(&self, foreign: &ForeignProxy, command: &[String], feed: &Feed, node: &str) -> ProcessSpec {
        let shown = |path: &Path| path.display().to_string();
        let places: Places = [
            ("node", node.to_owned()),
            ("kubeconfig", feed.kubeconfig(node).as_deref().map(shown).unwrap_or_default()),
            ("config", shown(&configuration(node))),
            ("mode", self.mode_of(node).to_string()),
        ];
        let mut process = foreign.process(command, &places);
        process.env.splice(..0, self.path.clone());
        process
    }

    /// What shows whether the proxy of `node` has applied `version`; without one, whether it is well.
    fn question(&self, feed: &Feed, node: &str, version: Option<&Version>) -> Result<Question, ClusterError> {
        if let Some(version) = version {
            return Ok(Question::Version(version.clone()));
        }
        let Proxy::Foreign(foreign) = &self.proxy else { return Ok(Question::Url(HEALTH, "/healthz".to_owned())) };
        Ok(match &foreign.ready {
            Ready::Url { address, path } => Question::Url(*address, path.clone()),
            Ready::Command(command) => Question::Command(argv(self.foreign(foreign, command, feed, node))),
            Ready::Marker => Question::Running,
        })
    }

    /// Resolves once the proxy of one of `nodes` has ended.
    pub(super) async fn one_ends(&self, nodes: &[String]) -> Mismatch {
        let running = || nodes.iter().filter_map(|node| Some((node, self.running.get(node)?)));
        loop {
            if let Some((node, handle)) = running().find(|(_, handle)| !handle.is_alive()) {
                return ended(Question::Running.expected(node), handle);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Resolves once what one of them asks for is refused by this machine.
    pub(super) async fn one_is_refused(&self) -> Mismatch {
        loop {
            if let Some(why) = self.refused() {
                return Mismatch::new("the proxies may have what they need", why);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Sends `signal` to the proxy of `node` and waits for its end.
    pub(super) async fn end(&mut self, node: &str, signal: i32) -> Result<(), ClusterError> {
        if let Some(handle) = self.running.remove(node) {
            self.used.extend(handle.usage());
            handle.signal(signal)?;
            handle.wait(PATIENCE).await?;
            self.last_words.insert(node.to_owned(), handle.log_tail(50));
        }
        Ok(())
    }

    /// Keeps every proxy from doing anything more: none does when this is back.
    pub(super) async fn freeze(&self) -> Result<(), ClusterError> {
        for handle in self.running.values() {
            handle.stop(PATIENCE).await?;
        }
        Ok(())
    }

    /// Runs the proxy's `--cleanup` on a node.
    pub(super) async fn cleanup(
        &mut self,
        cluster: &Cluster,
        feed: &Feed,
        node: &str,
    ) -> Result<Option<Mismatch>, ClusterError> {
        self.configure(feed, node)?;
        let argv = match &self.proxy {
            Proxy::Own(program) => {
                let config = format!("--config={}", configuration(node).display());
                let mut line = vec![program.display().to_string(), "--cleanup".to_owned(), config];
                line.extend(self.variant.flags(&self.settings.flags()));
                line
            }
            Proxy::Foreign(foreign) => match &foreign.cleanup {
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

    /// The running proxy of a node.
    pub(super) fn handle(&self, node: &str) -> Option<&ProcessHandle> {
        self.running.get(node)
    }

    /// The nodes with a running proxy, but for those of `cut_off`; sorted.
    pub(super) fn running(&self, cut_off: &BTreeSet<String>) -> Vec<String> {
        self.running.keys().filter(|node| !cut_off.contains(*node)).cloned().collect()
    }

    /// The nodes on which IPVS may still forward though their proxy is in another mode.
    pub(super) fn draining(&self) -> &BTreeSet<String> {
        self.modes.draining()
    }

    /// What every proxy so far has used.
    pub(super) fn usage(&self) -> Vec<ProcessUsage> {
        self.used.iter().copied().chain(self.running.values().filter_map(ProcessHandle::usage)).collect()
    }

    /// Waits until every running proxy but those of `cut_off` has applied `version`; without one, until it is well.
    pub(super) async fn applied(
        &self,
        cluster: &Cluster,
        feed: &Feed,
        version: Option<&Version>,
        cut_off: &BTreeSet<String>,
    ) -> Result<Option<Mismatch>, ClusterError> {
        let reached = self.running.iter().filter(|(node, _)| !cut_off.contains(*node));
        let waits = reached.map(async |(node, handle)| {
            let question = self.question(feed, node, version)?;
            Ok(wait(cluster, feed, node, handle, &question).await)
        });
        let late = futures_util::future::try_join_all(waits).await?;
        Ok(late.into_iter().flatten().next())
    }

    /// Has the reader of a node's proxy's log behave so, as long as that proxy runs.
    pub(super) fn set_reader(&self, node: &str, reader: OutputReader) -> Result<(), ClusterError> {
        self.running.get(node).map_or(Ok(()), |handle| handle.set_reader(reader))
    }

    /// All that is kept of the log of a node's proxy, or of the last one that has ended there.
    pub(super) fn log_of(&self, node: &str) -> String {
        let live = self.running.get(node).map(|handle| handle.log_tail(usize::MAX));
        live.or_else(|| self.last_words.get(node).cloned()).unwrap_or_default()
    }

    /// The end of every log.
    pub(super) fn logs(&self, lines: usize) -> String {
        let live = self.running.iter().map(|(node, handle)| (node, handle.log_tail(lines)));
        let dead = self.last_words.iter().filter(|(node, _)| !self.running.contains_key(*node));
        let tail = |log: &str| {
            let all: Vec<&str> = log.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        };
        let all = live.chain(dead.map(|(node, log)| (node, tail(log))));
        all.flat_map(|(node, log)| log.lines().map(|line| format!("{node}: {line}\n")).collect::<Vec<_>>()).collect()
    }
}

/// The configuration file of a node's proxy. A directory for each, as a mounted ConfigMap has it: a proxy may watch the whole of it.
pub(super) fn configuration(node: &str) -> PathBuf {
    PathBuf::from(WORK_DIR).join("config").join(node).join("config.yaml")
}

/// The same as one command line, its variables set by env(1).
fn argv(process: ProcessSpec) -> Vec<String> {
    let variables = process.env.iter().map(|(name, value)| format!("{name}={value}"));
    let program = process.program.display().to_string();
    ["env".to_owned()].into_iter().chain(variables).chain([program]).chain(process.args).collect()
}
