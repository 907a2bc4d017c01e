//! Wrong proxies turn the scenario red that docs/mutants.md names, at that step.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::runs::{names, run};
use libtest_mimic::{Completion, Failed, Trial};
use svclab::conformance::mutants::{DOCUMENT, MutantRow, rows};

/// The usual test run has one wrong proxy of so many.
const EVERY: usize = 5;

pub fn trials() -> Vec<Trial> {
    // Those of microVMs boot one each: the command that makes the table judges them.
    let is_for_host =
        |row: &MutantRow| row.on == "simulator" || (row.mode != "ipvs" && !row.noticed_by.starts_with("microvm/"));
    let noticed = rows(DOCUMENT).into_iter().filter(|row| row.is_noticed() && is_for_host(row)).enumerate();
    noticed
        .map(|(number, row)| {
            let is_nightly = number % EVERY != 0;
            let part = if is_nightly { "nightly_" } else { "" };
            let name = format!("mutants::{part}{}", row.id);
            Trial::ignorable_test(name, move || is_noticed(&row)).with_ignored_flag(is_nightly)
        })
        .collect()
}

fn is_noticed(row: &MutantRow) -> Result<Completion, Failed> {
    let (scenario, step) = row.noticed_by.split_once(": ").ok_or("a row names a scenario and a step")?;
    let last = |name: &str| name.rsplit('/').next().map(str::to_owned);
    let names = names();
    // The simulator runs scenarios of microVMs, too; a row may leave out their folder.
    let name = names.iter().find(|name| *name == scenario).or(names.iter().find(|name| last(name) == last(scenario)));
    let name = name.ok_or_else(|| format!("there is no scenario {scenario}"))?;
    let directory = tempfile::tempdir()?;
    let proxy = directory.path().join("svcproxy");
    wrapper(&proxy, &row.id)?;
    let simulate = if row.on == "simulator" { &["--simulate"][..] } else { &[] };
    let proxy = proxy.display().to_string();
    let flags = [&["--mode", &row.mode, "--proxy", &proxy], simulate].concat();
    let run = run(name, &flags);
    if run.status == 3 {
        return crate::support::unable(&run.stderr);
    }
    let red: Vec<String> = run.broken().into_iter().map(|(step, _)| step).collect();
    let is_start = step == "the start" && run.scenario["notStarted"].is_string();
    // Chance may hide a wrong choice at one step, and not at the next.
    let steps = run.scenario["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut from_then_on = steps.iter().filter_map(|one| one["name"].as_str()).skip_while(|name| *name != step);
    if run.status == 1 && (is_start || from_then_on.any(|name| red.iter().any(|red| red == name))) {
        return Ok(Completion::Completed);
    }
    Err(format!(
        "wanted: {step:?} of {scenario} or a later step turns red; exit status {}, red: {red:?}\n{}",
        run.status, run.stderr
    )
    .into())
}

/// Writes a program that is the wrong svcproxy.
fn wrapper(path: &Path, id: &str) -> std::io::Result<()> {
    let svcproxy = Path::new(env!("CARGO_BIN_EXE_svclab")).with_file_name("svcproxy");
    // A flag of `render` comes after it.
    let script = format!(
        "#!/bin/sh\n[ \"$1\" != render ] || {{ render=render; shift; }}\nexec '{}' $render --mutant {id} \"$@\"\n",
        svcproxy.display()
    );
    std::fs::write(path, script)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}
