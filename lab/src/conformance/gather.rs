//! Builds a card from run reports.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    BREACHES, Breach, Card, CardFigures, Cell, ModeCard, MutantCount, NotRun, PromiseRow, PromiseVerdict,
    SCHEMA_VERSION,
};
use crate::promises::{Promise, STARTS};
use crate::report::{Audited, Figures, RunRecord, ScenarioRecord, StepRecord, VerdictWord, WAITS};

pub struct Gatherer {
    proxy: String,
    seed: u64,
    modes: BTreeMap<String, ModeTally>,
    cells: BTreeMap<(&'static str, String), Cell>,
    generated: BTreeMap<String, String>,
    excused: BTreeSet<(&'static str, String)>,
}

/// A promise that only generated scenarios broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnlyGenerated {
    pub promise: &'static str,
    pub mode: String,
    /// The shortest scenario with the breach.
    pub scenario: String,
    /// Whether an audit, and not a request, found the breach.
    pub by_audit: bool,
}

#[derive(Default)]
struct ModeTally {
    kernels: BTreeSet<String>,
    scenarios: usize,
    generated: usize,
    not_run: Vec<NotRun>,
    figures: Figures,
}

impl Gatherer {
    #[must_use]
    pub fn new(proxy: String, seed: u64, modes: impl IntoIterator<Item = String>) -> Gatherer {
        let modes = modes.into_iter().map(|mode| (mode, ModeTally::default())).collect();
        Gatherer { proxy, seed, modes, cells: BTreeMap::new(), generated: BTreeMap::new(), excused: BTreeSet::new() }
    }

    pub fn generated(&mut self, name: String, text: String) {
        self.generated.insert(name, text);
    }

    /// Records a scenario that was not run. `promise`: what the scenario is about.
    pub fn not_run(&mut self, scenario: &str, promise: Option<&'static Promise>, mode: &str, why: &str) {
        let one = NotRun { scenario: scenario.to_owned(), why: why.to_owned() };
        if let Some(promise) = promise {
            self.cell(promise.id, mode).not_judged.push(one.clone());
        }
        self.mode(mode).not_run.push(one);
    }

    pub fn excused(&mut self, scenario: &str, promise: Option<&'static Promise>, mode: &str, why: &str) {
        self.excused.extend(promise.map(|promise| (promise.id, mode.to_owned())));
        self.not_run(scenario, promise, mode, why);
    }

    fn cell(&mut self, promise: &'static str, mode: &str) -> &mut Cell {
        self.cells.entry((promise, mode.to_owned())).or_default()
    }

    fn mode(&mut self, mode: &str) -> &mut ModeTally {
        self.modes.entry(mode.to_owned()).or_default()
    }

    pub fn scenario(&mut self, report: &ScenarioRecord) {
        let promise = report.promise.as_deref().and_then(Promise::of_id);
        if report.unable || report.interrupted {
            let why = report.not_started.as_deref().unwrap_or("it was ended before its last step");
            return self.not_run(&report.name, promise, &report.mode, why);
        }
        let is_generated = self.generated.contains_key(&report.name);
        let tally = self.mode(&report.mode);
        *(if is_generated { &mut tally.generated } else { &mut tally.scenarios }) += 1;
        tally.kernels.extend(report.kernel.clone());
        self.started(report, promise);
        for step in &report.steps {
            if !self.step(report, step, promise) {
                break;
            }
        }
    }

    /// Records whether the proxies started. A failed start breaks the scenario's own promise, too.
    fn started(&mut self, report: &ScenarioRecord, promise: Option<&'static Promise>) {
        self.cell(STARTS, &report.mode).steps += 1;
        let Some(why) = &report.not_started else { return };
        let breach = self.breach(report, &StepRecord::default(), "the proxies come up", why);
        self.cell(STARTS, &report.mode).breaches.push(breach.clone());
        if let Some(promise) = promise.filter(|promise| promise.id != STARTS) {
            self.cell(promise.id, &report.mode).add(breach);
        }
    }

