//! Which judges see that a promise is broken: audits, by the oracle's rules, and scenarios, on the kernel and in the
//! simulator, by the promises that they and their steps name. `docs/conformance.md` has the table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use svclab_oracle::{PromisePart, Rule};

use super::mutants;
use crate::promises::STARTS;
use crate::scenario::{self, Scenario};
use crate::shipped;

/// The judges of one promise.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Judges {
    /// Whether audits count calls that keep or break the promise.
    pub audit: bool,
    /// The scenarios with a step about the promise, which the kernel judges.
    pub scenarios: BTreeSet<String>,
    /// Those of the scenarios without a step that needs the kernel, up to the last one about the promise.
    pub simulator: BTreeSet<String>,
    /// Whether every run judges the promise: it is about the start of the proxies.
    pub every_run: bool,
    /// The wrong proxies that break the promise: docs/mutants.md.
    pub mutants: Vec<String>,
}

/// How many wrong proxies the scenarios notice, by docs/mutants.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MutantCount {
    pub noticed: usize,
    /// All wrong proxies without those that nothing can notice.
    pub all: usize,
}

impl Judges {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.audit && !self.every_run && self.scenarios.is_empty()
    }

    /// Returns the scenarios whose steps about the promise only the kernel can judge.
    pub fn only_on_the_kernel(&self) -> impl Iterator<Item = &str> {
        self.scenarios.difference(&self.simulator).map(String::as_str)
    }

    /// Returns the judges, separated by commas; `(kernel)` follows a scenario that the simulator does not judge.
    #[must_use]
    pub fn line(&self) -> String {
        let always = [(self.audit, "audit"), (self.every_run, "the start of each run")];
        let always = always.into_iter().filter(|(judges, _)| *judges).map(|(_, name)| name.to_owned());
        let scenarios = self
            .scenarios
            .iter()
            .map(|name| if self.simulator.contains(name) { name.clone() } else { format!("{name} (kernel)") });
        always.chain(scenarios).collect::<Vec<_>>().join(", ")
    }
}

impl MutantCount {
    #[must_use]
    pub fn of_table() -> MutantCount {
        let rows = mutants::rows(mutants::DOCUMENT);
        let count = |is_one: fn(&mutants::MutantRow) -> bool| rows.iter().filter(|row| is_one(row)).count();
        MutantCount { noticed: count(mutants::MutantRow::is_noticed), all: count(|row| !row.is_equivalent()) }
    }

    #[must_use]
    pub fn line(self) -> String {
        format!("the scenarios notice {} of {} wrong proxies (docs/mutants.md)", self.noticed, self.all)
    }
}

/// Returns the judges by the promise's id, of the scenarios in the program.
pub fn judges() -> &'static BTreeMap<String, Judges> {
    static JUDGES: LazyLock<BTreeMap<String, Judges>> = LazyLock::new(|| {
        let mut judges: BTreeMap<String, Judges> = BTreeMap::new();
        // Audits ask no health check.
        for rule in Rule::ALL.into_iter().filter(|rule| rule.part() != PromisePart::Health) {
            judges.entry(rule.id().to_owned()).or_default().audit = true;
        }
        judges.entry(STARTS.to_owned()).or_default().every_run = true;
        for path in shipped::scenarios() {
            // A test loads each of them.
            if let Ok(scenario) = scenario::load(path, 0) {
                add(&mut judges, &scenario_name(path), &scenario);
            }
        }
        for (promise, mutants) in mutants::by_promise() {
            judges.entry(promise).or_default().mutants = mutants;
        }
        judges
    });
    &JUDGES
}

/// Returns the name that `svclab run` takes.
fn scenario_name(path: &Path) -> String {
    path.strip_prefix(shipped::SCENARIOS).unwrap_or(path).with_extension("").display().to_string()
}

