//! Evidence of a failed step: an explanation of its request, and a bundle.
//!
//! Errors go to the report and do not fail the run. The state is collected before the request is repeated for the
//! capture.

mod call;
mod capture;
mod node;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use svclab_netns::sandbox::WORK_DIR;

use super::RunOptions;
use super::lab::{HANGS_AFTER, KernelLab};
use crate::bundle::{self, BundleStep, FailedCall, FailedPromise, FailedStep};
use crate::expect::Mismatch;
use crate::explanation::{self, WantedEnd};
use crate::report::{Evidence, StepVerdict};
use crate::scenario::{Scenario, Step, execute};

/// The most failed steps with evidence: later failures usually follow from earlier ones.
const MOST: usize = 3;
/// The limit of `svclab collect`. A program that hangs leaves the others half of it.
const COLLECT: Duration = HANGS_AFTER.saturating_mul(2);
/// The limit of each part of the evidence.
const LIMIT: Duration = HANGS_AFTER.saturating_mul(3);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvidenceLevel {
    Nothing,
    Explanation,
    /// Also writes a bundle into a subdirectory.
    Bundle(PathBuf),
}

/// The common content of a scenario's bundles.
pub(super) struct EvidenceKeeper {
    head: BundleStep,
    text: String,
    files: BTreeMap<PathBuf, String>,
    directory: Option<PathBuf>,
    left: usize,
}

impl EvidenceKeeper {
    pub(super) fn new(scenario: &Scenario, options: &RunOptions) -> Option<EvidenceKeeper> {
        let directory = match &options.evidence {
            EvidenceLevel::Nothing => return None,
            EvidenceLevel::Explanation => None,
            EvidenceLevel::Bundle(directory) => Some(directory.clone()),
        };
        let mut report = execute::empty_report(scenario, options.mode, options.variant.name());
        report.machine = options.machine.clone();
        report.proxy = options.tested_proxy();
        report.audited = options.audit;
        let head = BundleStep {
            repeat: report.repeat(),
            name: report.name,
            path: report.path,
            mode: report.mode,
            iptables_variant: report.variant,
            seed: report.seed,
            machine: report.machine,
            proxy: report.proxy,
            audited: report.audited,
            step: FailedStep::default(),
            call: None,
        };
        Some(EvidenceKeeper { head, text: scenario.text.clone(), files: files(scenario), directory, left: MOST })
    }

    fn begin(&self, failure: &BundleStep) -> Option<std::io::Result<PathBuf>> {
        let folder = self.directory.as_ref()?.join(failure.directory());
        let make = || {
            if folder.join(bundle::STEP).exists() {
                std::fs::remove_dir_all(&folder)?;
            }
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join(bundle::SCENARIO), &self.text)?;
            for (name, text) in &self.files {
                let to = folder.join(name);
                std::fs::create_dir_all(to.parent().unwrap_or(&folder))?;
                std::fs::write(to, text)?;
            }
            std::fs::write(folder.join(bundle::STEP), format!("{}\n", serde_json::to_string_pretty(failure)?))
        };
        Some(make().map(|()| folder.clone()))
    }
}

fn files(scenario: &Scenario) -> BTreeMap<PathBuf, String> {
    let beside = scenario.path.parent().unwrap_or(Path::new(""));
    let named = scenario.files.iter();
    named
        .filter_map(|(file, text)| Some((Path::new(file).strip_prefix(beside).ok()?.to_owned(), text.clone())))
        .collect()
}

impl KernelLab {
    pub(super) async fn keep_evidence(
        &mut self,
        step: &Step,
        number: usize,
        verdict: &StepVerdict,
    ) -> Option<Evidence> {
        let mut keeper = self.keeper.take()?;
        let evidence = match keeper.left.checked_sub(1) {
            Some(left) => {
                keeper.left = left;
                Some(self.collect_evidence(&keeper, step, number, verdict).await)
            }
            None => None,
        };
        self.keeper = Some(keeper);
        evidence
    }

