//! `svclab run`

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use svclab_netns::sandbox;

use super::place::{VmArgs, Where};
use super::{Exit, FAILED, LabArgs, UNABLE, every_kernel, every_mode, find, inside, simulate};
use crate::report::terminal::Terminal;
use crate::report::{ScenarioReport, StepReport, json, junit};
use crate::scenario::file::{Mode, Need};
use crate::scenario::run::{Break, Progress, Proxy, RunOptions};
use crate::scenario::values::Sensitivity;
use crate::scenario::{self, PATIENCE, Scenario};

#[derive(Args)]
pub(super) struct RunArgs {
    /// Scenario files, or names under scenarios/.
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Only these modes [default: all that a scenario is for]. With `--kernel auto` each is run on the host's kernel if that
    /// has what the mode needs, else in a microVM; where there can be no microVM either, a mode that is named here, or any
    /// in CI, is a failure, and another is told of and left out. A run in several modes is one run for each: a microVM of
    /// its own, and with --seed A..B one per seed.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE")]
    pub(super) mode: Vec<ModeArg>,
    /// In the simulator instead of a kernel: as any user, the same bytes every time. Steps that it has no model of are left
    /// out, and said to be.
    #[arg(long, conflicts_with_all = ["kernel", "deterministic", "deadline", "cache_dir", "patience", "iptables_variant", "source", "breaks"])]
    pub(super) simulate: bool,
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
        let mut scenarios = find::load_all(&self.files, seed)?;
        if let Some(Sensitivity(skew)) = self.sensitivity {
            scenarios.iter_mut().for_each(|scenario| scenario.set_sensitivity(skew));
        }
        Ok(scenarios)
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
        if let Some(Sensitivity(skew)) = self.sensitivity {
            flags.extend(["--sensitivity".to_owned(), skew.to_string()]);
        }
        flags.extend(self.keep_going.then(|| "--keep-going".to_owned()));
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
    Userspace,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Iptables => Mode::Iptables,
            ModeArg::Ipvs => Mode::Ipvs,
            ModeArg::Userspace => Mode::Userspace,
        }
    }
}

/// `--break`, as it was written and what it means.
#[derive(Clone)]
pub(super) struct BreakArg {
    pub(super) written: String,
    meant: Break,
}

impl BreakArg {
    /// Whether a scenario has the step.
    fn is_done_in(&self, scenario: &Scenario) -> bool {
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
    let meant = Break { scenario, before, on: on.parse()?, commands };
    Ok(BreakArg { written: text.to_owned(), meant })
}

/// A scenario in one of its modes.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) mode: Mode,
}

impl Job<'_> {
    /// What it needs of the kernel.
    pub(super) fn needs(&self) -> BTreeSet<Need> {
        self.scenario.needs.iter().chain(self.mode.needs()).copied().collect()
    }
}

pub(super) fn run(args: &RunArgs) -> Result<u8, Exit> {
    if args.simulate {
        return simulate::run(args);
    }
    let seed = args.lab.seed.each().start;
    let scenarios = args.load(seed)?;
    check_breaks(args, &scenarios)?;
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())?;
    let jobs = not_excused(jobs(&scenarios, &args.mode)?, &proxy);
    // The inside of a microVM does everything that it is asked for itself.
    if args.vm.machine.is_some() || jobs.is_empty() {
        return on_host(args, &jobs, &proxy);
    }
    if args.vm.is_every_kernel() {
        return every_kernel::run(args, &jobs);
    }
    if jobs.iter().any(|job| job.mode != jobs[0].mode) {
        return every_mode::run(args, &jobs);
    }
    match args.vm.choose(&jobs)? {
        Where::Host => on_host(args, &jobs, &proxy),
        Where::Inside(guest) => inside::run(args, &guest, &jobs),
    }
}

/// The modes that a scenario is run in, of those that are asked for.
fn modes_of(scenario: &Scenario, asked: &[ModeArg]) -> Vec<Mode> {
    let is_asked = |mode: &Mode| asked.is_empty() || asked.iter().any(|one| Mode::from(*one) == *mode);
    scenario.modes.iter().copied().filter(is_asked).collect()
}

/// Every scenario in every mode that it is run in.
pub(super) fn jobs<'a>(scenarios: &'a [Scenario], asked: &[ModeArg]) -> Result<Vec<Job<'a>>, Exit> {
    let in_modes = |scenario| modes_of(scenario, asked).into_iter().map(move |mode| Job { scenario, mode });
    let jobs: Vec<Job<'a>> = scenarios.iter().flat_map(in_modes).collect();
    let Some(first) = scenarios.first().filter(|_| jobs.is_empty()) else { return Ok(jobs) };
    let modes: Vec<String> = first.modes.iter().map(Mode::to_string).collect();
    Err(Exit::usage(format!("--mode leaves nothing to run: {} is for {}", first.name, modes.join(", "))))
}

