//! The generated clusters of a conformance card, and smaller clusters that break the same promise.

use std::path::{Path, PathBuf};

use svclab_oracle::{ClusterModel, Protocol, generate};

use crate::conformance::{Gatherer, OnlyGenerated};
use crate::exit::Exit;
use crate::mode::Mode;
use crate::report::RunRecord;
use crate::scenario::{self, Scenario};
use crate::schedule::signals;

/// The number of requests per cluster, besides the audit.
const QUESTIONS: usize = 6;
const SMALLER: &str = "-smaller";

/// Writes `wanted` generated clusters as scenarios; skips clusters that the lab's API rejects.
pub(super) fn clusters(first: u64, wanted: u64, mode: Mode, folder: &Path) -> Result<Vec<(PathBuf, Scenario)>, Exit> {
    let mut found = Vec::new();
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    for seed in first.. {
        if found.len() == wanted {
            break;
        }
        let name = format!("{}{seed}", prefix(mode));
        found.extend(written(
            generate::cluster(seed),
            seed,
            mode,
            QUESTIONS,
            &folder.join(name).with_extension("yaml"),
        )?);
    }
    Ok(found)
}

fn prefix(mode: Mode) -> String {
    format!("generated-{mode}-")
}

/// Writes a cluster's scenario; `None`, and no file, if the scenario is invalid.
fn written(
    cluster: ClusterModel,
    seed: u64,
    mode: Mode,
    questions: usize,
    path: &Path,
) -> Result<Option<(PathBuf, Scenario)>, Exit> {
    let failed = |error| Exit::usage(format!("cannot write {}: {error}", path.display()));
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    std::fs::write(path, text(cluster, seed, mode, questions, &name)).map_err(failed)?;
    match scenario::load(path, seed) {
        Ok(scenario) => Ok(Some((path.to_owned(), scenario))),
        Err(_) => std::fs::remove_file(path).map(|()| None).map_err(failed),
    }
}

/// Returns a scenario's text, with an audit and `wanted` requests.
fn text(mut cluster: ClusterModel, seed: u64, mode: Mode, wanted: usize, name: &str) -> String {
    cluster.world.proxy.mode = mode.of_oracle();
    let mut questions = cluster.questions();
    questions.retain(|question| question.protocol != Protocol::Sctp);
    let step = (questions.len() / QUESTIONS).max(1);
    let offset = usize::try_from(seed).unwrap_or_default() % step;
    let questions: Vec<_> = questions.into_iter().skip(offset).step_by(step).take(wanted).collect();
    cluster.audited_yaml(name, &questions)
}

/// Writes the smallest cluster found within `runs` runs that breaks a promise, and returns its breaches.
pub(super) fn shrink(
    gatherer: &Gatherer,
    found: &OnlyGenerated,
    runs: u32,
    folder: &Path,
    run: &mut dyn FnMut(&Path, Mode) -> Result<RunRecord, Exit>,
) -> Result<Option<Gatherer>, Exit> {
    let OnlyGenerated { promise, mode, scenario, by_audit } = found;
    let Ok(mode) = mode.parse::<Mode>() else { return Ok(None) };
    let seed = scenario.strip_prefix(&prefix(mode)).and_then(|seed| seed.parse().ok());
    let Some(seed) = seed else { return Ok(None) };
    eprintln!("{mode} mode: looks for a smaller cluster than {scenario} that breaks {promise}, in up to {runs} runs");
    let path = folder.join(format!("{scenario}{SMALLER}.yaml"));
    // An audit needs no requests, and a failed request would wait for its whole patience.
    let questions = if *by_audit { 0 } else { QUESTIONS };
    let mut smallest = None;
    generate::shrink(generate::recipe(seed), runs, &mut |recipe| {
        if signals::stop().is_some() {
            return Ok(false);
        }
        let Some((_, scenario)) = written(recipe.build(), seed, mode, questions, &path)? else { return Ok(false) };
        let judged = gatherer.judge_apart(&scenario.name, &scenario.text, &run(&path, mode)?);
        let shows = judged.breaks(promise, &mode.to_string());
        if shows {
            smallest = Some((scenario.text, judged));
        }
        Ok::<_, Exit>(shows)
    })?;
    let _ = std::fs::remove_file(&path);
    let Some((text, judged)) = smallest else { return Ok(None) };
    std::fs::write(&path, text).map_err(|error| Exit::usage(format!("cannot write {}: {error}", path.display())))?;
    Ok(Some(judged))
}
