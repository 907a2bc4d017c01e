//! The flags of `svclab run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use svclab_control_plane::Programs;

use super::place::VmArgs;
use super::speak::Stream;
use super::{Exit, LabArgs, SourceArg, find, recorded};
use crate::input::InputFiles;
use crate::mode::Mode;
use crate::report::terminal::{Detail, Terminal};
use crate::scenario::run::Damage;
use crate::scenario::values::Sensitivity;
use crate::scenario::{PATIENCE, Scenario};

/// Where a control plane's programs are, as envtest has it.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// What stands for it as the flag's value.
const ASSETS_GIVEN: &str = "$KUBEBUILDER_ASSETS";

#[derive(Args)]
pub(super) struct RunArgs {
    /// Scenario files, or names under scenarios/.
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Take the text of the scenarios from this report of --json, as it was when they were run.
    #[arg(long, value_name = "REPORT")]
    pub(super) from_report: Option<PathBuf>,
    /// Only these modes [default: all that a scenario is for]. With `--kernel auto` each is run on the host's kernel if that
    /// has what the mode needs, else in a microVM; where there can be no microVM either, a mode that is named here, or any
    /// in CI, is a failure, and another is told of and left out. A run in several modes is one run for each: a microVM of
    /// its own, and with --seed A..B one per seed.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE")]
    pub(super) mode: Vec<ModeArg>,
    /// In the simulator instead of a kernel: as any user, the same bytes every time. Steps that it has no model of are left
    /// out, and said to be.
    #[arg(long, conflicts_with_all = ["kernel", "deterministic", "deadline", "cache_dir", "patience", "iptables_variant", "source", "breaks", "audit"])]
    pub(super) simulate: bool,
    /// Serve the objects by a real control plane instead of the lab's own API: etcd, kube-apiserver and, if it is there,
    /// kube-controller-manager, from this folder [without a value: $KUBEBUILDER_ASSETS]. On this machine's kernel only.
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ASSETS_GIVEN, conflicts_with_all = ["simulate", "deterministic"])]
    pub(super) control_plane: Option<PathBuf>,
    /// Audit all nodes, as `svclab audit` does, before the first step and after each one that changes objects or proxies: what is wrong
    /// by their rules fails the scenario, whatever the probes say.
    #[arg(long)]
    pub(super) audit: bool,
    /// Measure what the proxies cost, as `svclab compare` does; the figures are in the report of --json.
    #[arg(long, conflicts_with = "simulate")]
    pub(super) figures: bool,
    /// Tell what failed, and the last line.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Tell of each step who answered how often, whatever their number, and of each scenario the end of the proxies' logs.
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// This run is a part of another, which has the last line.
    #[arg(long, hide = true)]
    pub(super) part: bool,
    /// Go on after a failed step and after a failed scenario.
    #[arg(long)]
    pub(super) keep_going: bool,
    /// How long a probe waits for a promised answer, in milliseconds, where the step does not say.
    #[arg(long, value_name = "MS", default_value_t = PATIENCE.as_millis() as u64)]
    pub(super) patience: u64,
    /// The skew of a promised share that is to be seen, as a part of the share (such as 20%): steps send as many requests as
    /// that takes, if they are more than without it [default: 50%, or what a step says].
    #[arg(long, value_name = "PART")]
    pub(super) sensitivity: Option<Sensitivity>,
    /// Write the report as JSON (`-`: to standard output).
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write the report as JUnit XML (`-`: to standard output).
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<PathBuf>,
    /// Write the report as a page of one file for a browser (`-`: to standard output).
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Where a failed step leaves what shows why it failed, in a directory of its own: each node's archive, logs, connections, a
    /// capture of the probe, its explanation [default: beside the report of --json].
    #[arg(long, value_name = "DIR", conflicts_with = "simulate")]
    pub(super) bundle: Option<PathBuf>,
    /// No bundles: for runs whose reports go to a place that others do not see.
    #[arg(long, hide = true, conflicts_with = "bundle")]
    pub(super) no_bundle: bool,
    /// Damage before a step, as JSON {"scenario" (or left out), "before", "on", "commands"}: for the tests that show that scenarios can fail.
    #[arg(long = "break", hide = true, value_name = "JSON", value_parser = parse_break)]
    pub(super) breaks: Vec<BreakArg>,
    #[command(flatten)]
    pub(super) lab: LabArgs,
    #[command(flatten)]
    pub(super) vm: VmArgs,
}

impl RunArgs {
    /// Loads the scenarios.
    pub(super) fn load(&self, seed: u64) -> Result<Vec<Scenario>, Exit> {
        let texts = self.from_report.as_deref().map_or(Ok(InputFiles::default()), recorded::texts)?;
        let mut scenarios = find::load_all_from(&texts, &self.files, seed)?;
        if let Some(Sensitivity(skew)) = self.sensitivity {
            scenarios.iter_mut().for_each(|scenario| scenario.set_sensitivity(skew));
        }
        Ok(scenarios)
    }

