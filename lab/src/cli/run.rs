//! `svclab run`

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{BROKEN, Exit, LabArgs, UNABLE, find};
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
    files: Vec<PathBuf>,
    /// Only these modes.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE")]
    mode: Vec<ModeArg>,
    /// Go on after a broken step and after a broken scenario.
    #[arg(long)]
    keep_going: bool,
    /// How long a probe waits for a promised answer, in milliseconds, where the step does not say.
    #[arg(long, value_name = "MS", default_value_t = PATIENCE.as_millis() as u64)]
    patience: u64,
    /// Write the report as JSON (`-`: to standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as JUnit XML (`-`: to standard output).
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Damage before a step, as JSON {"before", "on", "commands"}: for the tests that show that scenarios can fail.
    #[arg(long = "break", hide = true, value_name = "JSON", value_parser = parse_break)]
    breaks: Vec<Break>,
    #[command(flatten)]
    lab: LabArgs,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ModeArg {
    Iptables,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Iptables => Mode::Iptables,
        }
    }
}

fn parse_break(text: &str) -> Result<Break, String> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Written {
        before: String,
        on: String,
        commands: Vec<String>,
    }
    let written: Written = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(Break { before: written.before, on: written.on.parse()?, commands: written.commands })
}

pub(super) fn run(args: &RunArgs) -> Result<u8, Exit> {
    let scenarios = find::load_all(&args.files, args.lab.seed)?;
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())?;
    find::tools()?;
    for damage in &args.breaks {
        if !scenarios.iter().flat_map(|scenario| &scenario.steps).any(|step| step.name == damage.before) {
            return Err(Exit::usage(format!("--break: no step is named {:?}", damage.before)));
        }
    }
    let _inside = sandbox::enter().map_err(|error| Exit::unable(error.to_string()))?;
    let reports = runtime()?.block_on(async {
        tokio::select! {
            reports = all(args, &scenarios, &proxy) => Ok(reports),
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
        let wanted = |mode: &Mode| args.mode.is_empty() || args.mode.iter().any(|only| Mode::from(*only) == *mode);
        for mode in scenario.modes.iter().copied().filter(wanted) {
            let options = RunOptions {
                proxy: proxy.clone(),
                mode,
                variant: args.lab.iptables_variant.into(),
                source: args.lab.source.into(),
                patience: Duration::from_millis(args.patience),
                keep_going: args.keep_going,
                measure: false,
                breaks: args.breaks.clone(),
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
