//! Finds scenarios, descriptions of proxies, and required programs.

use std::path::{Path, PathBuf};

use svclab_audit::owner::ProxyTables;
use svclab_netns::sandbox::path_with_sbin;

use crate::exit::Exit;
use crate::input::{self, InputFiles};
use crate::mode::Mode;
use crate::scenario::run::{ForeignProxy, ObjectSource, ProxyFileError, ProxyUnderTest};
use crate::scenario::{Scenario, alike, load_from};
use crate::shipped::{self, PROXIES, SCENARIOS};

/// Finds a scenario: `-` for standard input, a path, a name under `scenarios/` here or in a parent folder, or an
/// embedded file.
fn scenario(files: &InputFiles, name: &Path) -> Result<PathBuf, Exit> {
    if name.as_os_str() == "-" {
        let unread = |error| Exit::usage(format!("cannot read the scenario from standard input: {error}"));
        input::keep_standard_input().map_err(unread)?;
        return Ok(input::STANDARD_INPUT.into());
    }
    if files.has(name) {
        return Ok(name.to_owned());
    }
    let plain = name.extension().is_none() && !name.is_absolute();
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let file = Path::new(SCENARIOS).join(name).with_extension("yaml");
    let above = here.ancestors().find(|directory| plain && directory.join(&file).is_file());
    match above {
        Some(directory) if directory == here => Ok(file),
        Some(directory) => Ok(directory.join(file)),
        None if plain && files.has(&file) => Ok(file),
        None => {
            let hint = if plain { format!(", nor a {}", file.display()) } else { String::new() };
            let meant = similar(name).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            let list = "`svclab list` shows what there is";
            Err(Exit::usage(format!("there is no file {}{hint}; {meant}{list}", name.display())))
        }
    }
}

/// Returns the name of the embedded scenario that is most like `name`.
fn similar(name: &Path) -> Option<String> {
    let plain = |path: &Path| path.with_extension("").display().to_string();
    let names: Vec<String> =
        shipped::scenarios().filter_map(|path| path.strip_prefix(SCENARIOS).ok()).map(plain).collect();
    let wanted = plain(name.strip_prefix(SCENARIOS).unwrap_or(name));
    alike(&wanted, &names.iter().map(String::as_str).collect::<Vec<_>>()).map(str::to_owned)
}

pub(crate) fn load_one(name: &Path, seed: u64) -> Result<Scenario, Exit> {
    let files = InputFiles::default();
    load_from(&files, &scenario(&files, name)?, seed).map_err(|error| Exit::usage(error.to_string()))
}

/// Loads scenarios; the error has the mistakes of all files.
pub(crate) fn load_all(names: &[PathBuf], seed: u64) -> Result<Vec<Scenario>, Exit> {
    load_all_from(&InputFiles::default(), names, seed)
}

pub(crate) fn load_all_from(files: &InputFiles, names: &[PathBuf], seed: u64) -> Result<Vec<Scenario>, Exit> {
    let (mut scenarios, mut mistakes) = (Vec::new(), Vec::new());
    for name in expanded(files, names)? {
        match load_from(files, &scenario(files, &name)?, seed) {
            Ok(scenario) => scenarios.push(scenario),
            Err(error) => mistakes.push(error.to_string()),
        }
    }
    if mistakes.is_empty() { Ok(scenarios) } else { Err(Exit::usage(mistakes.join("\n"))) }
}

/// Replaces each folder with the scenarios in it, by name; not with those of its folders, which may need a microVM.
fn expanded(files: &InputFiles, names: &[PathBuf]) -> Result<Vec<PathBuf>, Exit> {
    let mut expanded = Vec::new();
    for name in names {
        if !name.is_dir() || scenario(files, name).is_ok() {
            expanded.push(name.clone());
            continue;
        }
        let wrong = |error: std::io::Error| Exit::usage(format!("cannot read {}: {error}", name.display()));
        let entries = std::fs::read_dir(name).map_err(wrong)?.map(|entry| Ok(entry?.path()));
        let mut found: Vec<PathBuf> = entries.collect::<Result<_, _>>().map_err(wrong)?;
        found.retain(|file| file.extension().is_some_and(|extension| extension == "yaml") && file.is_file());
        if found.is_empty() {
            return Err(no_scenario(name));
        }
        found.sort();
        expanded.extend(found);
    }
    Ok(expanded)
}

pub(crate) fn no_scenario(folder: &Path) -> Exit {
    Exit::usage(format!("{} has no scenario: no file NAME.yaml", folder.display()))
}

