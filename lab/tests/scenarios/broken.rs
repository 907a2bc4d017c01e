//! broken.yaml lists damage to the rules, and the step at which a run must fail.

use std::collections::{BTreeMap, BTreeSet};

use crate::Only;
use crate::support::runs::{Run, folder, is_for_microvm, names, run, run_in_microvm};
use libtest_mimic::{Completion, Failed, Trial};
use serde::Deserialize;
use svclab::conformance::mutants::{DOCUMENT, MutantRow, rows};
use svclab::mode::Mode;

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Damage {
    /// A sentence, used as test name.
    damage: String,
    /// The mode; by default the scenario's first.
    mode: Option<Mode>,
    /// The damage is done before this step, with the proxies stopped.
    before: String,
    /// The step that must fail; by default `before`.
    red: Option<String>,
    #[serde(default = "all")]
    at: String,
    /// Shell commands; none if stopped proxies are the damage.
    commands: Option<String>,
    says: String,
}

fn all() -> String {
    "all".to_owned()
}

/// `edit TABLE EXPRESSION…` rewrites a table by sed, `edit6` does so for IPv6, `edit_nft` for a table of nftables.
const SHELL: &str = r#"
edited() { for part; do set -- "$@" -e "$part"; shift; done; sed -E "$@" before >after
    ! cmp -s before after || { echo "this changes nothing: $*" >&2; exit 1; }; }
edit_by() { program=$1 table=$2; shift 2
    ${program}-save -t "$table" >before; edited "$@"; ${program}-restore -T "$table" <after; }
edit() { edit_by iptables "$@"; }
edit6() { edit_by ip6tables "$@"; }
edit_nft() { table=$1; shift
    nft list table $table >before; edited "$@"; { echo "delete table $table"; cat after; } | nft -f -; }
scratch=$(mktemp -d) && cd "$scratch" && trap 'rm -r "$scratch"' EXIT
"#;

pub fn trials(only: &Only) -> Vec<Trial> {
    let text = include_str!("broken.yaml");
    let table: BTreeMap<String, Vec<Damage>> = serde_saphyr::from_str(text).expect("broken.yaml can be read");
    let known: BTreeSet<String> = table.keys().cloned().collect();
    let (in_microvm, on_host): (BTreeMap<_, _>, BTreeMap<_, _>) =
        table.into_iter().partition(|(scenario, _)| is_for_microvm(scenario));
    let mut trials: Vec<Trial> = on_host
        .into_iter()
        .flat_map(|(scenario, damages)| damages.into_iter().enumerate().map(move |one| (scenario.clone(), one)))
        .map(|(scenario, (number, damage))| {
            let further = if number == 0 { "" } else { "further_" };
            let name = format!("broken::{scenario}::{further}{}", damage.damage.replace([' ', ','], "_"));
            Trial::ignorable_test(name, move || turns_red(&scenario, &damage)).with_ignored_flag(number > 0)
        })
        .collect();
    // A boot takes long: one boot for the first damage of each scenario, one for the second.
    let rounds = in_microvm.values().map(Vec::len).max().unwrap_or_default();
    let rounds = if only.may_start_with("broken::microvm::") { rounds } else { 0 };
    for (round, mode) in (0..rounds).flat_map(|round| Mode::ALL.map(|mode| (round, mode))) {
        let damages = in_microvm.iter().filter_map(|(name, damages)| Some((name.clone(), damages.get(round)?.clone())));
        let damages: Vec<(String, Damage)> = damages.filter(|(name, _)| first_mode(name) == mode).collect();
        if !damages.is_empty() {
            let name = format!("broken::microvm::damage_{}_of_each_{mode}", round + 1);
            let trial = Trial::ignorable_test(name, move || turn_red_in_microvm(mode, &damages));
            // The usual test run boots a microVM only for the first damages in nftables mode.
            trials.push(trial.with_ignored_flag((round, mode) != (0, Mode::Nftables)));
        }
    }
    trials.push(Trial::test("broken::every_scenario_is_broken_by_something", move || every_scenario(&known)));
    trials
}

/// Each scenario has damage here, or notices a wrong proxy (docs/mutants.md).
fn every_scenario(known: &BTreeSet<String>) -> Result<(), Failed> {
    let all: BTreeSet<String> = names().into_iter().collect();
    let mutants = rows(DOCUMENT);
    let noticing: BTreeSet<&str> = mutants.iter().filter_map(MutantRow::scenario).collect();
    let missing: Vec<&String> =
        all.difference(known).filter(|name| !noticing.contains(name.rsplit('/').next().unwrap_or(name))).collect();
    let superfluous: Vec<&String> = known.difference(&all).collect();
    if missing.is_empty() && superfluous.is_empty() {
        return Ok(());
    }
    Err(format!("neither broken.yaml nor docs/mutants.md has {missing:?}; broken.yaml has too much {superfluous:?}")
        .into())
}

fn turns_red(scenario: &str, damage: &Damage) -> Result<Completion, Failed> {
    let hook = hook(scenario, damage);
    let mode = damage.mode.unwrap_or_else(|| first_mode(scenario)).to_string();
    // Damage mostly causes silence; two seconds of it are enough.
    let run = run(scenario, &["--mode", &mode, "--break", &hook, "--patience", "2000"]);
    if run.status == 3 {
        return crate::support::unable(&run.stderr);
    }
    is_red(damage, &run)
}

fn first_mode(scenario: &str) -> Mode {
    let path = folder().join(scenario).with_extension("yaml");
    svclab::scenario::load(&path, 0).expect("a scenario can be read").modes[0]
}

fn turn_red_in_microvm(mode: Mode, damages: &[(String, Damage)]) -> Result<Completion, Failed> {
    let names: Vec<&str> = damages.iter().map(|(name, _)| name.as_str()).collect();
    let hooks: Vec<String> = damages.iter().map(|(name, damage)| hook(name, damage)).collect();
    let flags = hooks.iter().flat_map(|hook| ["--break", hook]).chain(["--patience", "2000"]);
    let runs = run_in_microvm(&mode.to_string(), &names, &flags.collect::<Vec<_>>());
    for ((name, damage), run) in damages.iter().zip(&runs) {
        if run.status == 3 {
            return crate::support::unable(&run.stderr);
        }
        is_red(damage, run).map_err(|failed| format!("{name}, {}: {failed:?}", damage.damage))?;
    }
    Ok(Completion::Completed)
}

fn hook(scenario: &str, damage: &Damage) -> String {
    let commands: Vec<String> = damage.commands.iter().map(|commands| format!("{SHELL}\n{commands}")).collect();
    let scenario = scenario.rsplit('/').next();
    let hook =
        serde_json::json!({ "scenario": scenario, "before": damage.before, "at": damage.at, "commands": commands });
    hook.to_string()
}

fn is_red(damage: &Damage, run: &Run) -> Result<Completion, Failed> {
    let red = damage.red.as_ref().unwrap_or(&damage.before);
    let broken = run.broken();
    let right = matches!(&broken[..], [(step, words)] if step == red && words.contains(&damage.says));
    if run.status == 1 && right {
        return Ok(Completion::Completed);
    }
    let wanted = format!("step {red:?} turns red and says {:?}", damage.says);
    Err(format!("wanted: {wanted}\nexit status {}, broken: {broken:#?}\n{}", run.status, run.stderr).into())
}
