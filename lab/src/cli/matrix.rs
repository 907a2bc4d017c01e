//! Runs every scenario with several versions of a proxy. Each version's folder comes first in `PATH`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::console::Stream;
use crate::exit::{Exit, FAILED, UNABLE};
use crate::find;
use crate::matrix::{Cell, Column, Matrix, markdown};
use crate::mode::Mode;
use crate::report::RunRecord;
use crate::report::terminal::counted;
use crate::scenario::Scenario;
use crate::scenario::run::ForeignProxy;
use crate::schedule::child::{self, ChildOutput};
use crate::schedule::output::{self, write, write_json};
use crate::schedule::share::{ShardArgs, SharedWork};
use crate::schedule::{KernelArg, RunArgs, signals};
use crate::shard::{ItemTime, WorkItem};
use crate::shipped;

#[derive(Args)]
pub(super) struct MatrixArgs {
    /// A folder with a folder for each version, which holds the programs that the description names, such as v1.36.2/kube-proxy.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Scenario files, or names under scenarios/ [default: all of scenarios/, without those of its folders].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The proxy's description.
    #[arg(long, value_name = "FILE", default_value = "kube-proxy.yaml")]
    proxy: PathBuf,
    /// Only these modes [default: all modes of a version].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE")]
    mode: Vec<Mode>,
    /// The kernel, as `svclab run` takes it.
    #[arg(long, value_name = "KERNEL", default_value = "auto")]
    kernel: KernelArg,
    /// Where to write the matrix as Markdown (`-`: standard output).
    #[arg(long, value_name = "FILE", default_value = "-")]
    markdown: PathBuf,
    /// Where to write the matrix as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The folder for the reports of the runs, DIR/VERSION-MODE.json [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    reports: Option<PathBuf>,
    #[command(flatten)]
    sharding: ShardArgs,
}

/// A version in a mode, with the scenarios to run.
struct ColumnRuns<'a> {
    folder: &'a Path,
    column: usize,
    mode: Mode,
    scenarios: Vec<&'a Scenario>,
}

impl ColumnRuns<'_> {
    fn version(&self) -> String {
        version(self.folder)
    }

    fn item(&self, scenario: &str) -> WorkItem {
        WorkItem { scenario: scenario.to_owned(), mode: self.mode.to_string(), place: self.version(), seed: 0 }
    }
}

pub(super) fn matrix(args: &MatrixArgs) -> Result<u8, Exit> {
    let names = if args.files.is_empty() { every_scenario() } else { args.files.clone() };
    let scenarios = find::load_all(&names, 0)?;
    let description = find::description(&args.proxy);
    let versions = versions(&args.folder, &description)?;
    output::open([Some(args.markdown.as_path()), args.json.as_deref()])?;
    let temporary = tempfile::tempdir().map_err(|error| Exit::unable(format!("cannot make a folder: {error}")))?;
    let reports = args.reports.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(reports)
        .map_err(|error| Exit::usage(format!("cannot make {}: {error}", reports.display())))?;
    signals::watch()?;
    let mut matrix = Matrix::default();
    let mut runs = plan(args, &scenarios, &versions, &mut matrix);
    let items: Vec<WorkItem> =
        runs.iter().flat_map(|runs| runs.scenarios.iter().map(|one| runs.item(&one.name))).collect();
    let flags = format!("--kernel {}", args.kernel);
    let work = SharedWork { proxy: matrix.proxy.clone(), flags, by_seed: false };
    matrix.shard = args.sharding.share(&items, work)?;
    for runs in &mut runs {
        let is_own = |name: &str| matrix.shard.as_ref().is_none_or(|share| share.has(&runs.item(name)));
        let own: Vec<&Scenario> = runs.scenarios.iter().copied().filter(|one| is_own(&one.name)).collect();
        runs.scenarios = own;
    }
    for one in runs.iter().filter(|runs| !runs.scenarios.is_empty()) {
        if signals::stop().is_some() {
            break;
        }
        let (version, mode) = (one.version(), one.mode);
        eprintln!("{version} in {mode} mode: {}", counted(one.scenarios.len(), "scenario"));
        let order = order(args, &description, mode, &one.scenarios);
        let report = reports.join(format!("{version}-{mode}.json"));
        let output = ChildOutput::To(Stream::Err);
        let (_, run) = child::run_with_report(order, &report, output, Some(path_with(one.folder)?))?;
        let run = run.unwrap_or_default();
        let times = run.scenarios.iter().map(|done| ItemTime { item: one.item(&done.name), seconds: done.seconds });
        matrix.times.extend(times);
        enter(&one.scenarios, &run, one.column, &mut matrix);
    }
    write(Some(&args.markdown), &markdown(&matrix))?;
    write_json(args.json.as_deref(), &matrix)?;
    signals::stop().map_or(Ok(status(&matrix)), |stop| Err(stop.exit()))
}

