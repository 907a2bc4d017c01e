//! `svclab run --kernel all`: every scenario on every kernel that can do what it needs, and one report of all.
//!
//! Each kernel is a process of its own: a run on the host's becomes another process anyway, inside its sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::inside::{JSON, JUNIT};
use super::run::{RunArgs, write};
use super::{Exit, UNABLE, kernels};
use crate::microvm::cache::Cache;
use crate::microvm::kernels::{Kernel, PACKAGED};
use crate::microvm::probe::Abilities;
use crate::report::junit;
use crate::scenario::Scenario;
use crate::scenario::file::Need;

const HOST: &str = "host";

/// Scenarios that are run together: on one kernel, all with virtual time or all without.
struct Group<'a> {
    kernel: &'static str,
    deterministic: bool,
    scenarios: Vec<&'a Scenario>,
}

/// What became of a scenario on a kernel, in a word or two.
type Table = BTreeMap<(String, &'static str), String>;

pub(super) fn run(args: &RunArgs, scenarios: &[Scenario]) -> Result<u8, Exit> {
    if args.lab.seed.are_several() && !args.vm.deterministic {
        return Err(Exit::usage("--seed A..B is for deterministic runs: add --deterministic"));
    }
    let (mut table, mut groups) = (Table::new(), Vec::new());
    for (kernel, abilities) in abilities(args)? {
        groups.extend(divide(kernel, &abilities, args.vm.deterministic, scenarios, &mut table));
    }
    let folder = tempfile::tempdir().map_err(|error| Exit::unable(format!("cannot make a folder: {error}")))?;
    let (mut worst, mut reports, mut suites) = (0, Vec::new(), Vec::new());
    for group in &groups {
        let status = one(args, group, folder.path())?;
        worst = worst.max(status);
        let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        suites.push(read(JUNIT));
        let report: Value = serde_json::from_str(&read(JSON)).unwrap_or_default();
        let found = report["scenarios"].as_array().cloned().unwrap_or_default();
        enter(group, status, &found, &mut table);
        reports.extend(found);
    }
    eprint!("{}", shown(&table));
    let report = serde_json::json!({ "passed": worst == 0, "scenarios": reports });
    write(args.json.as_deref(), &format!("{report:#}\n"))?;
    write(args.junit.as_deref(), &junit::join(&suites))?;
    Ok(worst)
}

/// Every kernel with what it can do.
fn abilities(args: &RunArgs) -> Result<Vec<(&'static str, Abilities)>, Exit> {
    let unable = |error: crate::microvm::VmError| Exit::unable(error.to_string());
    let cache = Cache::open(args.vm.cache_dir.as_deref()).map_err(unable)?;
    let mut found = Vec::new();
    // The host is never deterministic.
    if !args.vm.deterministic {
        found.push((HOST, kernels::on_host()?));
    }
    for packaged in &PACKAGED {
        found.push((packaged.name, kernels::inside(&cache, &Kernel::Packaged(packaged)).map_err(unable)?));
    }
    Ok(found)
}

/// The groups of one kernel; what it cannot do goes into the table at once.
fn divide<'a>(
    kernel: &'static str,
    abilities: &Abilities,
    deterministic: bool,
    scenarios: &'a [Scenario],
    table: &mut Table,
) -> Vec<Group<'a>> {
    let mut groups = [deterministic, true].map(|deterministic| Group { kernel, deterministic, scenarios: Vec::new() });
    for scenario in scenarios {
        let apart = scenario.needs.contains(&Need::VirtualTime) && !deterministic;
        let can = |need: &Need| if *need == Need::VirtualTime { kernel != HOST } else { abilities.has(*need) };
        match scenario.needs.iter().find(|need| !can(need)) {
            Some(need) => drop(table.insert((scenario.name.clone(), kernel), format!("lacks {}", need.name()))),
            None => groups[usize::from(apart)].scenarios.push(scenario),
        }
    }
    groups.into_iter().filter(|group| !group.scenarios.is_empty()).collect()
}

