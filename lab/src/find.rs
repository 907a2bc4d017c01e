//! Finds scenarios, descriptions of proxies, and required programs.

use std::path::{Path, PathBuf};

use crate::exit::Exit;
use crate::input::InputFiles;
use crate::scenario::run::{ForeignProxy, ObjectSource, ProxyFileError, ProxyUnderTest};
use crate::scenario::{Scenario, load_from};
use crate::shipped::{PROXIES, SCENARIOS};

/// Finds a scenario: a path, a name under `scenarios/` here or in a parent folder, or an embedded file.
fn scenario(files: &InputFiles, name: &Path) -> Result<PathBuf, Exit> {
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
            Err(Exit::usage(format!("there is no file {}{hint}; `svclab list` shows what there is", name.display())))
        }
    }
}

/// Loads scenarios; the error has the mistakes of all files.
pub(crate) fn load_all(names: &[PathBuf], seed: u64) -> Result<Vec<Scenario>, Exit> {
    load_all_from(&InputFiles::default(), names, seed)
}

pub(crate) fn load_all_from(files: &InputFiles, names: &[PathBuf], seed: u64) -> Result<Vec<Scenario>, Exit> {
    let (mut scenarios, mut mistakes) = (Vec::new(), Vec::new());
    for name in names {
        match load_from(files, &scenario(files, name)?, seed) {
            Ok(scenario) => scenarios.push(scenario),
            Err(error) => mistakes.push(error.to_string()),
        }
    }
    if mistakes.is_empty() { Ok(scenarios) } else { Err(Exit::usage(mistakes.join("\n"))) }
}

/// Finds the proxy, in this order: `given`, `$SVCPROXY`, the svcproxy beside this program.
pub(crate) fn proxy(given: Option<&Path>, source: ObjectSource) -> Result<ProxyUnderTest, Exit> {
    if let Some(described) = given.and_then(described) {
        if source == ObjectSource::Manifests {
            return Err(Exit::usage(
                "--source manifests is for svcproxy alone: another's proxy reads the Kubernetes API",
            ));
        }
        return described
            .map(|proxy| ProxyUnderTest::Foreign(Box::new(proxy)))
            .map_err(|error| Exit::usage(error.to_string()));
    }
    let beside = || std::env::current_exe().ok().map(|exe| exe.with_file_name("svcproxy"));
    let from_env = || std::env::var_os("SVCPROXY").map(PathBuf::from);
    let path = given.map(Path::to_owned).or_else(from_env).or_else(beside).unwrap_or_else(|| PathBuf::from("svcproxy"));
    let found = std::fs::canonicalize(&path).ok().filter(|path| path.is_file());
    found.map(ProxyUnderTest::Own).ok_or_else(|| {
        let hint = "build it with `cargo build -p svcproxy`, or name one with --proxy or $SVCPROXY";
        Exit::unable(format!("there is no service proxy at {}: {hint}", path.display()))
    })
}

/// Reads a proxy's description; `None` unless `given` is a command with placeholders or a YAML file.
fn described(given: &Path) -> Option<Result<ForeignProxy, ProxyFileError>> {
    let command = given.to_str().filter(|text| ForeignProxy::is_command(text));
    let is_file = given.extension().is_some_and(|extension| extension == "yaml");
    command.map(ForeignProxy::from_command).or_else(|| is_file.then(|| ForeignProxy::read(&description(given))))
}

pub(crate) fn description(given: &Path) -> PathBuf {
    let carried = Path::new(PROXIES).join(given);
    if !given.is_file() && InputFiles::default().has(&carried) { carried } else { given.to_owned() }
}

/// Checks that the commands of iptables mode are installed.
pub(crate) fn tools() -> Result<(), Exit> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
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
