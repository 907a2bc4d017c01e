//! Judges svcproxy's wrong proxies by the scenarios, and writes the table of docs/mutants.md. Run from the top folder,
//! after `cargo build -p svcproxy -p svclab`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use svclab::conformance::mutants::{MutantRow, rows, with_rows};
use svclab::scenario::load;
use svclab_kernel_properties::wrong_proxies::ScenarioSuite;
use svcproxy::mutants::{self, Mutant, SeenBy};

const DOCUMENT: &str = "docs/mutants.md";
const USAGE: &str = "usage: wrong_proxies [--missing] [--cards | --simulate] [ID...]";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether every wrong proxy of the table is noticed.
fn run() -> Result<bool, String> {
    let (mut missing, mut kernel, mut cards, mut ids) = (false, true, false, Vec::new());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--missing" => missing = true,
            "--cards" => cards = true,
            "--simulate" => kernel = false,
            flag if flag.starts_with('-') => return Err(USAGE.to_owned()),
            id => ids.push(mutants::find(id).ok_or_else(|| format!("{id} is not in the catalogue"))?.id),
        }
    }
    let document = || std::fs::read_to_string(DOCUMENT).map_err(|error| format!("cannot read {DOCUMENT}: {error}"));
    let known = rows(&document()?);
    let has_row = |mutant: &Mutant| known.iter().any(|row| row.id == mutant.id && is_settled(row));
    let suite = suite(kernel, cards && kernel)?;
    for mutant in mutants::all() {
        if (missing && has_row(mutant)) || (!ids.is_empty() && !ids.contains(&mutant.id)) {
            continue;
        }
        let row = suite.judge(mutant).map_err(|error| error.to_string())?;
        println!("{row}");
        if kernel {
            // Another run may have written meanwhile.
            let mut rows: Vec<MutantRow> = rows(&document()?);
            rows.retain(|other| other.id != row.id && mutants::find(&other.id).is_some());
            rows.push(row);
            rows.sort_by(|one, other| one.id.cmp(&other.id));
            let text = with_rows(&document()?, &rows);
            std::fs::write(DOCUMENT, text).map_err(|error| format!("cannot write {DOCUMENT}: {error}"))?;
        }
    }
    let rows = rows(&document()?);
    let unnoticed: Vec<&str> = rows.iter().filter(|row| !is_settled(row)).map(|row| row.id.as_str()).collect();
    println!("{} wrong proxies; not noticed: {}", rows.len(), unnoticed.len());
    unnoticed.iter().for_each(|id| println!("  {id}"));
    Ok(unnoticed.is_empty())
}

/// Whether it is noticed, or proven equivalent.
fn is_settled(row: &MutantRow) -> bool {
    let proven = |mutant: &Mutant| matches!(mutant.seen_by, SeenBy::Equivalent(_));
    row.is_noticed() || mutants::find(&row.id).is_some_and(proven)
}

fn suite(kernel: bool, cards: bool) -> Result<ScenarioSuite, String> {
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in ["scenarios", "scenarios/seeds", "scenarios/microvm"] {
        let entries = std::fs::read_dir(folder).map_err(|error| format!("cannot list {folder}: {error}"))?;
        files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let scenarios = files.iter().map(|file| load(file, 0)).collect::<Result<_, _>>();
    let programs = std::env::current_exe().ok().and_then(|file| Some(file.parent()?.parent()?.to_owned()));
    Ok(ScenarioSuite {
        scenarios: scenarios.map_err(|error| error.to_string())?,
        programs: programs.unwrap_or_else(|| Path::new("target/debug").to_owned()),
        kernel,
        cards,
    })
}