    pub fn measured(&mut self, report: &ScenarioRecord) {
        let tally = self.mode(&report.mode);
        tally.figures = std::mem::take(&mut tally.figures).and(report.figures.as_ref().unwrap_or(&Figures::default()));
    }

    /// Records a step. Returns false after a failure, as later steps may fail because of it.
    fn step(&mut self, report: &ScenarioRecord, step: &StepRecord, promise: Option<&'static Promise>) -> bool {
        if let Some(audited) = &step.audited {
            self.audit(report, step, audited);
            return true;
        }
        let promise = step.promise.as_deref().and_then(Promise::of_id).or(promise);
        let Some(promise) = promise else { return true };
        let scenario = || format!("{}, {:?}", report.name, step.name);
        match step.verdict {
            VerdictWord::Passed => self.cell(promise.id, &report.mode).steps += 1,
            VerdictWord::Failed => {
                let (expected, seen) = step.mismatches.first().map_or(("", ""), |first| (&first.expected, &first.seen));
                let breach = self.breach(report, step, expected, seen);
                self.cell(promise.id, &report.mode).add(breach);
                return step.action == WAITS;
            }
            // An error of the lab counts against no proxy.
            VerdictWord::Error => {
                let why = format!("the lab failed: {}", step.lab_error());
                self.cell(promise.id, &report.mode).not_judged.push(NotRun { scenario: scenario(), why });
                return false;
            }
            VerdictWord::NotJudged | VerdictWord::NotSimulated => {
                let why = step.why.clone().unwrap_or_default();
                self.cell(promise.id, &report.mode).not_judged.push(NotRun { scenario: scenario(), why });
            }
            VerdictWord::Skipped => {}
        }
        true
    }

    fn audit(&mut self, report: &ScenarioRecord, step: &StepRecord, audited: &Audited) {
        // An audit step passes if its findings are those that the scenario expects, or known ones.
        let is_expected = step.verdict == VerdictWord::Passed;
        for (rule, tally) in &audited.rules {
            let Some(promise) = Promise::of_id(rule) else { continue };
            let broken = tally.known + if is_expected { 0 } else { tally.broken };
            let cell = self.cell(promise.id, &report.mode);
            cell.calls += tally.held + broken;
            cell.broken_calls += broken;
        }
        for broken in &audited.broken {
            let Some(promise) = Promise::of_id(&broken.rule) else { continue };
            if is_expected && broken.known.is_none() {
                continue;
            }
            let expected = format!("{} on {}: {}", broken.call, broken.node, broken.promised);
            let breach = Breach {
                known: broken.known.clone().map(Into::into),
                way: broken.way.lines().map(str::to_owned).collect(),
                ..self.breach(report, step, &expected, &format!("{}; {}", broken.found, broken.cause))
            };
            self.cell(promise.id, &report.mode).breaches.push(breach);
        }
    }

