//! `svclab run`

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::place::{VmArgs, Where};
use super::{BROKEN, Exit, LabArgs, UNABLE, every_kernel, find, inside};
use crate::netns::sandbox;
use crate::report::terminal::Terminal;
use crate::report::{ScenarioReport, StepReport, json, junit};
use crate::scenario::file::Mode;
use crate::scenario::run::{Break, Progress, Proxy, RunOptions};
use crate::scenario::{self, PATIENCE, Scenario};

#[derive(Args)]
pub(super) struct RunArgs {
    /// Scenario files, or names under scenarios/.
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Modes [default: iptables, and another where a scenario is not for that]. IPVS needs a kernel that has it: with
    /// `--kernel auto`, a microVM is taken where the host's has not.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE")]
    pub(super) mode: Vec<ModeArg>,
    /// Go on after a broken step and after a broken scenario.
    #[arg(long)]
    pub(super) keep_going: bool,
    /// How long a probe waits for a promised answer, in milliseconds, where the step does not say.
    #[arg(long, value_name = "MS", default_value_t = PATIENCE.as_millis() as u64)]
    pub(super) patience: u64,
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
    /// The flags that mean the same wherever the scenarios are run.
    pub(super) fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        let mut flag = |name: &str, value: String| flags.extend([format!("--{name}"), value]);
        flag("patience", self.patience.to_string());
        flag("iptables-variant", word(self.lab.iptables_variant));
        flag("source", word(self.lab.source));
        for mode in &self.mode {
            flag("mode", word(*mode));
        }
        for damage in &self.breaks {
            flag("break", damage.written.clone());
        }
        flags.extend(self.keep_going.then(|| "--keep-going".to_owned()));
        flags
    }
}

/// A flag's value as it is written.
fn word(value: impl ValueEnum) -> String {
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

pub(super) fn run(args: &RunArgs) -> Result<u8, Exit> {
    let seed = args.lab.seed.each().start;
    let scenarios = find::load_all(&args.files, seed)?;
    check_breaks(args, &scenarios)?;
    let scenarios = with_needs_of_modes(scenarios, &args.mode);
    if args.vm.is_every_kernel() {
        return every_kernel::run(args, &scenarios);
    }
    match args.vm.choose(&scenarios)? {
        Where::Host => on_host(args, &scenarios),
        Where::Inside(guest) => inside::run(args, &guest, &scenarios),
    }
}

/// The modes that a scenario is run in, of those that are asked for.
pub(super) fn modes_of(scenario: &Scenario, asked: &[ModeArg]) -> Vec<Mode> {
    let all = scenario.modes.iter().copied();
    match asked {
        [] if scenario.modes.contains(&Mode::Iptables) => vec![Mode::Iptables],
        [] => all.collect(),
        asked => all.filter(|mode| asked.iter().any(|one| Mode::from(*one) == *mode)).collect(),
    }
}

/// What a mode needs of the kernel, each scenario that is run in it needs.
fn with_needs_of_modes(mut scenarios: Vec<Scenario>, modes: &[ModeArg]) -> Vec<Scenario> {
    for scenario in &mut scenarios {
        let needs = modes_of(scenario, modes).into_iter().flat_map(Mode::needs);
        scenario.needs.extend(needs);
    }
    scenarios
}

/// Mistakes that the files and flags show before anything is run.
fn check_breaks(args: &RunArgs, scenarios: &[Scenario]) -> Result<(), Exit> {
    for damage in args.breaks.iter().map(|damage| &damage.meant) {
        let has = |scenario: &Scenario| scenario.steps.iter().any(|step| damage.is_before(&scenario.name, &step.name));
        if !scenarios.iter().any(has) {
            return Err(Exit::usage(format!("--break: no step is named {:?}", damage.before)));
        }
    }
    Ok(())
}

fn on_host(args: &RunArgs, scenarios: &[Scenario]) -> Result<u8, Exit> {
    args.lab.seed.one()?;
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())?;
    find::tools()?;
    let _inside = sandbox::enter().map_err(|error| Exit::unable(error.to_string()))?;
    let reports = runtime()?.block_on(async {
        tokio::select! {
            reports = all(args, scenarios, &proxy) => Ok(reports),
            () = interrupted() => Err(Exit { status: BROKEN, message: "interrupted".to_owned() }),
        }
    })?;
    write(args.json.as_deref(), &format!("{:#}\n", json::render(&reports)))?;
    write(args.junit.as_deref(), &junit::render(&reports))?;
    Ok(status(&reports))
}

fn status(reports: &[ScenarioReport]) -> u8 {
    if reports.iter().any(|report| report.unable) {
        UNABLE
    } else if reports.iter().all(ScenarioReport::passed) {
        0
    } else {
        BROKEN
    }
}

async fn all(args: &RunArgs, scenarios: &[Scenario], proxy: &Proxy) -> Vec<ScenarioReport> {
    let mut progress = OnTerminal(Terminal::new(std::io::stderr(), colour()));
    let mut reports = Vec::new();
    'all: for scenario in scenarios {
        if let Some(reason) = excuse(proxy, &scenario.name) {
            eprintln!("{} is not run: {reason}", scenario.name);
            continue;
        }
        for mode in modes_of(scenario, &args.mode) {
            let options = RunOptions {
                proxy: proxy.clone(),
                mode,
                variant: args.lab.iptables_variant.into(),
                source: args.lab.source.into(),
                patience: Duration::from_millis(args.patience),
                keep_going: args.keep_going,
                measure: false,
                machine: args.vm.machine.clone(),
                breaks: args.breaks.iter().map(|damage| damage.meant.clone()).collect(),
            };
            let report = scenario::run::run(scenario, &options, &mut progress).await;
            let go_on = report.passed() || args.keep_going;
            reports.push(report);
            if !go_on {
                break 'all;
            }
        }
    }
    progress.0.total(&reports);
    reports
}

/// Why this proxy is not run in a scenario.
pub(super) fn excuse<'a>(proxy: &'a Proxy, scenario: &str) -> Option<&'a String> {
    match proxy {
        Proxy::Own(_) => None,
        Proxy::Foreign(foreign) => foreign.excused.get(scenario),
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
    if let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    } else {
        std::future::pending::<()>().await;
    }
}
