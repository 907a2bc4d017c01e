//! Batches: scenarios that one process of svclab runs, in one mode and on one kernel. One report combines batches.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use super::args::RunArgs;
use super::child::{self, ChildOutput};
use super::output::write_run;
use super::signals;
use super::target::RunTarget;
use crate::console::progress;
use crate::exit::{Exit, UNABLE};
use crate::mode::Mode;
use crate::report::{NotRunRecord, RunRecord, ScenarioRecord};
use crate::scenario::Scenario;

/// A batch, with the seeds of the whole run.
pub(super) struct RunBatch<'a> {
    pub(super) target: RunTarget,
    pub(super) mode: Mode,
    pub(super) scenarios: Vec<&'a Scenario>,
}

impl<'a> RunBatch<'a> {
    pub(super) fn add(batches: &mut Vec<RunBatch<'a>>, target: RunTarget, mode: Mode, scenario: &'a Scenario) {
        let key = |target: &RunTarget| (target.kernel(), target.is_deterministic());
        let fits = |batch: &&mut RunBatch<'_>| batch.mode == mode && key(&batch.target) == key(&target);
        match batches.iter_mut().find(fits) {
            Some(batch) => batch.scenarios.push(scenario),
            None => batches.push(RunBatch { target, mode, scenarios: vec![scenario] }),
        }
    }

    fn order(&self, args: &RunArgs) -> RunArgs {
        let mut order = args.clone();
        order.files = self.scenarios.iter().map(|scenario| scenario.path.clone()).collect();
        order.mode = vec![self.mode];
        order.breaks.retain(|damage| self.scenarios.iter().any(|scenario| damage.is_done_in(scenario)));
        (order.vm.kernel, order.vm.deterministic) = (self.target.kernel(), self.target.is_deterministic());
        // Not beside the batch's report, which is temporary.
        order.bundle = args.bundles();
        order.no_bundle = order.bundle.is_none();
        (order.json, order.junit, order.html, order.markdown) = (None, None, None, None);
        order.is_batch = true;
        order
    }
}

impl RunBatch<'_> {
    /// Returns an order for each scenario.
    fn parts<'a>(&'a self, args: &'a RunArgs) -> impl Iterator<Item = RunArgs> + 'a {
        self.scenarios.iter().map(|scenario| {
            let part = RunBatch { target: self.target.clone(), mode: self.mode, scenarios: vec![*scenario] };
            RunArgs { is_part: true, ..part.order(args) }
        })
    }
}

#[derive(Default)]
pub(super) struct BatchResult {
    /// The exit status; 0 if the batch had nothing to judge.
    pub(super) status: u8,
    pub(super) scenarios: Vec<ScenarioRecord>,
    /// Scenarios that the batch did not try.
    pub(super) not_tried: Vec<NotRunRecord>,
}

impl BatchResult {
    /// `run`: `None` without a report.
    fn new(status: u8, run: Option<RunRecord>) -> BatchResult {
        let (scenarios, not_run) = run.map_or((None, None), |run| (Some(run.scenarios), run.not_run));
        let had_nothing = |all: &Vec<ScenarioRecord>| all.iter().all(|one| !one.unable && !one.judged);
        let status = if status == UNABLE && scenarios.as_ref().is_some_and(had_nothing) { 0 } else { status };
        BatchResult { status, scenarios: scenarios.unwrap_or_default(), not_tried: not_run.unwrap_or_default() }
    }

    pub(super) fn is_judged(&self) -> bool {
        self.scenarios.iter().any(|scenario| scenario.judged)
    }
}

pub(super) struct CombinedReport {
    folder: tempfile::TempDir,
    scenarios: Vec<ScenarioRecord>,
    pub(super) worst: u8,
    /// Scenarios that batches did not try.
    not_tried: Vec<NotRunRecord>,
    /// Scenarios that could not run; `None` keeps the list out of the report.
    pub(super) not_run: Option<Vec<NotRunRecord>>,
}

impl CombinedReport {
    pub(super) fn new() -> Result<CombinedReport, Exit> {
        let folder = tempfile::tempdir().map_err(|error| Exit::unable(format!("cannot make a folder: {error}")))?;
        Ok(CombinedReport { folder, scenarios: Vec::new(), not_tried: Vec::new(), worst: 0, not_run: None })
    }

    pub(super) fn run(&mut self, args: &RunArgs, batch: &RunBatch<'_>) -> Result<BatchResult, Exit> {
        let is_parallel = args.at_once() > 1 && batch.target == RunTarget::Host;
        let result = if is_parallel { self.run_at_once(args, batch)? } else { self.run_in_turn(args, batch)? };
        self.not_tried.extend(result.not_tried.iter().cloned());
        self.scenarios.extend(result.scenarios.iter().cloned());
        self.worst = self.worst.max(result.status);
        Ok(result)
    }

