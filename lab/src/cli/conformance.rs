//! `svclab conformance`

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::Value;

use super::jobs::{Job, excuse};
use super::output::write;
use super::run_args::{ModeArg, word};
use super::{Exit, FAILED, UNABLE, VariantArg, find, generated, stop};
use crate::conformance::{self, Card, Gatherer};
use crate::mode::{Mode, Need};
use crate::scenario::Scenario;
use crate::scenario::run::{ObjectSource, ProxyUnderTest};
use crate::shipped;

/// Scenarios in which figures are measured, in a run of its own: what measures is a service beside those of the scenario, and some scenarios
/// look at everything that there is.
const MEASURED: [&str; 6] = ["clusterip", "dual-stack", "endpoint-slices", "local-policy", "rolling-update", "scaling"];

#[derive(Args)]
pub(super) struct ConformanceArgs {
    /// Scenario files, or names under scenarios/ [default: all that the program carries].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The service proxy: a program that is started as svcproxy is; or how another's is started, as a YAML file or a command
    /// with {config}, {node}, {kubeconfig} or {mode} in it; without it $SVCPROXY, or the svcproxy beside this program.
    #[arg(long, value_name = "PROXY")]
    proxy: Option<PathBuf>,
    /// Only these modes [default: all that the proxy has].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE")]
    mode: Vec<ModeArg>,
    /// Which iptables the proxies use.
    #[arg(long, value_enum, default_value = "auto", value_name = "VARIANT")]
    iptables_variant: VariantArg,
    /// Generated clusters in each mode.
    #[arg(long, value_name = "N", default_value_t = 20)]
    clusters: u64,
    /// Decides what scenarios leave open, and is the number of the first generated cluster.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Runs that may be spent, for each promise that only generated clusters break, on a smaller cluster that breaks it.
    #[arg(long, value_name = "N", default_value_t = 30)]
    shrink_runs: u32,
    /// Keep the generated clusters here, as scenarios.
    #[arg(long, value_name = "DIR")]
    keep_clusters: Option<PathBuf>,
    /// Measure nothing: the figures of a debug build say nothing.
    #[arg(long)]
    no_figures: bool,
    /// Where fetched packages and built images of microVMs are kept [default: $SVCLAB_CACHE, or svclab in the user's cache
    /// directory].
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Write the card as JSON (`-`: to standard output, in place of the text).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the card as Markdown (likewise).
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the card as a page of one file for a browser (likewise).
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print what is otherwise than on this card, a file of --json, and fail if a promise that it does not have as broken is broken now.
    #[arg(long, value_name = "CARD")]
    against: Option<PathBuf>,
    /// Print all promises with their numbers, and run nothing.
    #[arg(long, exclusive = true)]
    promises: bool,
}