/// Returns `given`, else `$SVCPROXY`; both name a program or a description.
pub(crate) fn named_proxy(given: Option<&Path>) -> Option<PathBuf> {
    let from_env = || std::env::var_os("SVCPROXY").filter(|named| !named.is_empty()).map(PathBuf::from);
    given.map(Path::to_owned).or_else(from_env)
}

/// Like [`named_proxy`], as text for the command that repeats a run.
pub(crate) fn proxy_given(given: Option<&Path>) -> Option<String> {
    named_proxy(given).map(|named| named.display().to_string())
}

/// Finds the proxy, in this order: `given`, `$SVCPROXY`, the svcproxy beside this program.
pub(crate) fn proxy(given: Option<&Path>, source: ObjectSource) -> Result<ProxyUnderTest, Exit> {
    let named = named_proxy(given);
    if let Some(described) = named.as_deref().and_then(described) {
        if source == ObjectSource::Manifests {
            return Err(Exit::usage(
                "--source manifests is for svcproxy alone: another's proxy reads the Kubernetes API",
            ));
        }
        return described.map(|proxy| ProxyUnderTest::Foreign(Box::new(proxy))).map_err(|error| {
            let is_missing = named.as_deref().is_some_and(is_missing);
            Exit::usage(if is_missing { format!("{error}; {}", descriptions()) } else { error.to_string() })
        });
    }
    let beside = || std::env::current_exe().ok().map(|exe| exe.with_file_name("svcproxy"));
    if let Some(description) = named.as_deref().and_then(another_program) {
        let (program, stem) = (named.unwrap_or_default(), description.trim_end_matches(".yaml"));
        return Err(Exit::usage(format!(
            "--proxy: {program} would be started as svcproxy is, but its name is that of {stem}: say how to start it. \
             `PATH={folder}:$PATH svclab run --proxy {description}` uses the description in svclab; or give a command: \
             --proxy '{program} --config={{config}} --hostname-override={{node}}'",
            folder = program.parent().unwrap_or(Path::new("")).display(),
            program = program.display(),
        )));
    }
    let path = named.or_else(beside).unwrap_or_else(|| PathBuf::from("svcproxy"));
    let found = std::fs::canonicalize(&path).ok().filter(|path| path.is_file());
    found.map(ProxyUnderTest::Own).ok_or_else(|| {
        let hint = "build it with `cargo build -p svcproxy`, or name one with --proxy or $SVCPROXY";
        Exit::unable(format!("there is no service proxy at {}: {hint}; {}", path.display(), descriptions()))
    })
}

/// Returns the embedded description of a program that is not svcproxy, by the program's name.
fn another_program(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    shipped::proxies().find(|description| description.strip_suffix(".yaml") == Some(name))
}

fn is_missing(named: &Path) -> bool {
    let is_command = named.to_str().is_some_and(ForeignProxy::is_command);
    !is_command && !InputFiles::default().has(&description(named))
}

fn descriptions() -> String {
    format!("svclab has the descriptions {}", shipped::proxies().collect::<Vec<_>>().join(", "))
}

/// Reads a proxy's description; `None` unless `given` is a command with placeholders or a YAML file.
fn described(given: &Path) -> Option<Result<ForeignProxy, ProxyFileError>> {
    let command = given.to_str().filter(|text| ForeignProxy::is_command(text));
    let is_file = given.extension().is_some_and(|extension| extension == "yaml");
    command.map(ForeignProxy::from_command).or_else(|| is_file.then(|| ForeignProxy::read(&description(given))))
}

/// Reads the mode, if there is one only, and the tables of a proxy's description.
pub(crate) fn described_for_audit(given: &Path) -> Result<(Option<Mode>, ProxyTables), Exit> {
    ForeignProxy::read_for_audit(&description(given)).map_err(|error| Exit::usage(format!("--proxy: {error}")))
}

pub(crate) fn description(given: &Path) -> PathBuf {
    let carried = Path::new(PROXIES).join(given);
    if !given.is_file() && InputFiles::default().has(&carried) { carried } else { given.to_owned() }
}

/// Checks that the commands of iptables mode are installed.
pub(crate) fn tools() -> Result<(), Exit> {
    let directories: Vec<PathBuf> = std::env::split_paths(&path_with_sbin()).collect();
    match ["iptables", "iptables-save", "iptables-restore"]
        .iter()
        .find(|tool| !directories.iter().any(|directory| directory.join(tool).exists()))
    {
        None => Ok(()),
        Some(tool) => {
            Err(Exit::unable(format!("{tool} is missing on this machine; on Debian: apt-get install iptables")))
        }
    }
}
