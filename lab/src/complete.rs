//! Words that a shell offers at the tab key: scenarios, labs that are up, and places in them.

use std::ffi::OsStr;
use std::path::Path;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use svclab_netns::labs;

use crate::shipped::{self, SCENARIOS};

/// Completes names of scenarios, and paths of scenario files.
pub(crate) fn scenarios() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let files = PathCompleter::any().filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        let mut offered = starting_with(current, names());
        offered.extend(files.complete(current));
        offered
    })
}

/// Completes places of the labs that are up.
pub(crate) fn places() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let labs = labs::labs().into_iter().filter(|lab| lab.about.is_some());
        // A pod of the namespace `default` needs no namespace.
        let name = |place: &str| place.replacen("pod/default/", "pod/", 1);
        starting_with(current, labs.flat_map(|lab| lab.places).map(|place| name(&place.place)).collect())
    })
}

/// Completes names of labs that are up.
pub(crate) fn labs() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        starting_with(current, labs::labs().into_iter().filter_map(|lab| Some(lab.about?.name)).collect())
    })
}

/// Returns the names of the scenarios in `scenarios/` here, and of the embedded ones.
fn names() -> Vec<String> {
    let here = std::fs::read_dir(SCENARIOS).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let own = here.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let name = |path: &Path| Some(path.strip_prefix(SCENARIOS).ok()?.with_extension("").display().to_string());
    own.filter_map(|path| name(&path)).chain(shipped::scenarios().filter_map(name)).collect()
}

fn starting_with(current: &OsStr, mut names: Vec<String>) -> Vec<CompletionCandidate> {
    let Some(start) = current.to_str() else { return Vec::new() };
    names.retain(|name| name.starts_with(start));
    names.sort();
    names.dedup();
    names.into_iter().map(CompletionCandidate::new).collect()
}