pub(super) fn conformance(args: &ConformanceArgs) -> Result<u8, Exit> {
    if args.promises {
        print!("{}", conformance::promises());
        return Ok(0);
    }
    let before = args.against.as_deref().map(read).transpose()?;
    let proxy = find::proxy(args.proxy.as_deref(), ObjectSource::Api)?;
    let (modes, foreign) = (modes(args, &proxy)?, matches!(proxy, ProxyUnderTest::Foreign(_)));
    let mut gatherer = Gatherer::new(title(&proxy), args.seed, modes.iter().map(Mode::to_string));
    let temporary = tempfile::tempdir().map_err(|error| Exit::unable(format!("cannot make a folder: {error}")))?;
    // What needs another kernel, or virtual time, would take the others there as well.
    let mut runs: BTreeMap<(Mode, BTreeSet<Need>), Vec<PathBuf>> = BTreeMap::new();
    let scenarios = scenarios(args)?;
    for scenario in &scenarios {
        for mode in modes.iter().copied().filter(|mode| scenario.modes.contains(mode)) {
            match excuse(&proxy, &scenario.name, mode) {
                Some(why) => gatherer.excused(&scenario.name, scenario.promise, &mode.to_string(), &why),
                None => {
                    runs.entry((mode, Job { scenario, mode, foreign }.needs())).or_default().push(scenario.path.clone())
                }
            }
        }
    }
    let report_file = temporary.path().join("report.json");
    let folder = args.keep_clusters.as_deref().unwrap_or(temporary.path());
    for mode in &modes {
        for (path, scenario) in generated::clusters(args.seed, args.clusters, *mode, folder)? {
            let needs = Job { scenario: &scenario, mode: *mode, foreign }.needs();
            runs.entry((*mode, needs)).or_default().push(path);
            gatherer.generated(scenario.name, scenario.text);
        }
    }
    stop::watch()?;
    for ((mode, _), files) in &runs {
        if stop::stop().is_none() {
            eprintln!("{mode} mode: {} scenarios", files.len());
            let mut command = run(args, *mode, files, &report_file)?;
            let failures = std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned().map_err(unable)?;
            command.stdout(failures).stderr(Stdio::inherit()).arg("--audit");
            let report = report_of(command, &report_file)?;
            take(&mut gatherer, &scenarios, *mode, &report);
            missing(&mut gatherer, &scenarios, *mode, files, &report);
        }
    }
    for mode in modes.iter().filter(|_| !args.no_figures) {
        let files = measured(&scenarios, *mode, &proxy);
        if stop::stop().is_none() && !files.is_empty() {
            eprintln!("{mode} mode: measures");
            let mut command = run(args, *mode, &files, &report_file)?;
            command.arg("--figures");
            for scenario in report_of(command, &report_file)?["scenarios"].as_array().into_iter().flatten() {
                gatherer.measured(scenario);
            }
        }
    }
    for found in gatherer.broken_by_generated() {
        // Of one that broke several promises, a smaller one may have broken this one as well.
        if gatherer.broken_by_generated().contains(&found) {
            // Generated scenarios have a step that audits.
            let mut run =
                |path: &Path, mode| report_of(run(args, mode, &[path.to_owned()], &report_file)?, &report_file);
            generated::shrink(&mut gatherer, &found, args.shrink_runs, folder, &mut run)?;
        }
    }
    let card = gatherer.card();
    written(args, &card)?;
    let worse = before.is_some_and(|before| differences(&card, &before));
    if let Some(stop) = stop::stop() {
        return Err(stop.exit());
    }
    Ok(match (&args.against, card.judged()) {
        (_, false) => UNABLE,
        (Some(_), true) => u8::from(worse) * FAILED,
        (None, true) => u8::from(!card.is_clean()) * FAILED,
    })
}

fn title(proxy: &ProxyUnderTest) -> String {
    match proxy {
        // The version is this project's: both programs have one.
        ProxyUnderTest::Own(_) => format!("svcproxy {}", env!("SVCLAB_VERSION")),
        ProxyUnderTest::Foreign(foreign) => foreign.title(),
    }
}

/// The modes to judge: those of the proxy.
fn modes(args: &ConformanceArgs, proxy: &ProxyUnderTest) -> Result<Vec<Mode>, Exit> {
    let has = |mode: &Mode| match proxy {
        ProxyUnderTest::Own(_) => true,
        ProxyUnderTest::Foreign(foreign) => foreign.has(*mode),
    };
    let asked = |mode: &Mode| args.mode.is_empty() || args.mode.iter().any(|one| Mode::from(*one) == *mode);
    let modes: Vec<Mode> = Mode::ALL.into_iter().filter(asked).filter(has).collect();
    if modes.is_empty() {
        return Err(Exit::usage(format!("--mode leaves nothing to judge: {} has none of these modes", title(proxy))));
    }
    Ok(modes)
}

/// Those in which figures are measured: changes of every sort, a hundred pods, a rolling update. If none of them is asked for, all that are.
fn measured(scenarios: &[Scenario], mode: Mode, proxy: &ProxyUnderTest) -> Vec<PathBuf> {
    let fits = |scenario: &&Scenario| scenario.modes.contains(&mode) && excuse(proxy, &scenario.name, mode).is_none();
    let usual = |scenario: &&Scenario| MEASURED.contains(&scenario.name.as_str());
    let paths = |scenarios: &mut dyn Iterator<Item = &Scenario>| -> Vec<PathBuf> {
        scenarios.map(|scenario| scenario.path.clone()).collect()
    };
    match paths(&mut scenarios.iter().filter(fits).filter(usual)) {
        none if none.is_empty() => paths(&mut scenarios.iter().filter(fits)),
        some => some,
    }
}

/// The scenarios: those that are named, or all that say which promise they are about.
fn scenarios(args: &ConformanceArgs) -> Result<Vec<Scenario>, Exit> {
    if !args.files.is_empty() {
        return find::load_all(&args.files, args.seed);
    }
    let all: Vec<PathBuf> = shipped::scenarios().map(Path::to_owned).collect();
    let mut scenarios = find::load_all(&all, args.seed)?;
    scenarios.retain(|scenario| scenario.promise.is_some());
    Ok(scenarios)
}