    /// The control plane that is asked for.
    pub(super) fn control_plane(&self) -> Result<Option<Programs>, Exit> {
        let Some(directory) = self.control_plane_directory()? else { return Ok(None) };
        if matches!(self.lab.source, SourceArg::Manifests) {
            return Err(Exit::usage("--control-plane is an API: leave out --source manifests"));
        }
        Programs::find(&directory).map(Some).map_err(|error| Exit::usage(format!("--control-plane: {error}")))
    }

    /// Where it is to be.
    fn control_plane_directory(&self) -> Result<Option<PathBuf>, Exit> {
        match &self.control_plane {
            Some(named) if named.as_os_str() == ASSETS_GIVEN => {
                let assets = std::env::var_os(ASSETS).filter(|assets| !assets.is_empty());
                let none = "--control-plane: name a folder with etcd and kube-apiserver, or set $KUBEBUILDER_ASSETS";
                assets.map(|assets| Some(PathBuf::from(assets))).ok_or_else(|| Exit::usage(none))
            }
            named => Ok(named.clone()),
        }
    }

    /// Where failed steps leave their bundles, if anywhere.
    pub(super) fn bundles(&self) -> Option<PathBuf> {
        let report = self.json.as_deref().filter(|json| json.as_os_str() != "-");
        let named = |folder: &std::path::Path| {
            if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
        };
        let beside = || report.and_then(std::path::Path::parent).map(named);
        self.bundle.clone().or_else(beside).filter(|_| !self.no_bundle)
    }

    /// Where the report for people goes.
    pub(super) fn stream(&self) -> Stream {
        let documents = [&self.json, &self.junit, &self.html].into_iter().flatten();
        // Of a microVM only standard error is seen.
        let is_taken = documents.into_iter().any(|path| path.as_os_str() == "-") || self.vm.machine.is_some();
        if is_taken { Stream::Err } else { Stream::Out }
    }

    /// How much is told.
    pub(super) fn detail(&self) -> Detail {
        match (self.quiet, self.verbose) {
            (true, _) => Detail::Failures,
            (false, true) => Detail::All,
            (false, false) => Detail::Steps,
        }
    }

    /// The report for people.
    pub(super) fn terminal(&self) -> Terminal<Stream> {
        let stream = self.stream();
        Terminal::new(stream, stream.colour(), self.detail())
    }

    /// Says what is being done, on standard error.
    pub(super) fn notice(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// The modes that are asked for; none: all.
    pub(super) fn modes(&self) -> Vec<Mode> {
        self.mode.iter().copied().map(Mode::from).collect()
    }

    /// The flags that mean the same wherever the scenarios are run.
    pub(super) fn flags_in(&self, modes: &[Mode]) -> Vec<String> {
        self.flags_with(modes, |_| true)
    }

    /// The same for a run of these scenarios in these modes.
    pub(super) fn flags_for(&self, modes: &[Mode], scenarios: &[&Scenario]) -> Vec<String> {
        self.flags_with(modes, |damage| scenarios.iter().any(|scenario| damage.is_done_in(scenario)))
    }

    fn flags_with(&self, modes: &[Mode], is_for: impl Fn(&BreakArg) -> bool) -> Vec<String> {
        let mut flags = Vec::new();
        let mut flag = |name: &str, value: String| flags.extend([format!("--{name}"), value]);
        flag("patience", self.patience.to_string());
        flag("iptables-variant", word(self.lab.iptables_variant));
        flag("source", word(self.lab.source));
        for mode in modes {
            flag("mode", mode.to_string());
        }
        for damage in self.breaks.iter().filter(|damage| is_for(damage)) {
            flag("break", damage.written.clone());
        }
        if let Ok(Some(directory)) = self.control_plane_directory() {
            flags.extend(["--control-plane".to_owned(), directory.display().to_string()]);
        }
        if let Some(Sensitivity(skew)) = self.sensitivity {
            flags.extend(["--sensitivity".to_owned(), skew.to_string()]);
        }
        let plain = [
            ("--audit", self.audit),
            ("--figures", self.figures),
            ("--keep-going", self.keep_going),
            ("--quiet", self.quiet),
            ("--verbose", self.verbose),
        ];
        flags.extend(plain.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag.to_owned()));
        flags
    }
}

/// A flag's value as it is written.
pub(super) fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ModeArg {
    Iptables,
    Ipvs,
    Nftables,
    Userspace,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Iptables => Mode::Iptables,
            ModeArg::Ipvs => Mode::Ipvs,
            ModeArg::Nftables => Mode::Nftables,
            ModeArg::Userspace => Mode::Userspace,
        }
    }
}

/// `--break`, as it was written and what it means.
#[derive(Clone)]
pub(super) struct BreakArg {
    pub(super) written: String,
    pub(super) meant: Damage,
}

impl BreakArg {
    /// Whether a scenario has the step.
    pub(super) fn is_done_in(&self, scenario: &Scenario) -> bool {
        scenario.steps.iter().any(|step| self.meant.is_before(&scenario.name, &step.name))
    }
}

fn parse_break(text: &str) -> Result<BreakArg, String> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Written {
        scenario: Option<String>,
        before: String,
        on: String,
        commands: Vec<String>,
    }
    let written: Written = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Written { scenario, before, on, commands } = written;
    let meant = Damage { scenario, before, on: on.parse()?, commands };
    Ok(BreakArg { written: text.to_owned(), meant })
}