/// Runs a group in a process of its own; its exit status.
fn one(args: &RunArgs, group: &Group<'_>, folder: &Path) -> Result<u8, Exit> {
    for name in [JSON, JUNIT] {
        // Of the group before; there is none at first.
        let _ = std::fs::remove_file(folder.join(name));
    }
    let unable = |error: std::io::Error| Exit::unable(format!("cannot run svclab for {}: {error}", group.kernel));
    let mut command = Command::new(std::env::current_exe().map_err(unable)?);
    command.arg("run").args(group.scenarios.iter().map(|scenario| &scenario.path)).args(args.flags());
    command.args(["--kernel", group.kernel, "--seed", &args.lab.seed.to_string()]);
    command.arg("--json").arg(folder.join(JSON)).arg("--junit").arg(folder.join(JUNIT));
    if group.deterministic {
        command.arg("--deterministic");
    }
    let paths = [("--proxy", &args.lab.proxy), ("--cache-dir", &args.vm.cache_dir)];
    for (flag, path) in paths.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
        command.arg(flag).arg(path);
    }
    if let Some(seconds) = args.vm.deadline {
        command.args(["--deadline", &seconds.to_string()]);
    }
    eprintln!("on {}{}:", group.kernel, if group.deterministic { ", deterministic" } else { "" });
    let status = command.stdin(Stdio::null()).status().map_err(unable)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(UNABLE))
}

/// Enters what a group's report tells into the table.
fn enter(group: &Group<'_>, status: u8, found: &[Value], table: &mut Table) {
    for scenario in &group.scenarios {
        let of_it: Vec<&Value> = found.iter().filter(|report| report["name"] == scenario.name.as_str()).collect();
        let word = match &of_it[..] {
            [] if status == UNABLE => "unable",
            [] => "not run",
            reports if reports.iter().all(|report| report["passed"] == true) => "kept",
            _ => "BROKEN",
        };
        table.insert((scenario.name.clone(), group.kernel), word.to_owned());
    }
}

/// A line per scenario, a column per kernel.
fn shown(table: &Table) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for (_, kernel) in table.keys() {
        if !columns.contains(kernel) {
            columns.push(kernel);
        }
    }
    // In the order in which they were run.
    let order = |name: &str| PACKAGED.iter().position(|packaged| packaged.name == name);
    columns.sort_by_key(|name| order(name));
    let mut rows: Vec<&str> = table.keys().map(|(scenario, _)| scenario.as_str()).collect();
    rows.dedup();
    let width = rows.iter().map(|name| name.len()).max().unwrap_or_default().max("scenario".len());
    let line = |first: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("  {cell:<18}")).collect();
        format!("{first:<width$}{cells}").trim_end().to_owned() + "\n"
    };
    let mut text = line("scenario", columns.iter().map(|name| (*name).to_owned()).collect());
    for row in rows {
        let cell = |column: &&str| {
            let word = table.iter().find(|((scenario, kernel), _)| scenario == row && kernel == column);
            word.map_or_else(String::new, |(_, word)| word.clone())
        };
        text += &line(row, columns.iter().map(cell).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(name: &str) -> Scenario {
        crate::scenario::load(&Path::new("../scenarios").join(name), 0).unwrap()
    }

    fn able(can: &[&str]) -> Abilities {
        Abilities { release: "x".to_owned(), can: can.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn each_kernel_gets_what_it_can_do_and_virtual_time_a_machine_of_its_own() {
        let mut needy = load("udp.yaml");
        needy.needs = [Need::Sctp].into();
        let scenarios = [load("hairpin.yaml"), load("microvm/udp-timeouts.yaml"), needy];
        let names = |groups: Vec<Group<'_>>| {
            let one = |group: Group<'_>| {
                let names: Vec<&str> = group.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
                format!("{} {}: {}", group.kernel, group.deterministic, names.join(" "))
            };
            groups.into_iter().map(one).collect::<Vec<_>>()
        };
        let mut table = Table::new();
        let host = names(divide(HOST, &able(&[]), false, &scenarios, &mut table));
        assert_eq!(host, ["host false: hairpin"]);
        let guest = names(divide("debian-6.1", &able(&["sctp"]), false, &scenarios, &mut table));
        assert_eq!(guest, ["debian-6.1 false: hairpin udp", "debian-6.1 true: udp-timeouts"]);
        let counted = names(divide("debian-6.12", &able(&["sctp"]), true, &scenarios, &mut table));
        assert_eq!(counted, ["debian-6.12 true: hairpin udp-timeouts udp"]);
        let group = Group { kernel: "debian-6.1", deterministic: true, scenarios: scenarios[1..].iter().collect() };
        let report =
            serde_json::json!([{ "name": "udp-timeouts", "passed": true }, { "name": "udp", "passed": false }]);
        enter(&group, 1, report.as_array().unwrap(), &mut table);
        let text = shown(&table);
        let rows = ["scenario      host                debian-6.1", "udp           lacks sctp          BROKEN"];
        assert_eq!(text.lines().take(2).collect::<Vec<_>>(), rows, "{text}");
        assert_eq!(text.lines().nth(2), Some("udp-timeouts  lacks virtualTime   kept"), "{text}");
    }
}
