//! From reports of runs to a card.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{BREACHES, Breach, Card, CardFigures, Cell, ModeCard, NotRun, PromiseVerdict, Row, SCHEMA_VERSION};
use crate::promises::Promise;
use crate::report::Figures;

/// The promise that each run is about before its first step: 906.
const STARTS: &str = "starts";

/// Gathers a card.
pub struct Gatherer {
    proxy: String,
    seed: u64,
    modes: BTreeMap<String, Mode>,
    cells: BTreeMap<(&'static str, String), Cell>,
    /// The text of generated scenarios, by name.
    generated: BTreeMap<String, String>,
    excused: BTreeSet<(&'static str, String)>,
}

/// A promise that generated scenarios alone broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnlyGenerated {
    /// Its short name.
    pub promise: &'static str,
    /// In which mode.
    pub mode: String,
    /// The shortest scenario.
    pub scenario: String,
    /// Whether an audit says so, and not a request.
    pub by_audit: bool,
}

#[derive(Default)]
struct Mode {
    kernels: BTreeSet<String>,
    scenarios: usize,
    generated: usize,
    not_run: Vec<NotRun>,
    figures: Figures,
}

impl Gatherer {
    /// A card of `proxy` in these modes, with nothing judged.
    #[must_use]
    pub fn new(proxy: String, seed: u64, modes: impl IntoIterator<Item = String>) -> Gatherer {
        let modes = modes.into_iter().map(|mode| (mode, Mode::default())).collect();
        Gatherer { proxy, seed, modes, cells: BTreeMap::new(), generated: BTreeMap::new(), excused: BTreeSet::new() }
    }

    /// Says that a scenario of this name is generated.
    pub fn generated(&mut self, name: String, text: String) {
        self.generated.insert(name, text);
    }

    /// A scenario about `promise` that was not run.
    pub fn not_run(&mut self, scenario: &str, promise: Option<&'static Promise>, mode: &str, why: &str) {
        let one = NotRun { scenario: scenario.to_owned(), why: why.to_owned() };
        if let Some(promise) = promise {
            self.cell(promise.id, mode).not_judged.push(one.clone());
        }
        self.mode(mode).not_run.push(one);
    }

    /// A scenario about `promise` that was not run, for the proxy's description says that it fails.
    pub fn excused(&mut self, scenario: &str, promise: Option<&'static Promise>, mode: &str, why: &str) {
        self.excused.extend(promise.map(|promise| (promise.id, mode.to_owned())));
        self.not_run(scenario, promise, mode, why);
    }

    fn cell(&mut self, promise: &'static str, mode: &str) -> &mut Cell {
        self.cells.entry((promise, mode.to_owned())).or_default()
    }

    fn mode(&mut self, mode: &str) -> &mut Mode {
        self.modes.entry(mode.to_owned()).or_default()
    }

    /// A scenario's report, as `svclab run --json` writes it.
    pub fn scenario(&mut self, report: &Value) {
        let text = |key: &str| report[key].as_str().unwrap_or_default();
        let (name, mode) = (text("name"), text("mode"));
        let promise = report["promise"].as_str().and_then(Promise::of_id);
        if report["unable"] == true || report["interrupted"] == true {
            let why = report["notStarted"].as_str().unwrap_or("it was ended before its last step");
            return self.not_run(name, promise, mode, why);
        }
        let is_generated = self.generated.contains_key(name);
        let of_mode = self.mode(mode);
        *(if is_generated { &mut of_mode.generated } else { &mut of_mode.scenarios }) += 1;
        of_mode.kernels.extend(report["kernel"].as_str().map(str::to_owned));
        self.started(report, promise, mode);
        for step in report["steps"].as_array().into_iter().flatten() {
            if !self.step(report, step, promise, mode) {
                break;
            }
        }
    }

    /// Whether the proxies came up: each run says so. One that did not breaks what the scenario is about as well.
    fn started(&mut self, report: &Value, promise: Option<&'static Promise>, mode: &str) {
        self.cell(STARTS, mode).steps += 1;
        let Some(why) = report["notStarted"].as_str() else { return };
        let breach = self.breach(report, &Value::Null, "the proxies come up", why);
        self.cell(STARTS, mode).breaches.push(breach.clone());
        if let Some(promise) = promise.filter(|promise| promise.id != STARTS) {
            let cell = self.cell(promise.id, mode);
            cell.steps += 1;
            cell.breaches.push(breach);
        }
    }

    /// The figures of a scenario's report, and nothing else of it.
    pub fn measured(&mut self, report: &Value) {
        let of_mode = self.mode(report["mode"].as_str().unwrap_or_default());
        of_mode.figures = std::mem::take(&mut of_mode.figures).and(&Figures::read(&report["figures"]));
    }

    /// A step; whether the next one says anything. What follows a failed step may fail because of it.
    fn step(&mut self, report: &Value, step: &Value, promise: Option<&'static Promise>, mode: &str) -> bool {
        if step["audited"].is_object() {
            self.audit(report, step, mode);
            return true;
        }
        let promise = step["promise"].as_str().and_then(Promise::of_id).or(promise);
        let Some(promise) = promise else { return true };
        match step["verdict"].as_str() {
            Some("passed") => self.cell(promise.id, mode).steps += 1,
            Some("failed") => {
                let first = &step["mismatches"][0];
                let words = |key: &str| first[key].as_str().unwrap_or_default();
                let breach = self.breach(report, step, words("expected"), words("seen"));
                let cell = self.cell(promise.id, mode);
                cell.steps += 1;
                cell.breaches.push(breach);
                return false;
            }
            Some(verdict @ ("not judged" | "not simulated" | "error")) => {
                let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
                let scenario = format!("{}, {:?}", name(report), name(step));
                // What the lab itself cannot do is held against no proxy; what follows may fail because of it.
                let is_error = verdict == "error";
                let why = if is_error { &step["mismatches"][0]["seen"] } else { &step["why"] };
                let why = why.as_str().unwrap_or_default();
                let why = if is_error { format!("the lab failed: {why}") } else { why.to_owned() };
                self.cell(promise.id, mode).not_judged.push(NotRun { scenario, why });
                return !is_error;
            }
            _ => {}
        }
        true
    }

