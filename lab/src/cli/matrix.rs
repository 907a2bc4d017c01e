//! `svclab matrix`: every scenario with each of several versions of a proxy, in each of their modes.
//!
//! Each version and mode is a run of svclab of its own, as `svclab run --proxy` would be: `PATH` begins with the version's folder.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::Value;

use super::output::write;
use super::run_args::ModeArg;
use super::{Exit, FAILED, UNABLE, find, stop};
use crate::matrix::{Cell, Column, Matrix, markdown};
use crate::mode::Mode;
use crate::scenario::Scenario;
use crate::scenario::run::ForeignProxy;
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
    /// Only these modes [default: all that a version has].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE")]
    mode: Vec<ModeArg>,
    /// The kernel, as `svclab run` takes it.
    #[arg(long, value_name = "KERNEL", default_value = "auto")]
    kernel: String,
    /// Where to write the matrix as Markdown (`-`: standard output).
    #[arg(long, value_name = "FILE", default_value = "-")]
    markdown: PathBuf,
    /// Where to write the matrix as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The folder for the reports of the runs, DIR/VERSION-MODE.json [default: they are not kept].
    #[arg(long, value_name = "DIR")]
    reports: Option<PathBuf>,
}

pub(super) fn matrix(args: &MatrixArgs) -> Result<u8, Exit> {
    let names = if args.files.is_empty() { every_scenario() } else { args.files.clone() };
    let scenarios = find::load_all(&names, 0)?;
    let description = find::description(&args.proxy);
    let versions = versions(&args.folder, &description)?;
    let temporary = tempfile::tempdir().map_err(|error| Exit::unable(format!("cannot make a folder: {error}")))?;
    let reports = args.reports.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(reports)
        .map_err(|error| Exit::usage(format!("cannot make {}: {error}", reports.display())))?;
    stop::watch()?;
    let mut matrix = Matrix::default();
    for (folder, proxy) in &versions {
        matrix.proxy.clone_from(&proxy.name);
        for mode in modes(args, proxy) {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let version = proxy.version().map(ToString::to_string);
            let column = matrix.add(Column { folder: name.clone(), version, mode: mode.to_string() });
            let runs = excused(&scenarios, proxy, mode, column, &mut matrix);
            if runs.is_empty() || stop::stop().is_some() {
                continue;
            }
            eprintln!("{name} in {mode} mode: {} scenarios", runs.len());
            let report = reports.join(format!("{name}-{mode}.json"));
            run(args, &description, folder, mode, &runs, &report)?;
            enter(&runs, &report, column, &mut matrix);
        }
    }
    write(Some(&args.markdown), &markdown(&matrix))?;
    write(args.json.as_deref(), &format!("{:#}\n", matrix.json()))?;
    stop::stop().map_or(Ok(status(&matrix)), |stop| Err(stop.exit()))
}

/// All scenarios that need no other machine than the one that there is: the folders below have those for microVMs and long histories.
fn every_scenario() -> Vec<PathBuf> {
    let top = |path: &&Path| path.parent() == Some(Path::new(shipped::SCENARIOS));
    shipped::scenarios().filter(top).map(Path::to_owned).collect()
}

/// The folders of `folder`, each with the proxy as it is there; by version.
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

/// The modes to run a version in.
fn modes(args: &MatrixArgs, proxy: &ForeignProxy) -> Vec<Mode> {
    let asked: Vec<Mode> = args.mode.iter().copied().map(Mode::from).collect();
    Mode::ALL.into_iter().filter(|mode| proxy.has(*mode) && (asked.is_empty() || asked.contains(mode))).collect()
}

/// Enters the scenarios that the proxy is excused from; returns the others.
fn excused<'a>(
    scenarios: &'a [Scenario],
    proxy: &ForeignProxy,
    mode: Mode,
    column: usize,
    matrix: &mut Matrix,
) -> Vec<&'a Scenario> {
    let mut runs = Vec::new();
    for scenario in scenarios.iter().filter(|scenario| scenario.modes.contains(&mode)) {
        match proxy.excuse(&scenario.name, mode) {
            Some(reason) => matrix.enter(&scenario.name, column, Cell::Excused(reason)),
            None => runs.push(scenario),
        }
    }
    runs
}

/// Runs scenarios with the programs of `folder`, to the last whatever breaks.
fn run(
    args: &MatrixArgs,
    description: &Path,
    folder: &Path,
    mode: Mode,
    scenarios: &[&Scenario],
    report: &Path,
) -> Result<(), Exit> {
    let unable = |error: std::io::Error| Exit::unable(format!("cannot run svclab: {error}"));
    let machine = std::env::var_os("PATH").unwrap_or_default();
    let path: OsString = std::env::join_paths([folder.to_owned()].into_iter().chain(std::env::split_paths(&machine)))
        .map_err(|error| Exit::usage(format!("{}: {error}", folder.display())))?;
    // One of an earlier matrix.
    let _ = std::fs::remove_file(report);
    let mut command = Command::new(std::env::current_exe().map_err(unable)?);
    svclab_netns::die_with_this_process(&mut command);
    command
        .arg("run")
        .args(scenarios.iter().map(|scenario| &scenario.path))
        .args(["--keep-going", "--quiet", "--no-bundle", "--mode", &mode.to_string(), "--kernel", &args.kernel])
        .arg("--proxy")
        .arg(description)
        .arg("--json")
        .arg(report)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned().map_err(unable)?);
    stop::status(&mut command).map_err(unable)?;
    Ok(())
}

/// Enters what a run's report tells; a scenario that it does not tell of was not run.
fn enter(scenarios: &[&Scenario], report: &Path, column: usize, matrix: &mut Matrix) {
    let text = std::fs::read_to_string(report).unwrap_or_default();
    let report: Value = serde_json::from_str(&text).unwrap_or_default();
    let of = |key: &str| report[key].as_array().cloned().unwrap_or_default();
    let (ran, left_out) = (of("scenarios"), of("notRun"));
    for name in scenarios.iter().map(|scenario| scenario.name.as_str()).collect::<BTreeSet<_>>() {
        let cell = ran.iter().find(|one| one["name"] == name).map(Cell::of).unwrap_or_else(|| {
            let why = left_out.iter().find(|one| one["scenario"] == name).and_then(|one| one["why"].as_str());
            Cell::NotRun(why.unwrap_or("svclab run could not run it here, and has said why").to_owned())
        });
        matrix.enter(name, column, cell);
    }
}

fn status(matrix: &Matrix) -> u8 {
    if matrix.count("failed") > 0 {
        FAILED
    } else if matrix.count("passed") == 0 {
        UNABLE
    } else {
        0
    }
}