fn add(judges: &mut BTreeMap<String, Judges>, name: &str, scenario: &Scenario) {
    let mut is_simulated = true;
    for step in &scenario.steps {
        is_simulated &= step.kernel_only().is_none();
        let promise = step.promise.or(scenario.promise).filter(|_| step.judges());
        let Some(promise) = promise else { continue };
        let judges = judges.entry(promise.id.to_owned()).or_default();
        judges.scenarios.insert(name.to_owned());
        if is_simulated {
            judges.simulator.insert(name.to_owned());
        } else {
            judges.simulator.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fmt::Write as _;

    use super::*;
    use crate::promises::Promise;

    const BEGIN: &str = "<!-- generated: judges -->\n";
    const END: &str = "<!-- end -->\n";

    fn with_table(text: &str) -> String {
        let names = |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let mut table = "| | promise | audit | scenarios, also in the simulator | scenarios, on the kernel only |\n\
                         | ---: | --- | --- | --- | --- |\n"
            .to_owned();
        for promise in Promise::all() {
            let judges = judges().get(promise.id).cloned().unwrap_or_default();
            let audit = match (judges.audit, judges.every_run) {
                (true, _) => "yes",
                (false, true) => "the start of each run",
                (false, false) => "",
            };
            let simulator = names(judges.simulator.iter().map(String::as_str).collect());
            let kernel = names(judges.only_on_the_kernel().collect());
            let _ = writeln!(table, "| {} | `{}` | {audit} | {simulator} | {kernel} |", promise.number, promise.id);
        }
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        format!("{before}{BEGIN}\n{table}\n{END}{after}")
    }

    #[test]
    fn the_table_of_judges_is_that_of_the_scenarios() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = with_table(&text);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).unwrap() == expected,
            "docs/conformance.md is out of date: UPDATE_DOCS=1 cargo nextest run -p svclab table_of_judges"
        );
    }

    #[test]
    fn every_promise_has_a_judge() {
        let judged = |promise: &&Promise| judges().get(promise.id).is_some_and(|judges| !judges.is_empty());
        let without: Vec<&str> = Promise::all().filter(|promise| !judged(promise)).map(|promise| promise.id).collect();
        assert_eq!(without, [""; 0]);
    }

    #[test]
    fn every_promise_is_broken_by_a_wrong_proxy() {
        let is_broken = |promise: &&Promise| judges().get(promise.id).is_some_and(|judges| !judges.mutants.is_empty());
        let without: Vec<&str> =
            Promise::all().filter(|promise| !is_broken(promise)).map(|promise| promise.id).collect();
        assert_eq!(without, [""; 0], "docs/mutants.md has no wrong proxy that breaks them");
    }

    #[test]
    fn a_step_may_name_another_promise_than_its_scenario() {
        let text = "\
name: one
about: Two promises.
promise: even
cluster: {nodes: 1}
manifests: |
  apiVersion: v1
  kind: Pod
  metadata: {name: web}
  spec: {nodeName: node-a, containers: [{name: web, ports: [{containerPort: 80}]}]}
steps:
- {name: a, probe: {from: node/node-a, to: 'pod/web:80'}, expect: {answered: web}}
- {name: b, promise: idle, terminate: web}
- {name: c, promise: kept, probe: {from: node/node-a, to: 'pod/web:80'}, expect: {answered: web}}
- {name: d, promise: proxy-health, healthCheck: {node: node-a, path: /healthz}, expect: {status: 200}}
- {name: e, promise: kept, probe: {from: node/node-a, to: 'pod/web:80'}, expect: {answered: web}}
";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.yaml");
        std::fs::write(&path, text).unwrap();
        let mut judges = BTreeMap::new();
        add(&mut judges, "one", &scenario::load(&path, 0).unwrap());
        let lines: Vec<String> = judges.iter().map(|(id, judges)| format!("{id}: {}", judges.line())).collect();
        assert_eq!(lines, ["even: one", "kept: one (kernel)", "proxy-health: one (kernel)"]);
    }
}