    /// Returns the promises that only generated scenarios broke, without known breaches.
    #[must_use]
    pub fn broken_by_generated(&self) -> Vec<OnlyGenerated> {
        let of = |((promise, mode), cell): (&(&'static str, String), &Cell)| {
            let unknown = || cell.breaches.iter().filter(|breach| breach.known.is_none());
            let shortest = unknown().min_by_key(|breach| breach.length)?;
            let is_only = unknown().all(|breach| breach.text.is_some());
            is_only.then(|| OnlyGenerated {
                promise,
                mode: mode.clone(),
                scenario: shortest.scenario.clone(),
                by_audit: shortest.by_audit,
            })
        };
        self.cells.iter().filter_map(of).collect()
    }

    #[must_use]
    pub fn judge_apart(&self, name: &str, text: &str, report: &RunRecord) -> Gatherer {
        let mut apart = Gatherer::new(self.proxy.clone(), self.seed, []);
        apart.generated(name.to_owned(), text.to_owned());
        report.scenarios.iter().for_each(|report| apart.scenario(report));
        apart
    }

    #[must_use]
    pub fn breaks(&self, promise: &str, mode: &str) -> bool {
        let of = |((id, name), cell): (&(&str, String), &Cell)| {
            *id == promise && name == mode && cell.breaches.iter().any(|breach| breach.known.is_none())
        };
        self.cells.iter().any(of)
    }

    /// Replaces breaches by generated scenarios with those of `apart`, in cells where both have breaches. Keeps the
    /// counts.
    pub fn take_breaches(&mut self, apart: Gatherer) {
        for (key, cell) in apart.cells.into_iter().filter(|(_, cell)| !cell.breaches.is_empty()) {
            if let Some(mine) = self.cells.get_mut(&key).filter(|mine| !mine.breaches.is_empty()) {
                mine.breaches.retain(|breach| breach.text.is_none());
                mine.breaches.extend(cell.breaches);
            }
        }
    }

    fn breach(&self, report: &ScenarioRecord, step: &StepRecord, expected: &str, seen: &str) -> Breach {
        let generated = self.generated.get(&report.name);
        let repeat = match generated {
            Some(_) => {
                format!("svclab run {}.yaml --mode {}{} --audit", report.name, report.mode, report.proxy.flag())
            }
            None => report.repeat.clone(),
        };
        Breach {
            scenario: report.name.clone(),
            step: step.name.clone(),
            by_audit: step.audited.is_some(),
            expected: expected.to_owned(),
            seen: seen.to_owned(),
            known: None,
            way: step.explanation.clone().unwrap_or_default(),
            repeat,
            text: generated.cloned(),
            length: report.text.len(),
        }
    }

    #[must_use]
    pub fn card(mut self) -> Card {
        let names: Vec<String> = self.modes.keys().cloned().collect();
        let mut rows: Vec<PromiseRow> = Promise::all().map(PromiseRow::of).collect();
        for (row, promise) in rows.iter_mut().zip(Promise::all()) {
            for mode in &names {
                let key = (promise.id, mode.clone());
                let is_excused = self.excused.contains(&key);
                let cell = self.cells.remove(&key);
                let is_for = mode.parse().is_ok_and(|mode| promise.is_for(mode));
                if is_for || cell.is_some() {
                    row.cells.insert(mode.clone(), cell.unwrap_or_default().finished(is_excused));
                }
            }
        }
        Card {
            schema_version: SCHEMA_VERSION,
            proxy: self.proxy,
            lab: env!("SVCLAB_VERSION").to_owned(),
            seed: self.seed,
            modes: self.modes.into_iter().map(|(name, mode)| mode.card(name)).collect(),
            promises: rows,
            mutants: MutantCount::default(),
            times: Vec::new(),
            shard: None,
        }
    }
}

impl Cell {
    fn add(&mut self, breach: Breach) {
        self.steps += 1;
        self.breaches.push(breach);
    }

    /// Sets the verdict and keeps the breaches of the shortest scenarios, written ones first.
    pub(super) fn finished(mut self, is_excused: bool) -> Cell {
        self.verdict = match (&self.breaches[..], self.calls + self.steps) {
            ([], 0) if !is_excused => PromiseVerdict::NotJudged,
            ([], _) if is_excused => PromiseVerdict::Excused,
            ([], _) => PromiseVerdict::Kept,
            (breaches, _) if breaches.iter().all(|breach| breach.known.is_some()) => PromiseVerdict::Known,
            _ => PromiseVerdict::Broken,
        };
        self.breaches.sort_by(|one, other| {
            let order = |breach: &Breach| (breach.known.is_some(), breach.text.is_some(), breach.length);
            order(one).cmp(&order(other)).then_with(|| one.scenario.cmp(&other.scenario))
        });
        self.breaches.dedup_by(|one, other| one.scenario == other.scenario);
        self.breaches.truncate(BREACHES);
        // Every shard lists what is excused.
        self.not_judged.sort();
        self.not_judged.dedup();
        self
    }
}

impl ModeTally {
    fn card(mut self, mode: String) -> ModeCard {
        self.not_run.sort();
        self.not_run.dedup();
        let is_measured = self.figures.peak_memory > 0;
        ModeCard {
            mode,
            kernels: self.kernels.into_iter().collect(),
            scenarios: self.scenarios,
            generated: self.generated,
            not_run: self.not_run,
            figures: is_measured.then(|| CardFigures::of(&self.figures)),
        }
    }
}
