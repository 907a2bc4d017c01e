//! The generated clusters of a conformance card: drawn from seeds, and made smaller where one of them broke a promise.

use std::path::{Path, PathBuf};

use serde_json::Value;
use svclab_oracle::{ClusterModel, Protocol, generate};

use super::{Exit, stop};
use crate::conformance::{Gatherer, OnlyGenerated};
use crate::mode::Mode;
use crate::scenario::{self, Scenario};

/// Questions that are put to each cluster as real traffic, beside the audit.
const QUESTIONS: usize = 6;
/// Added to the name of a cluster that was made smaller.
const SMALLER: &str = "-smaller";

/// As many clusters as are `wanted`, of `first` and the seeds after it, as scenarios in `folder`. What the lab's API refuses, such as values of
/// a future version, is passed over.
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

/// The cluster as a scenario in this file; nothing, and no file, if it is none that can be run.
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

/// The text of a scenario with an audit, and with `wanted` questions as real traffic.
fn text(mut cluster: ClusterModel, seed: u64, mode: Mode, wanted: usize, name: &str) -> String {
    cluster.world.proxy.mode = mode.of_oracle();
    let mut questions = cluster.questions();
    questions.retain(|question| question.protocol != Protocol::Sctp);
    // Spread over all of them, and not the same ones in each cluster.
    let step = (questions.len() / QUESTIONS).max(1);
    let offset = usize::try_from(seed).unwrap_or_default() % step;
    let questions: Vec<_> = questions.into_iter().skip(offset).step_by(step).take(wanted).collect();
    cluster.audited_yaml(name, &questions)
}

/// Spends up to `runs` runs on a smaller cluster that breaks the promise; adds the smallest that was found to what is gathered, and leaves
/// its file in `folder`.
pub(super) fn shrink(
    gatherer: &mut Gatherer,
    found: &OnlyGenerated,
    runs: u32,
    folder: &Path,
    run: &mut dyn FnMut(&Path, Mode) -> Result<Value, Exit>,
) -> Result<(), Exit> {
    let OnlyGenerated { promise, mode, scenario, by_audit } = found;
    let Ok(mode) = mode.parse::<Mode>() else { return Ok(()) };
    let seed = scenario.strip_prefix(&prefix(mode)).and_then(|seed| seed.parse().ok());
    let Some(seed) = seed else { return Ok(()) };
    eprintln!("{mode} mode: looks for a smaller cluster than {scenario} that breaks {promise}, in up to {runs} runs");
    let path = folder.join(format!("{scenario}{SMALLER}.yaml"));
    // Each question that goes wrong is waited for.
    let questions = if *by_audit { 0 } else { QUESTIONS };
    let mut smallest = None;
    generate::shrink(generate::recipe(seed), runs, &mut |recipe| {
        if stop::stop().is_some() {
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
    if let Some((text, judged)) = smallest {
        std::fs::write(&path, text)
            .map_err(|error| Exit::usage(format!("cannot write {}: {error}", path.display())))?;
        gatherer.take_breaches(judged);
    }
    Ok(())
}
