use std::path::Path;

use super::*;
use crate::matrix::Column;
use crate::report::{ProgramRecord, ScenarioRecord, TestedProxy};
use crate::shard::{AssignedItem, ShardRecord, Times, divide};

fn scenario(name: &str, mode: &str) -> ScenarioRecord {
    ScenarioRecord {
        name: name.to_owned(),
        mode: mode.to_owned(),
        iptables_variant: "auto".to_owned(),
        proxy: TestedProxy { name: "svcproxy".to_owned(), ..TestedProxy::default() },
        passed: true,
        judged: true,
        ..ScenarioRecord::default()
    }
}

fn whole() -> RunRecord {
    let pairs = ["iptables", "ipvs"].map(|mode| ["zebra", "affinity", "hairpin"].map(|name| scenario(name, mode)));
    RunRecord::new(true, pairs.into_iter().flatten().collect())
}

fn record(number: usize, items: &[WorkItem]) -> ShardRecord {
    let items: Vec<AssignedItem> = divide(items, 3, Some(&Times::default()), false);
    ShardRecord { number, of: 3, lab: "0.1.0".to_owned(), proxy: "svcproxy".to_owned(), flags: String::new(), items }
}

/// Returns the shards of the whole run.
fn shards() -> Vec<RunRecord> {
    let whole = whole();
    let any_kernel = |one: &ScenarioRecord| WorkItem { place: "auto".to_owned(), ..one.item() };
    let items: Vec<WorkItem> = whole.scenarios.iter().map(any_kernel).collect();
    let shard = |number| {
        let shard = record(number, &items);
        let own = whole.scenarios.iter().filter(|one| shard.has(&any_kernel(one))).cloned().collect();
        RunRecord { shard: Some(shard), ..RunRecord::new(true, own) }
    };
    (1..=3).map(shard).collect()
}

