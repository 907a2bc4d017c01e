//! `svclab run --kernel all`: every scenario on every kernel that can do what it needs, and one report of all.
//!
//! Each kernel is a process of its own: a run on the host's becomes another process anyway, inside its sandbox.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use svclab_microvm::kernels::{Kernel, PACKAGED};
use svclab_microvm::probe::Abilities;

use super::batch::{Batch, Reports};
use super::guest::open_cache;
use super::jobs::Job;
use super::run_args::RunArgs;
use super::{Exit, UNABLE, kernels, stop};
use crate::mode::{Mode, Need};

const HOST: &str = "host";

/// What became of a scenario in a mode on a kernel, in a word or two.
type Table = BTreeMap<(String, Mode, &'static str), String>;

pub(super) fn run(args: &RunArgs, jobs: &[Job<'_>]) -> Result<u8, Exit> {
    if args.lab.seed.are_several() && !args.vm.deterministic {
        return Err(Exit::usage("--seed A..B is for deterministic runs: add --deterministic"));
    }
    let (mut table, mut batches) = (Table::new(), Vec::new());
    for (kernel, abilities) in abilities(args)? {
        let divided = divide(kernel, &abilities, args.vm.deterministic, jobs, &mut table);
        batches.extend(divided.into_iter().map(|batch| (kernel, batch)));
    }
    stop::watch()?;
    let mut reports = Reports::new()?;
    for (kernel, batch) in &batches {
        if stop::stop().is_some() {
            break;
        }
        let deterministic = if batch.deterministic { ", deterministic" } else { "" };
        args.notice(&format!("on {kernel}{deterministic}, in {} mode:", batch.mode));
        let done = reports.run(args, batch)?;
        enter(kernel, batch, done.status, &done.scenarios, &mut table);
    }
    shown(&table).lines().for_each(|line| args.stream().line(line));
    reports.finish(args, json!({}))
}

/// Every kernel with what it can do.
fn abilities(args: &RunArgs) -> Result<Vec<(&'static str, Abilities)>, Exit> {
    let unable = |error: svclab_microvm::VmError| Exit::unable(error.to_string());
    let cache = open_cache(args.vm.cache_dir.as_deref())?;
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

/// The batches of one kernel; what it cannot do goes into the table at once.
fn divide<'a>(
    kernel: &'static str,
    abilities: &Abilities,
    deterministic: bool,
    jobs: &[Job<'a>],
    table: &mut Table,
) -> Vec<Batch<'a>> {
    let mut batches: Vec<Batch<'a>> = Vec::new();
    for job in jobs.iter().copied() {
        let Job { scenario, mode, .. } = job;
        let timeless = deterministic || scenario.needs.contains(&Need::VirtualTime);
        let can = |need: &Need| if *need == Need::VirtualTime { kernel != HOST } else { need.is_met_by(abilities) };
        if let Some(need) = job.needs().iter().find(|need| !can(need)) {
            table.insert((scenario.name.clone(), mode, kernel), format!("lacks {}", need.name()));
            continue;
        }
        match batches.iter_mut().find(|batch| (batch.mode, batch.deterministic) == (mode, timeless)) {
            Some(batch) => batch.scenarios.push(scenario),
            None => {
                let kernel = kernel.to_owned();
                batches.push(Batch { kernel, deterministic: timeless, mode, scenarios: vec![scenario] });
            }
        }
    }
    batches.sort_by_key(|batch| (batch.deterministic, batch.mode));
    batches
}

/// Enters what a batch's report tells into the table.
fn enter(kernel: &'static str, batch: &Batch<'_>, status: u8, found: &[Value], table: &mut Table) {
    for scenario in &batch.scenarios {
        let of_it: Vec<&Value> = found.iter().filter(|report| report["name"] == scenario.name.as_str()).collect();
        let word = match &of_it[..] {
            [] if status == UNABLE => "unable",
            [] => "not run",
            reports if reports.iter().all(|report| report["judged"] == false) => "not judged",
            reports if reports.iter().all(|report| report["passed"] == true) => "passed",
            _ => "FAILED",
        };
        table.insert((scenario.name.clone(), batch.mode, kernel), word.to_owned());
    }
}

/// A line per scenario and mode, a column per kernel.
fn shown(table: &Table) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for (_, _, kernel) in table.keys() {
        if !columns.contains(kernel) {
            columns.push(kernel);
        }
    }
    // In the order in which they were run.
    let order = |name: &str| PACKAGED.iter().position(|packaged| packaged.name == name);
    columns.sort_by_key(|name| order(name));
    let mut rows: Vec<(&str, Mode)> = table.keys().map(|(scenario, mode, _)| (scenario.as_str(), *mode)).collect();
    rows.dedup();
    let name = |(scenario, mode): (&str, Mode)| format!("{scenario} ({mode})");
    let width = rows.iter().map(|row| name(*row).len()).max().unwrap_or_default().max("scenario".len());
    let line = |first: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("  {cell:<18}")).collect();
        format!("{first:<width$}{cells}").trim_end().to_owned() + "\n"
    };
    let mut text = line("scenario", columns.iter().map(|name| (*name).to_owned()).collect());
    for row in rows {
        let cell = |column: &&str| {
            let word = table
                .iter()
                .find(|((scenario, mode, kernel), _)| (scenario.as_str(), *mode) == row && kernel == column);
            word.map_or_else(String::new, |(_, word)| word.clone())
        };
        text += &line(&name(row), columns.iter().map(cell).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::Scenario;

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
        let job = |scenario, mode| Job { scenario, mode, foreign: false };
        let jobs = [
            job(&scenarios[0], Mode::Iptables),
            job(&scenarios[0], Mode::Ipvs),
            job(&scenarios[1], Mode::Iptables),
            job(&scenarios[2], Mode::Iptables),
        ];
        let names = |batches: Vec<Batch<'_>>| {
            let one = |batch: Batch<'_>| {
                let names: Vec<&str> = batch.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
                format!("{} {} {}: {}", batch.kernel, batch.mode, batch.deterministic, names.join(" "))
            };
            batches.into_iter().map(one).collect::<Vec<_>>()
        };
        let mut table = Table::new();
        let host = names(divide(HOST, &able(&[]), false, &jobs, &mut table));
        assert_eq!(host, ["host iptables false: hairpin"]);
        let able = able(&["sctp", "ipvs/rr", "dummy"]);
        let guest = names(divide("debian-6.1", &able, false, &jobs, &mut table));
        assert_eq!(
            guest,
            [
                "debian-6.1 iptables false: hairpin udp",
                "debian-6.1 ipvs false: hairpin",
                "debian-6.1 iptables true: udp-timeouts"
            ]
        );
        let counted = names(divide("debian-6.12", &able, true, &jobs[2..], &mut table));
        assert_eq!(counted, ["debian-6.12 iptables true: udp-timeouts udp"]);
        let batch = Batch {
            kernel: "debian-6.1".to_owned(),
            deterministic: true,
            mode: Mode::Iptables,
            scenarios: scenarios[1..].iter().collect(),
        };
        let report = json!([{ "name": "udp-timeouts", "passed": true }, { "name": "udp", "passed": false }]);
        enter("debian-6.1", &batch, 1, report.as_array().unwrap(), &mut table);
        let text = shown(&table);
        let rows = [
            "scenario                 host                debian-6.1",
            "hairpin (ipvs)           lacks ipvs",
            "udp (iptables)           lacks sctp          FAILED",
            "udp-timeouts (iptables)  lacks virtualTime   passed",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), rows, "{text}");
    }
}
