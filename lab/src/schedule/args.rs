//! The flags of `svclab run`, and their JSON form for another process of svclab.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use svclab_control_plane::Programs;

use super::choice::ChoiceArgs;
use super::seeds::Seeds;
use super::share::ShardArgs;
use super::target::VmArgs;
use crate::complete;
use crate::console::Stream;
use crate::exit::Exit;
use crate::find;
use crate::input::InputFiles;
use crate::mode::Mode;
use crate::report::terminal::{Detail, Terminal};
use crate::report::{MicroVm, RunRecord};
use crate::scenario::run::{Damage, ObjectSource};
use crate::scenario::values::Sensitivity;
use crate::scenario::{IptablesVariant, Scenario};
use crate::shard::ShardRecord;

/// envtest's variable with the directory of a control plane's programs.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// The value of `--control-plane` that selects [`ASSETS`].
const ASSETS_GIVEN: &str = "$KUBEBUILDER_ASSETS";

#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub(crate) struct RunArgs {
    /// Scenario files, or names under scenarios/; a folder: all scenarios in it, without those of its folders; `-`: a scenario from
    /// standard input.
    #[arg(required = true, value_name = "FILE", add = complete::scenarios())]
    pub(crate) files: Vec<PathBuf>,
    /// Take the text of the scenarios from this report of --json, as it was when they were run.
    #[arg(long, value_name = "REPORT")]
    pub(crate) from_report: Option<PathBuf>,
    /// Only these modes [default: all modes of a scenario]. With `--kernel auto` each mode is run on the host's kernel if that supports
    /// the mode, else in a microVM. Where no microVM can be started either, a mode that is named here, or any mode in CI, is a failure;
    /// other modes are reported as not run. A run in several modes is one run for each: a microVM of its own, and with --seed A..B one
    /// per seed.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE")]
    pub(crate) mode: Vec<Mode>,
    /// In the simulator instead of a kernel: as any user, the same bytes every time. Skips steps that the simulator does not model,
    /// and lists them.
    #[arg(long, conflicts_with_all = ["kernel", "deterministic", "deadline", "cache_dir", "patience", "iptables_variant", "source", "breaks", "audit"])]
    pub(crate) simulate: bool,
    /// Serve the objects by a real control plane instead of the lab's own API: etcd, kube-apiserver and, if it is there,
    /// kube-controller-manager, from this folder [without a value: $KUBEBUILDER_ASSETS]. On this machine's kernel only.
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ASSETS_GIVEN, conflicts_with_all = ["simulate", "deterministic"])]
    pub(crate) control_plane: Option<PathBuf>,
    /// Audit all nodes, as `svclab audit` does, before the first step and after each step that changes objects or proxies. A finding
    /// fails the scenario.
    #[arg(long)]
    pub(crate) audit: bool,
    /// Measure what the proxies cost, as `svclab compare` does; the figures are in the report of --json.
    #[arg(long, conflicts_with = "simulate")]
    pub(crate) figures: bool,
    /// Show failures and the last line only.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Show the answers of every server for each step, and the end of the proxies' logs for each scenario.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Go on after a failed step and after a failed scenario.
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Run so many scenarios at once on this machine's kernel, each in a process and namespaces of its own: most scenarios mostly wait.
    /// The report has the order of the list. MicroVMs run one at a time [default: 1].
    #[arg(long, value_name = "N", conflicts_with = "simulate")]
    #[serde(skip)]
    pub(crate) parallel: Option<NonZeroUsize>,
    /// The most that a failing step waits, in milliseconds: for an answer, for nodes of the load balancer, for rules of a proxy
    /// that does not report what it has applied [default: 5 s, 15 s and 10 s]. A step's own `timeout` and `eventually` stay.
    #[arg(long, value_name = "MS")]
    pub(crate) patience: Option<u64>,
    /// The skew of a promised share that a step must detect, as a part of the share (such as 20%): steps send as many requests as
    /// that takes, if more than otherwise [default: 50%, or what a step says].
    #[arg(long, value_name = "PART")]
    pub(crate) sensitivity: Option<Sensitivity>,
    /// Write the report as JSON (`-`: to standard output).
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as JUnit XML (`-`: to standard output).
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write the report as a page of one file for a browser (`-`: to standard output).
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the report as GitHub Markdown (`-`: to standard output): scenarios by modes, and the failed steps.
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// The directory for bundles. A failed step leaves a bundle that shows why it failed: each node's archive, logs, connections, a
    /// capture of the probe, its explanation [default: beside the report of --json].
    #[arg(long, value_name = "DIR", conflicts_with = "simulate")]
    pub(crate) bundle: Option<PathBuf>,
    /// No bundles: for runs whose reports are temporary.
    #[arg(long, hide = true, conflicts_with = "bundle")]
    pub(crate) no_bundle: bool,
    /// Damage before a step, as JSON {"scenario" (or left out), "before", "at", "commands"}: for the tests that show that scenarios can fail.
    #[arg(long = "break", hide = true, value_name = "JSON")]
    pub(crate) breaks: Vec<BreakArg>,
    /// Whether the run is a batch of another run, which prints the last line.
    #[arg(skip)]
    pub(crate) is_batch: bool,
    /// Whether the run is one of those that `--parallel` starts for a batch, which have no line with a total.
    #[arg(skip)]
    pub(crate) is_part: bool,
    /// The microVM in which this process runs.
    #[arg(skip)]
    pub(crate) machine: Option<MicroVm>,
    /// `--proxy` as the user gave it, where [`LabArgs::proxy`] is a path in a microVM.
    #[arg(skip)]
    pub(crate) proxy_outside: Option<String>,
    /// The seeds of this shard; empty: all.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) seeds: Vec<u64>,
    /// What this machine runs of the whole; not for other processes, which get their part as files and modes.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) share: Option<ShardRecord>,
    // Other processes get the chosen files.
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) choice: ChoiceArgs,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) sharding: ShardArgs,
    #[command(flatten)]
    pub(crate) lab: LabArgs,
    #[command(flatten)]
    pub(crate) vm: VmArgs,
}