/// Mistakes that the files and flags show before anything is run.
fn check_breaks(args: &RunArgs, scenarios: &[Scenario]) -> Result<(), Exit> {
    for damage in &args.breaks {
        if !scenarios.iter().any(|scenario| damage.is_done_in(scenario)) {
            return Err(Exit::usage(format!("--break: no step is named {:?}", damage.meant.before)));
        }
    }
    Ok(())
}

fn on_host(args: &RunArgs, jobs: &[Job<'_>], proxy: &Proxy) -> Result<u8, Exit> {
    args.lab.seed.one()?;
    find::tools()?;
    let _inside = sandbox::enter().map_err(|error| Exit::unable(error.to_string()))?;
    let reports = runtime()?.block_on(async {
        tokio::select! {
            reports = all(args, jobs, proxy) => Ok(reports),
            () = interrupted() => Err(Exit { status: FAILED, message: "interrupted".to_owned() }),
        }
    })?;
    write(args.json.as_deref(), &format!("{:#}\n", json::render(&reports)))?;
    write(args.junit.as_deref(), &junit::render(&reports))?;
    Ok(status(&reports))
}

pub(super) fn status(reports: &[ScenarioReport]) -> u8 {
    if reports.iter().any(|report| report.unable) || !reports.iter().any(ScenarioReport::judged) {
        UNABLE
    } else if reports.iter().all(ScenarioReport::passed) {
        0
    } else {
        FAILED
    }
}

async fn all(args: &RunArgs, jobs: &[Job<'_>], proxy: &Proxy) -> Vec<ScenarioReport> {
    let mut progress = OnTerminal(Terminal::new(std::io::stderr(), colour()));
    let mut reports = Vec::new();
    for Job { scenario, mode } in jobs {
        let options = RunOptions {
            proxy: proxy.clone(),
            mode: *mode,
            variant: args.lab.iptables_variant.into(),
            source: args.lab.source.into(),
            patience: Duration::from_millis(args.patience),
            keep_going: args.keep_going,
            measure: None,
            machine: args.vm.machine.clone(),
            breaks: args.breaks.iter().map(|damage| damage.meant.clone()).collect(),
        };
        let report = scenario::run::run(scenario, &options, &mut progress).await;
        let go_on = report.passed() || args.keep_going;
        reports.push(report);
        if !go_on {
            break;
        }
    }
    progress.0.total(&reports);
    reports
}

/// The jobs that the proxy is for; says why it is not for the others.
fn not_excused<'a>(mut jobs: Vec<Job<'a>>, proxy: &Proxy) -> Vec<Job<'a>> {
    jobs.retain(|Job { scenario, mode }| {
        let reason = excuse(proxy, &scenario.name, *mode);
        reason.iter().for_each(|reason| eprintln!("{} is not run in {mode} mode: {reason}", scenario.name));
        reason.is_none()
    });
    jobs
}

/// Why this proxy is not run in a scenario in this mode.
pub(super) fn excuse(proxy: &Proxy, scenario: &str, mode: Mode) -> Option<String> {
    match proxy {
        Proxy::Own(_) => None,
        Proxy::Foreign(foreign) => foreign.excuse(scenario, mode),
    }
}

struct OnTerminal(Terminal<std::io::Stderr>);

impl Progress for OnTerminal {
    fn begins(&mut self, scenario: &Scenario, options: &RunOptions) {
        self.0.scenario(&scenario.name, &options.mode.to_string(), &scenario.about);
    }

    fn step(&mut self, step: &StepReport) {
        self.0.step(step);
    }

    fn done(&mut self, report: &ScenarioReport) {
        self.0.done(report);
    }
}

/// Colour on a terminal only, and not for those who do not want it (no-color.org).
pub(super) fn colour() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

pub(super) fn write(path: Option<&Path>, text: &str) -> Result<(), Exit> {
    let Some(path) = path else { return Ok(()) };
    let written =
        if path == Path::new("-") { std::io::stdout().write_all(text.as_bytes()) } else { std::fs::write(path, text) };
    written.map_err(|error| Exit::usage(format!("cannot write the report {}: {error}", path.display())))
}

/// The runtime of everything inside the sandbox.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Exit> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| Exit::unable(format!("cannot start the runtime: {error}")))
}

/// Returns at SIGINT or SIGTERM.
pub(super) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    // The terminal was closed. Without a handler the sandbox's first process would not hear of it, and be killed.
    let hangup = signal(SignalKind::hangup());
    if let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = (interrupt, terminate, hangup) {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    } else {
        std::future::pending::<()>().await;
    }
}