    /// What an audit says of each rule.
    fn audit(&mut self, report: &Value, step: &Value, mode: &str) {
        // A scenario that takes rules away expects its audit to find that, and the step has passed. What is known passes as well.
        let is_expected = step["verdict"] == "passed";
        for (rule, tally) in step["audited"]["rules"].as_object().into_iter().flatten() {
            let Some(promise) = Promise::of_id(rule) else { continue };
            let count = |key: &str| tally[key].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            let broken = count("known") + if is_expected { 0 } else { count("broken") };
            let cell = self.cell(promise.id, mode);
            cell.calls += count("held") + broken;
            cell.broken_calls += broken;
        }
        for broken in step["audited"]["broken"].as_array().into_iter().flatten() {
            let text = |key: &str| broken[key].as_str().unwrap_or_default();
            let Some(promise) = Promise::of_id(text("rule")) else { continue };
            if is_expected && broken["known"].is_null() {
                continue;
            }
            let expected = format!("{} on {}: {}", text("call"), text("node"), text("promised"));
            let breach = Breach {
                known: broken["known"].as_str().map(str::to_owned),
                way: text("way").lines().map(str::to_owned).collect(),
                ..self.breach(report, step, &expected, &format!("{}; {}", text("found"), text("cause")))
            };
            self.cell(promise.id, mode).breaches.push(breach);
        }
    }

    /// The promises that were broken by generated scenarios alone, and not only as they are known to be.
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

    /// What a report says of one generated scenario, of this name and text, without adding it.
    #[must_use]
    pub fn judge_apart(&self, name: &str, text: &str, report: &Value) -> Gatherer {
        let mut apart = Gatherer::new(self.proxy.clone(), self.seed, []);
        apart.generated(name.to_owned(), text.to_owned());
        report["scenarios"].as_array().into_iter().flatten().for_each(|report| apart.scenario(report));
        apart
    }

    /// Whether the promise was broken in this mode, otherwise than it is known to be.
    #[must_use]
    pub fn breaks(&self, promise: &str, mode: &str) -> bool {
        let of = |((id, name), cell): (&(&str, String), &Cell)| {
            *id == promise && name == mode && cell.breaches.iter().any(|breach| breach.known.is_none())
        };
        self.cells.iter().any(of)
    }

    /// Puts what was broken there in the place of what generated scenarios broke here; figures and counts stay.
    pub fn take_breaches(&mut self, apart: Gatherer) {
        for (key, cell) in apart.cells.into_iter().filter(|(_, cell)| !cell.breaches.is_empty()) {
            if let Some(mine) = self.cells.get_mut(&key).filter(|mine| !mine.breaches.is_empty()) {
                mine.breaches.retain(|breach| breach.text.is_none());
                mine.breaches.extend(cell.breaches);
            }
        }
    }

    fn breach(&self, report: &Value, step: &Value, expected: &str, seen: &str) -> Breach {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let scenario = text(&report["name"]);
        let generated = self.generated.get(&scenario);
        let repeat = match generated {
            Some(_) => format!("svclab run {scenario}.yaml --mode {} --audit", text(&report["mode"])),
            None => text(&report["repeat"]),
        };
        let lines = step["explanation"].as_array().into_iter().flatten();
        Breach {
            step: text(&step["name"]),
            by_audit: step["audited"].is_object(),
            expected: expected.to_owned(),
            seen: seen.to_owned(),
            known: None,
            way: lines.filter_map(Value::as_str).map(str::to_owned).collect(),
            repeat,
            text: generated.cloned(),
            length: text(&report["text"]).len(),
            scenario,
        }
    }

    /// The card.
    #[must_use]
    pub fn card(mut self) -> Card {
        let names: Vec<String> = self.modes.keys().cloned().collect();
        let mut rows: Vec<Row> = Promise::all().map(Row::of).collect();
        for (row, promise) in rows.iter_mut().zip(Promise::all()) {
            for mode in &names {
                let key = (promise.id, mode.clone());
                let is_excused = self.excused.contains(&key);
                let cell = self.cells.remove(&key);
                let is_for = mode.parse().is_ok_and(|mode| promise.is_for(mode));
                if is_for || cell.is_some() {
                    row.cells.insert(mode.clone(), finished(cell.unwrap_or_default(), is_excused));
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
        }
    }
}

/// With its verdict.
fn finished(mut cell: Cell, is_excused: bool) -> Cell {
    cell.verdict = match (&cell.breaches[..], cell.calls + cell.steps) {
        ([], 0) if !is_excused => PromiseVerdict::NotJudged,
        ([], _) if is_excused => PromiseVerdict::Excused,
        ([], _) => PromiseVerdict::Kept,
        (breaches, _) if breaches.iter().all(|breach| breach.known.is_some()) => PromiseVerdict::Known,
        _ => PromiseVerdict::Broken,
    };
    cell.breaches.sort_by(|one, other| {
        let order = |breach: &Breach| (breach.known.is_some(), breach.text.is_some(), breach.length);
        order(one).cmp(&order(other)).then_with(|| one.scenario.cmp(&other.scenario))
    });
    cell.breaches.dedup_by(|one, other| one.scenario == other.scenario);
    cell.breaches.truncate(BREACHES);
    cell
}

impl Mode {
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