fn merged<T: serde::Serialize>(reports: &[T]) -> Result<(MergedReport, Vec<Gap>), String> {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for (number, report) in reports.iter().enumerate() {
        let path = folder.path().join(format!("{number}.json"));
        std::fs::write(&path, serde_json::to_string(report).unwrap()).unwrap();
        paths.push(path);
    }
    merge(&paths).map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

fn run(reports: &[RunRecord]) -> (RunRecord, Vec<Gap>) {
    let (MergedReport::Run(run), gaps) = merged(reports).unwrap() else { panic!("a run") };
    (run, gaps)
}

#[test]
fn the_shards_of_a_run_are_the_whole_in_any_order() {
    let mut shards = shards();
    assert!(shards.iter().all(|shard| shard.scenarios.len() == 2));
    assert_eq!(run(&shards), (whole(), vec![]));
    shards.reverse();
    assert_eq!(run(&shards), (whole(), vec![]));
}

#[test]
fn a_failure_and_a_signal_in_a_shard_are_those_of_the_whole() {
    let mut shards = shards();
    shards[1].interrupt("SIGTERM");
    let (run, gaps) = run(&shards);
    assert_eq!((run.passed, run.interrupted.as_deref(), gaps.len()), (false, Some("SIGTERM"), 0));
}

#[test]
fn what_is_missing_is_named_in_the_report() {
    let mut shards = shards();
    let absent = shards.remove(1);
    let cut = shards[1].scenarios.pop().unwrap();
    let (run, gaps) = run(&shards);
    let mut why: Vec<String> = gaps.iter().map(|gap| format!("{}: {}", gap.item.scenario, gap.why)).collect();
    let mut expected: Vec<String> =
        absent.scenarios.iter().map(|one| format!("{}: shard 2/3 is missing", one.name)).collect();
    expected.push(format!("{}: shard 3/3 ended before it", cut.name));
    why.sort();
    expected.sort();
    assert_eq!(why, expected);
    assert!(!run.passed);
    let not_run = run.not_run.unwrap();
    assert!(not_run.len() == 3 && not_run.iter().all(|one| one.is_failure));
}

#[test]
fn a_scenario_that_a_shard_could_not_run_is_no_gap() {
    let mut shards = shards();
    let one = shards[0].scenarios.pop().unwrap();
    let (scenario, mode, why) = (one.name, one.mode, "no microVM".to_owned());
    shards[0].not_run = Some(vec![NotRunRecord { scenario, mode, why, is_failure: true }]);
    let (run, gaps) = run(&shards);
    assert_eq!((run.not_run, gaps), (shards[0].not_run.clone(), vec![]));
}

#[test]
fn reports_of_different_commands_are_an_error_that_names_both() {
    let told = |change: &dyn Fn(&mut ShardRecord)| {
        let mut shards = shards();
        change(shards[2].shard.as_mut().unwrap());
        merged(&shards).map(drop).unwrap_err()
    };
    let differ = |what: &str, one: &str, other: &str| {
        format!(
            "0.json and 2.json are of different commands: {what} is {one:?} in the first, and {other:?} in the second"
        )
    };
    assert_eq!(told(&|shard| shard.lab = "0.2.0".to_owned()), differ("the version of svclab", "0.1.0", "0.2.0"));
    assert_eq!(
        told(&|shard| shard.proxy = "kube-proxy 1.36.2".to_owned()),
        differ("the proxy", "svcproxy", "kube-proxy 1.36.2")
    );
    assert_eq!(told(&|shard| shard.flags = "--audit".to_owned()), differ("the list of flags", "", "--audit"));
    assert_eq!(told(&|shard| shard.of = 4), differ("the number of shards", "3", "4"));
    let other = told(&|shard| shard.items[0].item.seed = 7);
    assert!(
        other.contains("zebra (iptables, auto, seed 0)") && other.contains("zebra (iptables, auto, seed 7)"),
        "{other}"
    );
    let balanced = told(&|shard| shard.items[0].shard = 3);
    assert!(balanced.contains("the report of --balance") && balanced.contains("in shard 3/3"), "{balanced}");
    assert_eq!(told(&|shard| shard.number = 1), "0.json and 2.json are both shard 1/3: leave one out");
}

#[test]
fn files_that_are_no_shards_are_errors() {
    assert_eq!(merged(&[whole()]).map(drop).unwrap_err(), "0.json is no shard: it was written without --shard");
    let told = merged(&[serde_json::json!({"a": 1})]).map(drop).unwrap_err();
    assert_eq!(told, "0.json: not a report of `svclab run`, `conformance` or `matrix`");
    let other = RunRecord { schema_version: 9, ..whole() };
    let told = merged(&[other]).map(drop).unwrap_err();
    assert_eq!(told, "0.json: its schema version is 9, and this program reads 1");
    let run = serde_json::to_value(whole()).unwrap();
    let told = merged(&[run, serde_json::to_value(Matrix::default()).unwrap()]).map(drop).unwrap_err();
    assert!(told.starts_with("0.json is a report of `svclab run`, and 1.json is a matrix of"), "{told}");
    assert_eq!(merge(&[]).unwrap_err(), MergeError::Empty);
    assert!(merge(&[Path::new("/proc/nowhere").to_owned()]).unwrap_err().to_string().starts_with("/proc/nowhere: "));
    assert_eq!(ProgramRecord::own().name, "svclab");
}

#[test]
fn the_shards_of_a_matrix_are_the_whole() {
    let names = ["a", "b", "c", "d"];
    let item = |name: &str| WorkItem {
        scenario: name.to_owned(),
        mode: "iptables".to_owned(),
        place: "v1.36.2".to_owned(),
        seed: 0,
    };
    let items = names.map(item);
    let shard = |number: usize| {
        let shard = record(number, &items);
        let mut matrix = Matrix { proxy: "kube-proxy".to_owned(), ..Matrix::default() };
        let column = Column { folder: "v1.36.2".to_owned(), version: None, mode: "iptables".to_owned() };
        matrix.add(column);
        matrix.enter("excused", 0, Cell::Excused("it cannot".to_owned()));
        names.iter().filter(|name| shard.has(&item(name))).for_each(|name| matrix.enter(name, 0, Cell::Passed));
        Matrix { shard: Some(shard), ..matrix }
    };
    let mut shards: Vec<Matrix> = (1..=3).map(shard).collect();
    let (MergedReport::Matrix(all), gaps) = merged(&shards).unwrap() else { panic!("a matrix") };
    assert_eq!((all.count("passed"), all.count("excused"), gaps.len(), &all.shard), (4, 1, 0, &None));
    let absent = shards.remove(0);
    let (MergedReport::Matrix(all), gaps) = merged(&shards).unwrap() else { panic!("a matrix") };
    assert_eq!((all.count("passed"), all.count("notRun")), (4 - absent.count("passed"), gaps.len()));
    assert!(!gaps.is_empty() && gaps[0].why == "shard 1/3 is missing");
    shards[1].columns[0].version = Some("1.36.3".to_owned());
    let told = merged(&shards).map(drop).unwrap_err();
    assert!(told.contains("the list of versions and modes") || told.contains("no column"), "{told}");
}