/// `svclab run` of these in one mode; its report goes to this file.
fn run(args: &ConformanceArgs, mode: Mode, files: &[PathBuf], report: &Path) -> Result<Command, Exit> {
    let mut command = Command::new(std::env::current_exe().map_err(unable)?);
    svclab_netns::die_with_this_process(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.arg("run").args(files).args(["--keep-going", "--quiet", "--no-bundle"]);
    command.args(["--mode", &mode.to_string(), "--seed", &args.seed.to_string()]);
    command.args(["--iptables-variant", &word(args.iptables_variant)]).arg("--json").arg(report);
    for (flag, path) in [("--proxy", &args.proxy), ("--cache-dir", &args.cache_dir)] {
        if let Some(path) = path {
            command.arg(flag).arg(path);
        }
    }
    Ok(command)
}

fn unable(error: std::io::Error) -> Exit {
    Exit::unable(format!("cannot run svclab: {error}"))
}

/// Runs the command; what it has left in `report`.
fn report_of(mut command: Command, report: &Path) -> Result<Value, Exit> {
    // What a run before has left there does not belong to this one.
    let _ = std::fs::remove_file(report);
    stop::status(&mut command).map_err(unable)?;
    let text = std::fs::read_to_string(report).unwrap_or_default();
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

fn take(gatherer: &mut Gatherer, scenarios: &[Scenario], mode: Mode, report: &Value) {
    for scenario in report["scenarios"].as_array().into_iter().flatten() {
        gatherer.scenario(scenario);
    }
    for one in report["notRun"].as_array().into_iter().flatten() {
        let text = |key: &str| one[key].as_str().unwrap_or_default();
        let scenario = scenarios.iter().find(|scenario| scenario.name == text("scenario"));
        let promise = scenario.and_then(|scenario| scenario.promise);
        gatherer.not_run(text("scenario"), promise, &mode.to_string(), text("why"));
    }
}

/// Records as not judged each scenario of `files` that is missing from the report, as when a microVM has ended early.
fn missing(gatherer: &mut Gatherer, scenarios: &[Scenario], mode: Mode, files: &[PathBuf], report: &Value) {
    let names = |list: &str, key: &str| -> Vec<String> {
        let all = report[list].as_array().into_iter().flatten();
        all.filter_map(|one| one[key].as_str().map(str::to_owned)).collect()
    };
    let told = [names("scenarios", "name"), names("notRun", "scenario")].concat();
    for file in files {
        let scenario = scenarios.iter().find(|scenario| scenario.path == *file);
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let name = scenario.map_or(&*stem, |scenario| &scenario.name);
        if !told.iter().any(|told| told == name) {
            let promise = scenario.and_then(|scenario| scenario.promise);
            gatherer.not_run(name, promise, &mode.to_string(), "the run ended without a report of it");
        }
    }
}

fn read(path: &Path) -> Result<Card, Exit> {
    let wrong = |why: String| {
        Exit::usage(format!("--against: {} is no card of `svclab conformance --json`: {why}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let card: Card = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match card.schema_version {
        conformance::SCHEMA_VERSION => Ok(card),
        other => {
            Err(wrong(format!("its schema version is {other}, and this program reads {}", conformance::SCHEMA_VERSION)))
        }
    }
}

fn written(args: &ConformanceArgs, card: &Card) -> Result<(), Exit> {
    let json = serde_json::to_string_pretty(card).map_err(|error| Exit::unable(error.to_string()))? + "\n";
    let is_taken = [&args.json, &args.markdown, &args.html].into_iter().flatten().any(|path| path.as_os_str() == "-");
    if !is_taken {
        print!("{}", conformance::text(card));
    }
    write(args.json.as_deref(), &json)?;
    write(args.markdown.as_deref(), &conformance::markdown(card))?;
    write(args.html.as_deref(), &conformance::html(card))
}

/// Prints what is otherwise; whether anything is worse.
fn differences(card: &Card, before: &Card) -> bool {
    let changes = conformance::against(card, before);
    println!("\nagainst the card of {}: {}", before.proxy, if changes.is_empty() { "no difference" } else { "" });
    for change in &changes {
        let before = change.before.map_or("not on it", conformance::PromiseVerdict::word);
        println!("  {} {} ({}): {before} -> {}", change.number, change.id, change.mode, change.now.word());
    }
    changes.iter().any(conformance::Change::is_worse)
}
