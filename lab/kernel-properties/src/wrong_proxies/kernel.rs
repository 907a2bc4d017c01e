use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use svclab::mode::Mode;
use svclab::promises::STARTS;
use svcproxy::mutants::Mutant;

use super::RedStep;

/// A run of `svclab` with a wrong proxy that gave no verdict.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error("cannot run {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("svclab {command} with --mutant {mutant} wrote no report: {complaint}")]
    NoReport { command: String, mutant: String, complaint: String },
}

/// Runs a scenario, and returns what the wrong proxy fails.
pub(super) fn first_red(
    programs: &Path,
    mutant: &Mutant,
    scenario: &str,
    mode: Mode,
) -> Result<Option<RedStep>, KernelError> {
    let red = red_step(programs, Some(mutant), scenario, mode)?;
    // Started by a description, the right proxy may fail, too: the same red step then shows nothing.
    let shows_nothing =
        red.is_some() && runs_in_microvm(scenario, mode) && red == red_step(programs, None, scenario, mode)?;
    Ok(red.filter(|_| !shows_nothing))
}

fn red_step(
    programs: &Path,
    mutant: Option<&Mutant>,
    scenario_name: &str,
    mode: Mode,
) -> Result<Option<RedStep>, KernelError> {
    let report = svclab(programs, mutant, &["run", "--quiet"], scenario_name, mode)?;
    let scenarios = report["scenarios"].as_array().cloned().unwrap_or_default();
    Ok(scenarios.iter().find_map(|scenario| {
        let steps = scenario["steps"].as_array().cloned().unwrap_or_default();
        let red = steps.iter().find(|step| matches!(step["verdict"].as_str(), Some("failed" | "error")));
        let is_start = scenario["notStarted"].is_string() && scenario["unable"] != true;
        let of_scenario = if is_start { Some(STARTS) } else { scenario["promise"].as_str() };
        let promise = red.and_then(|step| step["promise"].as_str()).or(of_scenario);
        let step = red.and_then(|step| step["name"].as_str());
        let step = step.or(is_start.then_some("the start"))?;
        Some(RedStep { scenario: scenario_name.to_owned(), step: step.to_owned(), promise: promise.map(str::to_owned) })
    }))
}

/// What a card says about a wrong proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CardBreaches {
    /// The ids of the broken promises.
    pub(super) promises: Vec<String>,
    pub(super) by_audit: bool,
}

/// Makes a card of one scenario.
pub(super) fn card(programs: &Path, mutant: &Mutant, scenario: &str, mode: Mode) -> Result<CardBreaches, KernelError> {
    let options = ["conformance", "--no-figures", "--clusters", "0", "--shrink-runs", "0"];
    let card = svclab(programs, Some(mutant), &options, scenario, mode)?;
    let mut found = CardBreaches::default();
    for promise in card["promises"].as_array().into_iter().flatten() {
        let cells = promise["cells"].as_object().into_iter().flat_map(|cells| cells.values());
        for cell in cells.filter(|cell| cell["verdict"] == "broken") {
            found.promises.extend(promise["id"].as_str().map(str::to_owned));
            let mut breaches = cell["breaches"].as_array().into_iter().flatten();
            found.by_audit |= breaches.any(|breach| breach["byAudit"] == true);
        }
    }
    Ok(found)
}

fn svclab(
    programs: &Path,
    mutant: Option<&Mutant>,
    options: &[&str],
    scenario: &str,
    mode: Mode,
) -> Result<Value, KernelError> {
    let program = programs.join("svclab");
    let fail = |source| KernelError::Start { program: program.display().to_string(), source };
    let scratch = tempfile::tempdir().map_err(fail)?;
    let report = scratch.path().join("report.json");
    let proxy = proxy(scratch.path(), &programs.join("svcproxy"), mutant, scenario, mode).map_err(fail)?;
    let mut command = Command::new(&program);
    command.args(options).arg("--mode").arg(mode.to_string()).arg("--proxy").arg(&proxy).arg("--json").arg(&report);
    let output = command.arg(scenario).stdout(Stdio::null()).output().map_err(fail)?;
    let text = std::fs::read(&report).unwrap_or_default();
    serde_json::from_slice(&text).map_err(|_| KernelError::NoReport {
        command: format!("{} {scenario}", options.join(" ")),
        mutant: mutant.map_or("none", |mutant| mutant.id).to_owned(),
        complaint: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn runs_in_microvm(scenario: &str, mode: Mode) -> bool {
    scenario.starts_with("microvm/") || mode == Mode::Ipvs
}

/// Writes what `svclab --proxy` starts: svcproxy as the mutant. A microVM has no other program than the one that a
/// description names, so that a wrapper would not find svcproxy there.
fn proxy(folder: &Path, svcproxy: &Path, mutant: Option<&Mutant>, scenario: &str, mode: Mode) -> io::Result<PathBuf> {
    let flags: Vec<&str> = mutant.iter().flat_map(|mutant| ["--mutant", mutant.id]).collect();
    if runs_in_microvm(scenario, mode) {
        let program = [svcproxy.display().to_string()].into_iter();
        let flags = flags.into_iter().chain(["--config={config}", "--hostname-override={node}"]).map(str::to_owned);
        let command: Vec<String> = program.chain(flags).collect();
        let path = folder.join("proxy.yaml");
        std::fs::write(&path, json!({"name": "svcproxy", "command": command}).to_string())?;
        return Ok(path);
    }
    let path = folder.join("proxy");
    std::fs::write(&path, format!("#!/bin/sh\nexec '{}' {} \"$@\"\n", svcproxy.display(), flags.join(" ")))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}