/// Returns what to run, and enters columns and excused scenarios into the matrix.
fn plan<'a>(
    args: &MatrixArgs,
    scenarios: &'a [Scenario],
    versions: &'a [(PathBuf, ForeignProxy)],
    matrix: &mut Matrix,
) -> Vec<ColumnRuns<'a>> {
    let mut runs = Vec::new();
    for (folder, proxy) in versions {
        matrix.proxy.clone_from(&proxy.name);
        let has = |mode: &Mode| proxy.has(*mode) && (args.mode.is_empty() || args.mode.contains(mode));
        for mode in Mode::WITH_OTHER.into_iter().filter(has) {
            let number = proxy.version().map(ToString::to_string);
            let column = matrix.add(Column { folder: version(folder), version: number, mode: mode.to_string() });
            let scenarios = not_excused(scenarios, proxy, mode, column, matrix);
            runs.push(ColumnRuns { folder, column, mode, scenarios });
        }
    }
    runs
}

/// Returns the name of a version's folder.
fn version(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn order(args: &MatrixArgs, description: &Path, mode: Mode, scenarios: &[&Scenario]) -> RunArgs {
    let mut order = RunArgs::of(scenarios.iter().map(|scenario| scenario.path.clone()).collect());
    order.mode = vec![mode];
    (order.keep_going, order.quiet, order.no_bundle) = (true, true, true);
    order.vm.kernel = args.kernel.clone();
    order.lab.proxy = Some(description.to_owned());
    order
}

/// Skips the subfolders, which have long scenarios and those that need a microVM.
fn every_scenario() -> Vec<PathBuf> {
    let top = |path: &&Path| path.parent() == Some(Path::new(shipped::SCENARIOS));
    shipped::scenarios().filter(top).map(Path::to_owned).collect()
}

/// Returns the proxies with their folders, sorted by version.
fn versions(folder: &Path, description: &Path) -> Result<Vec<(PathBuf, ForeignProxy)>, Exit> {
    let wrong = |error: std::io::Error| Exit::usage(format!("cannot read {}: {error}", folder.display()));
    let folder = std::fs::canonicalize(folder).map_err(wrong)?;
    let entries: Vec<PathBuf> = std::fs::read_dir(&folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(wrong)?;
    let mut versions = Vec::new();
    for version in entries.into_iter().filter(|entry| entry.is_dir()) {
        let proxy = ForeignProxy::read_with(description, Some(&version));
        let proxy = proxy.map_err(|error| Exit::usage(format!("{}: {error}", version.display())))?;
        versions.push((version, proxy));
    }
    if versions.is_empty() {
        return Err(Exit::usage(format!("{} has no folder with a version in it", folder.display())));
    }
    versions.sort_by(|(a, of_a), (b, of_b)| (of_a.version(), a).cmp(&(of_b.version(), b)));
    Ok(versions)
}

/// Enters the excused scenarios into the matrix and returns the others.
fn not_excused<'a>(
    scenarios: &'a [Scenario],
    proxy: &ForeignProxy,
    mode: Mode,
    column: usize,
    matrix: &mut Matrix,
) -> Vec<&'a Scenario> {
    let mut runs = Vec::new();
    for scenario in scenarios.iter().filter(|scenario| scenario.is_for(mode)) {
        match proxy.excuse(scenario, mode) {
            Some(reason) => matrix.enter(&scenario.name, column, Cell::Excused(reason)),
            None => runs.push(scenario),
        }
    }
    runs
}

fn path_with(folder: &Path) -> Result<OsString, Exit> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([folder.to_owned()].into_iter().chain(std::env::split_paths(&path)))
        .map_err(|error| Exit::usage(format!("{}: {error}", folder.display())))
}

/// Enters a run's results into the matrix. Scenarios that the report lacks were not run.
fn enter(scenarios: &[&Scenario], run: &RunRecord, column: usize, matrix: &mut Matrix) {
    for name in scenarios.iter().map(|scenario| scenario.name.as_str()).collect::<BTreeSet<_>>() {
        let cell = run.scenarios.iter().find(|one| one.name == name).map(Cell::of).unwrap_or_else(|| {
            let left_out = run.not_run.iter().flatten().find(|one| one.scenario == name);
            let unknown = "svclab run could not run it here, and has said why";
            Cell::NotRun(left_out.map_or(unknown, |one| &one.why).to_owned())
        });
        matrix.enter(name, column, cell);
    }
}

pub(super) fn status(matrix: &Matrix) -> u8 {
    if matrix.count("failed") > 0 {
        FAILED
    } else if matrix.count("passed") == 0 && matrix.shard.is_none() {
        UNABLE
    } else {
        0
    }
}