    /// Keeps the nodes and logs of a failed start.
    pub(super) async fn keep_start(&mut self, mismatch: &Mismatch) -> Option<Evidence> {
        let keeper = self.keeper.take()?;
        let step =
            FailedStep { name: "start".to_owned(), mismatches: vec![promise(mismatch)], ..FailedStep::default() };
        let failure = BundleStep { step, ..keeper.head.clone() };
        let mut kept = Evidence::default();
        match keeper.begin(&failure)? {
            Ok(folder) => {
                let nodes = self.nodes();
                let looked = join_all(nodes.iter().map(|node| self.keep_node(node, Some(&folder)))).await;
                kept.not_kept.extend(looked.into_iter().flatten());
                kept.bundle = Some(folder);
            }
            Err(error) => kept.not_kept.push(format!("the bundle of the start: {error}")),
        }
        Some(kept)
    }

    async fn collect_evidence(
        &self,
        keeper: &EvidenceKeeper,
        step: &Step,
        number: usize,
        verdict: &StepVerdict,
    ) -> Evidence {
        let mut kept = Evidence::default();
        let failed = self.failed_call(step);
        let call = failed.as_ref().map(|(call, ..)| call.clone());
        let failure = BundleStep { step: failed_step(step, number, verdict), call, ..keeper.head.clone() };
        let folder = match keeper.begin(&failure) {
            Some(Ok(folder)) => Some(folder),
            Some(Err(error)) => {
                kept.not_kept.push(format!("the bundle of step {number}: {error}"));
                None
            }
            None => None,
        };
        let nodes = match &folder {
            Some(_) => self.nodes(),
            None => failure.call.iter().map(|call| call.node.clone()).collect(),
        };
        let looked = join_all(nodes.iter().map(|node| self.keep_node(node, folder.as_deref()))).await;
        kept.not_kept.extend(looked.into_iter().flatten());
        if let Some((call, wanted, plan)) = failed {
            self.explain_failed(call, wanted, folder.as_deref(), &mut kept).await;
            if let Some(folder) = &folder {
                let captured = tokio::time::timeout(LIMIT, self.capture(&plan, folder)).await;
                let late = |_| vec![format!("the captures: not within {} s", LIMIT.as_secs())];
                kept.not_kept.extend(captured.unwrap_or_else(late));
            }
        }
        kept.bundle = folder;
        kept
    }

    async fn explain_failed(&self, call: FailedCall, wanted: WantedEnd, folder: Option<&Path>, kept: &mut Evidence) {
        let archive = archive_inside(&call.node);
        let work = tokio::task::spawn_blocking(move || explanation::of_archive(&archive, &call, &wanted));
        let why = match tokio::time::timeout(LIMIT, work).await {
            Ok(Ok(Ok(found))) => {
                kept.explanation = found.lines;
                let written = folder.map(|folder| std::fs::write(folder.join(bundle::EXPLANATION), found.text));
                written.and_then(Result::err).map(|error| error.to_string())
            }
            Ok(Ok(Err(error))) => Some(error.to_string()),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("not within {} s", LIMIT.as_secs())),
        };
        kept.not_kept.extend(why.map(|why| format!("the explanation: {why}")));
    }
}

fn archive_inside(node: &str) -> PathBuf {
    Path::new(WORK_DIR).join("evidence").join(bundle::archive(node))
}

fn promise(mismatch: &Mismatch) -> FailedPromise {
    FailedPromise { expected: mismatch.expected.clone(), seen: mismatch.seen.clone() }
}

fn failed_step(step: &Step, number: usize, verdict: &StepVerdict) -> FailedStep {
    let mismatches = match verdict {
        StepVerdict::Failed(mismatches) => mismatches.iter().map(promise).collect(),
        StepVerdict::Error(why) => {
            vec![FailedPromise { expected: "the lab can do this step".to_owned(), seen: why.clone() }]
        }
        _ => Vec::new(),
    };
    let (name, action) = (step.name.clone(), step.key.key.to_owned());
    FailedStep { number, name, line: step.line, action, mismatches }
}
