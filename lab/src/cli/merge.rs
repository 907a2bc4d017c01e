use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;

use super::conformance::card::{CardFiles, differences, read, write_card};
use super::matrix;
use crate::exit::{Exit, FAILED, UNABLE};
use crate::matrix::{self as matrices, Matrix};
use crate::merge::{Gap, MergedReport, merge};
use crate::report::terminal::counted;
use crate::report::{RunRecord, html, junit, markdown};
use crate::schedule::output::{write, write_json};

#[derive(Args)]
#[command(
    after_help = "Exit status: that of the command without --shard; 2 if the reports are not of one command; 3 if something is missing, which the report names."
)]
pub(super) struct MergeArgs {
    /// The JSON reports of all shards of one `svclab run`, `matrix` or `conformance`.
    #[arg(required = true, value_name = "REPORT")]
    reports: Vec<PathBuf>,
    /// Write the report as JSON (`-`: to standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report of a run as JUnit XML (likewise).
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the report of a run, or the card, as a page of one file for a browser (likewise).
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the report, the card or the matrix as Markdown (likewise).
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Compare the card with this one, as `svclab conformance` does.
    #[arg(long, value_name = "CARD")]
    against: Option<PathBuf>,
}

pub(super) fn run(args: &MergeArgs) -> Result<u8, Exit> {
    let (merged, gaps) = merge(&args.reports).map_err(|error| Exit::usage(error.to_string()))?;
    let status = match merged {
        MergedReport::Run(run) => merged_run(args, &run)?,
        MergedReport::Matrix(matrix) => merged_matrix(args, &matrix)?,
        MergedReport::Card(card) => {
            refuse("a card", [("--junit", &args.junit)])?;
            let before = args.against.as_deref().map(read).transpose()?;
            let (json, markdown) = (args.json.as_deref(), args.markdown.as_deref());
            write_card(&card, &CardFiles { json, markdown, html: args.html.as_deref() })?;
            match before {
                _ if !card.judged() => UNABLE,
                Some(before) => u8::from(differences(&card, &before)) * FAILED,
                None => u8::from(!card.is_clean()) * FAILED,
            }
        }
    };
    complaints(&gaps).iter().for_each(|line| eprintln!("svclab: {line}"));
    Ok(if gaps.is_empty() { status } else { UNABLE })
}

fn merged_run(args: &MergeArgs, run: &RunRecord) -> Result<u8, Exit> {
    refuse("a run", [("--against", &args.against)])?;
    let failed: Vec<_> = run.scenarios.iter().filter(|scenario| !scenario.passed).collect();
    if ![&args.json, &args.junit, &args.html, &args.markdown].into_iter().flatten().any(|path| path.as_os_str() == "-")
    {
        for one in &failed {
            println!("FAILED {} ({}, {}); repeat with: {}", one.name, one.mode, one.place(), one.repeat);
        }
        let all = run.scenarios.len();
        println!("{}: {} passed, {} failed", counted(all, "scenario"), all - failed.len(), failed.len());
    }
    write_json(args.json.as_deref(), run)?;
    write(args.junit.as_deref(), &junit::render(run))?;
    write(args.html.as_deref(), &html::render(run))?;
    write(args.markdown.as_deref(), &markdown::render(run))?;
    let is_judged = run.scenarios.iter().any(|scenario| scenario.judged);
    Ok(match (run.passed, failed.is_empty()) {
        _ if !is_judged || failed.iter().any(|scenario| scenario.unable) => UNABLE,
        (true, _) => 0,
        (false, false) => FAILED,
        // A shard failed without a failed scenario.
        (false, true) => UNABLE,
    })
}

fn merged_matrix(args: &MergeArgs, merged: &Matrix) -> Result<u8, Exit> {
    refuse("a matrix", [("--junit", &args.junit), ("--html", &args.html), ("--against", &args.against)])?;
    let to_output = args.json.as_ref().is_none_or(|path| path.as_os_str() != "-").then(|| Path::new("-"));
    write(args.markdown.as_deref().or(to_output), &matrices::markdown(merged))?;
    write_json(args.json.as_deref(), merged)?;
    Ok(matrix::status(merged))
}

fn refuse<const N: usize>(of: &str, flags: [(&str, &Option<PathBuf>); N]) -> Result<(), Exit> {
    match flags.iter().find(|(_, given)| given.is_some()) {
        None => Ok(()),
        Some((flag, _)) => Err(Exit::usage(format!("{flag}: {of} has no such form"))),
    }
}

/// Returns a line per reason, with the items.
fn complaints(gaps: &[Gap]) -> Vec<String> {
    let mut items: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    gaps.iter().for_each(|gap| items.entry(&gap.why).or_default().push(gap.item.to_string()));
    items.into_iter().map(|(why, items)| format!("{why}: {}", items.join(", "))).collect()
}