/// The flags that `run`, `up` and `soak` share.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub(crate) struct LabArgs {
    /// Which iptables the proxies use.
    #[arg(long, value_enum, default_value = "auto", value_name = "VARIANT")]
    #[serde(with = "by_name")]
    pub(crate) iptables_variant: IptablesVariant,
    /// Where the proxies get the objects from: the lab's Kubernetes API, or a directory of manifests.
    #[arg(long, value_enum, default_value = "api", value_name = "SOURCE")]
    #[serde(with = "by_name")]
    pub(crate) source: ObjectSource,
    /// Decides cluster IPs and node ports that a scenario leaves open and, with --deterministic, every random number of the kernel
    /// and the proxies. A..B: each from A up to, but not including, B.
    #[arg(long, default_value = "0", value_name = "N|A..B")]
    pub(crate) seed: Seeds,
    /// The service proxy: a program that is started as svcproxy is; or how another proxy is started, as a YAML file or a command
    /// with {config}, {node}, {kubeconfig} or {mode} in it; without it $SVCPROXY, or the svcproxy beside this program.
    #[arg(long, value_name = "PROXY")]
    pub(crate) proxy: Option<PathBuf>,
}

impl RunArgs {
    pub(crate) fn of(files: Vec<PathBuf>) -> RunArgs {
        RunArgs { files, ..RunArgs::default() }
    }

    pub(super) fn load(&self, seed: u64) -> Result<Vec<Scenario>, Exit> {
        let texts = self.from_report.as_deref().map_or(Ok(InputFiles::default()), recorded_texts)?;
        let mut scenarios = find::load_all_from(&texts, &self.files, seed)?;
        if let Some(Sensitivity(skew)) = self.sensitivity {
            scenarios.iter_mut().for_each(|scenario| scenario.set_sensitivity(skew));
        }
        self.choice.choose(scenarios)
    }

    pub(super) fn control_plane(&self) -> Result<Option<Programs>, Exit> {
        let directory = match &self.control_plane {
            None => return Ok(None),
            Some(named) if named.as_os_str() == ASSETS_GIVEN => {
                let assets = std::env::var_os(ASSETS).filter(|assets| !assets.is_empty());
                let none = "--control-plane: name a folder with etcd and kube-apiserver, or set $KUBEBUILDER_ASSETS";
                PathBuf::from(assets.ok_or_else(|| Exit::usage(none))?)
            }
            Some(named) => named.clone(),
        };
        if self.lab.source == ObjectSource::Manifests {
            return Err(Exit::usage("--control-plane is an API: leave out --source manifests"));
        }
        Programs::find(&directory).map(Some).map_err(|error| Exit::usage(format!("--control-plane: {error}")))
    }