    fn run_in_turn(&self, args: &RunArgs, batch: &RunBatch<'_>) -> Result<BatchResult, Exit> {
        let report = self.folder.path().join("report.json");
        let output = ChildOutput::To(args.stream());
        let (status, run) = child::run_with_report(batch.order(args), &report, output, None)?;
        Ok(BatchResult::new(status, run))
    }

    /// Runs each scenario in a process of its own, several at once, and prints what they write in the batch's order.
    fn run_at_once(&self, args: &RunArgs, batch: &RunBatch<'_>) -> Result<BatchResult, Exit> {
        let parts: Vec<RunArgs> = batch.parts(args).collect();
        let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let take = || {
            let goes_on = signals::stop().is_none() && (args.keep_going || !has_failed.load(Ordering::Relaxed));
            goes_on.then(|| next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < parts.len())
        };
        let (sender, ended) = mpsc::channel();
        let work = |sender: mpsc::Sender<_>| {
            while let Some(number) = take() {
                let result = self.run_part(&parts[number], number);
                let is_good = matches!(result, Ok((BatchResult { status: 0, .. }, _)));
                has_failed.fetch_or(!is_good, Ordering::Relaxed);
                let _ = sender.send((number, result));
            }
        };
        progress::enable();
        progress::set(format!("0 of {} scenarios done", parts.len()));
        std::thread::scope(|scope| {
            (0..args.at_once().min(parts.len())).for_each(|_| {
                let sender = sender.clone();
                scope.spawn(|| work(sender));
            });
            drop(sender);
            let (mut all, mut early) = (BatchResult::default(), BTreeMap::new());
            let mut due = 0;
            for (done, (number, result)) in ended.into_iter().enumerate() {
                progress::set(format!("{} of {} scenarios done", done + 1, parts.len()));
                early.insert(number, result);
                while let Some(result) = early.remove(&due) {
                    let (result, text) = result?;
                    let _ = args.stream().write_all(text.as_bytes());
                    all.status = all.status.max(result.status);
                    all.scenarios.extend(result.scenarios);
                    all.not_tried.extend(result.not_tried);
                    due += 1;
                }
            }
            progress::clear();
            Ok(all)
        })
    }

    fn run_part(&self, part: &RunArgs, number: usize) -> Result<(BatchResult, String), Exit> {
        let report = self.folder.path().join(format!("{number}.json"));
        // Removes the report of an earlier batch.
        let _ = std::fs::remove_file(&report);
        let (status, text) = child::run_captured(&RunArgs { json: Some(report.clone()), ..part.clone() })?;
        Ok((BatchResult::new(status, RunRecord::read(&report).ok()), text))
    }

    pub(super) fn finish(self, args: &RunArgs) -> Result<u8, Exit> {
        let stopped = signals::stop();
        // Other shards judge more.
        let is_judged = args.share.is_some() || self.scenarios.iter().any(|scenario| scenario.judged);
        let status = if self.worst == 0 && !is_judged { UNABLE } else { self.worst };
        if status != self.worst && stopped.is_none() {
            args.stream().line("nothing was judged: no scenario could be run");
        }
        let mut not_run = self.not_run;
        if !self.not_tried.is_empty() {
            not_run.get_or_insert_default().extend(self.not_tried);
        }
        let run = RunRecord { not_run, ..RunRecord::new(status == 0, self.scenarios) };
        write_run(args, run, status, stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_with_nothing_to_judge_does_not_fail_the_run() {
        let scenario = |judged: bool, unable: bool| ScenarioRecord { judged, unable, ..ScenarioRecord::default() };
        let of = |status, scenarios: Option<Vec<ScenarioRecord>>| {
            let result = BatchResult::new(status, scenarios.map(|all| RunRecord::new(false, all)));
            (result.status, result.is_judged())
        };
        assert_eq!(of(UNABLE, Some(vec![])), (0, false), "the proxy is excused");
        assert_eq!(of(UNABLE, Some(vec![scenario(false, false)])), (0, false), "its steps are for other modes");
        assert_eq!(of(UNABLE, Some(vec![scenario(false, true)])), (UNABLE, false), "the lab could not be built");
        assert_eq!(of(UNABLE, None), (UNABLE, false), "svclab itself could not run");
        assert_eq!(of(0, Some(vec![scenario(true, false), scenario(false, false)])), (0, true));
    }
}