    pub(super) fn at_once(&self) -> usize {
        self.parallel.map_or(1, NonZeroUsize::get)
    }

    /// Returns the value of `--proxy`, or of $SVCPROXY, for the command that repeats the run.
    pub(super) fn proxy_given(&self) -> Option<String> {
        match self.machine {
            Some(_) => self.proxy_outside.clone(),
            None => find::proxy_given(self.lab.proxy.as_deref()),
        }
    }

    /// Returns the directory for bundles; `None`: no bundles.
    pub(super) fn bundles(&self) -> Option<PathBuf> {
        let report = self.json.as_deref().filter(|json| json.as_os_str() != "-");
        let named = |folder: &Path| if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() };
        let beside = || report.and_then(Path::parent).map(named);
        self.bundle.clone().or_else(beside).filter(|_| !self.no_bundle)
    }

    pub(super) fn stream(&self) -> Stream {
        let mut documents = [&self.json, &self.junit, &self.html, &self.markdown].into_iter().flatten();
        // A microVM passes only standard error to the host.
        let is_taken = documents.any(|path| path.as_os_str() == "-") || self.machine.is_some();
        if is_taken { Stream::Err } else { Stream::Out }
    }

    pub(super) fn detail(&self) -> Detail {
        match (self.quiet, self.verbose) {
            (true, _) => Detail::Failures,
            (false, true) => Detail::All,
            (false, false) => Detail::Steps,
        }
    }

    pub(super) fn terminal(&self) -> Terminal<Stream> {
        let stream = self.stream();
        Terminal::new(stream, stream.colour(), self.detail())
    }

    pub(super) fn notice(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }
}

fn recorded_texts(path: &Path) -> Result<InputFiles, Exit> {
    let scenarios = RunRecord::read(path).map_err(Exit::usage)?.scenarios.into_iter();
    let texts = scenarios.filter(|scenario| !scenario.text.is_empty()).flat_map(|scenario| {
        let files = scenario.files.into_iter().chain([(scenario.path, scenario.text)]);
        files.map(|(path, text)| (PathBuf::from(path), text))
    });
    Ok(InputFiles::given(texts.collect()))
}

pub(crate) fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Serialises a flag's value as on the command line.
mod by_name {
    use clap::ValueEnum;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<T: ValueEnum, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::value_name(value.clone()))
    }

    pub(super) fn deserialize<'de, T: ValueEnum, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        T::from_str(&String::deserialize(deserializer)?, false).map_err(de::Error::custom)
    }
}

/// The value of `--break`, raw and parsed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct BreakArg {
    written: String,
    pub(super) meant: Damage,
}

impl BreakArg {
    pub(super) fn is_done_in(&self, scenario: &Scenario) -> bool {
        scenario.steps.iter().any(|step| self.meant.is_before(&scenario.name, &step.name))
    }
}

impl From<BreakArg> for String {
    fn from(damage: BreakArg) -> String {
        damage.written
    }
}

impl TryFrom<String> for BreakArg {
    type Error = String;

    fn try_from(text: String) -> Result<BreakArg, String> {
        text.parse()
    }
}

impl std::str::FromStr for BreakArg {
    type Err = String;

    fn from_str(text: &str) -> Result<BreakArg, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct BreakJson {
            scenario: Option<String>,
            before: String,
            at: String,
            commands: Vec<String>,
        }
        let BreakJson { scenario, before, at, commands } =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let meant = Damage { scenario, before, at: at.parse()?, commands };
        Ok(BreakArg { written: text.to_owned(), meant })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_for_another_process_reads_back() {
        let damage = r#"{"scenario":null,"before":"a step","at":"all","commands":["true"]}"#;
        let args = RunArgs {
            mode: vec![Mode::Ipvs],
            breaks: vec![damage.parse().unwrap()],
            lab: LabArgs {
                iptables_variant: IptablesVariant::NftCommands,
                seed: "3..6".parse().unwrap(),
                ..LabArgs::default()
            },
            vm: VmArgs { kernel: KernelArg::Host, deterministic: true, ..VmArgs::default() },
            ..RunArgs::of(vec!["a.yaml".into()])
        };
        let order = serde_json::to_string(&args).unwrap();
        let read: RunArgs = serde_json::from_str(&order).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), order);
        assert!(order.contains(r#""iptables_variant":"nft-commands""#), "{order}");
    }

    use super::super::target::KernelArg;
}
