//! `--kernel all`: every scenario on every kernel that has the needed abilities, in one report.

use std::collections::BTreeMap;

use svclab_microvm::kernels::{Kernel, PACKAGED};
use svclab_microvm::probe::Abilities;

use super::args::RunArgs;
use super::batch::{BatchResult, CombinedReport, RunBatch};
use super::guest::open_cache;
use super::job::Job;
use super::share::{items, take_share};
use super::target::{GuestTarget, RunTarget};
use super::{abilities, signals};
use crate::exit::{Exit, UNABLE};
use crate::mode::{Mode, Need};
use crate::scenario::run::ProxyUnderTest;
use crate::shard::WorkItem;

/// Results by scenario, mode and kernel; a result is a word or two.
type KernelTable = BTreeMap<(String, Mode, String), String>;

pub(super) fn run(args: &RunArgs, jobs: &[Job<'_>], proxy: &ProxyUnderTest) -> Result<u8, Exit> {
    if args.lab.seed.are_several() && !args.vm.deterministic {
        return Err(Exit::usage("--seed A..B is for deterministic runs: add --deterministic"));
    }
    let (mut table, mut batches) = (KernelTable::new(), Vec::new());
    for (kernel, abilities) in kernels(args)? {
        batches.extend(divide(kernel, &abilities, args.vm.deterministic, jobs, &mut table));
    }
    let args = &take_share(args, proxy, &items_of(args, &batches))?;
    for batch in &mut batches {
        let (mode, place) = (batch.mode, batch.target.kernel());
        batch.scenarios.retain(|scenario| args.has(scenario, mode, &place));
    }
    batches.retain(|batch| !batch.scenarios.is_empty());
    signals::watch()?;
    let mut combined = CombinedReport::new()?;
    for batch in &batches {
        if signals::stop().is_some() {
            break;
        }
        let deterministic = if batch.target.is_deterministic() { ", deterministic" } else { "" };
        args.notice(&format!("on {}{deterministic}, in {} mode:", batch.target.kernel(), batch.mode));
        let result = combined.run(args, batch)?;
        enter(batch, &result, &mut table);
    }
    shown(&table).lines().for_each(|line| args.stream().line(line));
    combined.finish(args)
}

fn items_of(args: &RunArgs, batches: &[RunBatch<'_>]) -> Vec<WorkItem> {
    let of = |batch: &RunBatch<'_>| {
        let scenarios = batch.scenarios.iter();
        let jobs: Vec<Job<'_>> = scenarios.map(|scenario| Job { scenario, mode: batch.mode, foreign: false }).collect();
        items(args, &jobs, &batch.target.kernel())
    };
    batches.iter().flat_map(of).collect()
}

/// Returns the kernels with their abilities. `None` is the host's kernel, which is never deterministic.
fn kernels(args: &RunArgs) -> Result<Vec<(Option<Kernel>, Abilities)>, Exit> {
    let cache = open_cache(args.vm.cache_dir.as_deref())?;
    let mut found = Vec::new();
    if !args.vm.deterministic {
        found.push((None, abilities::of_host()?));
    }
    for packaged in &PACKAGED {
        let kernel = Kernel::Packaged(packaged);
        let abilities = abilities::of_guest(&cache, &kernel).map_err(|error| Exit::unable(error.to_string()))?;
        found.push((Some(kernel), abilities));
    }
    Ok(found)
}

/// Returns batches of the jobs that the kernel can run, and enters the other jobs into the table.
fn divide<'a>(
    kernel: Option<Kernel>,
    abilities: &Abilities,
    deterministic: bool,
    jobs: &[Job<'a>],
    table: &mut KernelTable,
) -> Vec<RunBatch<'a>> {
    let mut batches: Vec<RunBatch<'a>> = Vec::new();
    for job in jobs {
        let timeless = deterministic || job.scenario.needs.contains(&Need::VirtualTime);
        let target = match &kernel {
            None => RunTarget::Host,
            Some(kernel) => {
                let (kernel, because) = (kernel.clone(), String::new());
                RunTarget::Guest(GuestTarget { kernel, deterministic: timeless, because })
            }
        };
        let can = |need: &Need| if *need == Need::VirtualTime { kernel.is_some() } else { need.is_met_by(abilities) };
        match job.needs().iter().find(|need| !can(need)) {
            Some(need) => {
                let key = (job.scenario.name.clone(), job.mode, target.kernel().to_string());
                table.insert(key, format!("lacks {}", need.name()));
            }
            None => RunBatch::add(&mut batches, target, job.mode, job.scenario),
        }
    }
    batches.sort_by_key(|batch| (batch.target.is_deterministic(), batch.mode));
    batches
}

fn enter(batch: &RunBatch<'_>, result: &BatchResult, table: &mut KernelTable) {
    for scenario in &batch.scenarios {
        let reports: Vec<_> = result.scenarios.iter().filter(|report| report.name == scenario.name).collect();
        let word = match &reports[..] {
            [] if result.status == UNABLE => "unable",
            [] => "not run",
            reports if reports.iter().all(|report| !report.judged) => "not judged",
            reports if reports.iter().all(|report| report.passed) => "passed",
            _ => "FAILED",
        };
        let key = (scenario.name.clone(), batch.mode, batch.target.kernel().to_string());
        table.insert(key, word.to_owned());
    }
}

/// Returns the table as text: a line per scenario and mode, a column per kernel.
fn shown(table: &KernelTable) -> String {
    let mut columns: Vec<&String> = table.keys().map(|(_, _, kernel)| kernel).collect();
    let order = |name: &str| PACKAGED.iter().position(|packaged| packaged.name == name);
    columns.sort_by_key(|name| (order(name), *name));
    columns.dedup();
    let mut rows: Vec<(&String, Mode)> = table.keys().map(|(scenario, mode, _)| (scenario, *mode)).collect();
    rows.dedup();
    let name = |(scenario, mode): (&String, Mode)| format!("{scenario} ({mode})");
    let width = rows.iter().map(|row| name(*row).len()).max().unwrap_or_default().max("scenario".len());
    let line = |first: &str, cells: Vec<&str>| {
        let cells: String = cells.iter().map(|cell| format!("  {cell:<18}")).collect();
        format!("{first:<width$}{cells}").trim_end().to_owned() + "\n"
    };
    let mut text = line("scenario", columns.iter().map(|name| name.as_str()).collect());
    for (scenario, mode) in rows {
        let cell =
            |kernel: &&String| table.get(&(scenario.clone(), mode, (*kernel).clone())).map_or("", String::as_str);
        text += &line(&name((scenario, mode)), columns.iter().map(cell).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::report::ScenarioRecord;
    use crate::scenario::Scenario;

    fn load(name: &str) -> Scenario {
        crate::scenario::load(&Path::new("../scenarios").join(name), 0).unwrap()
    }

    fn able(can: &[&str]) -> Abilities {
        Abilities { release: "x".to_owned(), can: can.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn each_kernel_runs_what_it_supports_and_virtual_time_needs_a_batch_of_its_own() {
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
        let names = |batches: Vec<RunBatch<'_>>| {
            let one = |batch: RunBatch<'_>| {
                let names: Vec<&str> = batch.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
                let (kernel, is_deterministic) = (batch.target.kernel(), batch.target.is_deterministic());
                format!("{kernel} {} {is_deterministic}: {}", batch.mode, names.join(" "))
            };
            batches.into_iter().map(one).collect::<Vec<_>>()
        };
        let mut table = KernelTable::new();
        let host = names(divide(None, &able(&[]), false, &jobs, &mut table));
        assert_eq!(host, ["host iptables false: hairpin"]);
        let able = able(&["sctp", "ipvs/rr", "dummy"]);
        let kernel = |name: &str| Some(name.parse::<Kernel>().unwrap());
        let mut batches = divide(kernel("debian-6.1"), &able, false, &jobs, &mut table);
        let timeless = batches.pop().unwrap();
        assert_eq!(names(batches), ["debian-6.1 iptables false: hairpin udp", "debian-6.1 ipvs false: hairpin"]);
        let counted = names(divide(kernel("debian-6.12"), &able, true, &jobs[2..], &mut table));
        assert_eq!(counted, ["debian-6.12 iptables true: udp-timeouts udp"]);
        let report = |name: &str, passed| ScenarioRecord {
            name: name.to_owned(),
            passed,
            judged: true,
            ..ScenarioRecord::default()
        };
        let batch = RunBatch { scenarios: scenarios[1..].iter().collect(), ..timeless };
        assert_eq!((batch.mode, batch.target.is_deterministic()), (Mode::Iptables, true));
        let scenarios = vec![report("udp-timeouts", true), report("udp", false)];
        enter(&batch, &BatchResult { status: 1, scenarios, ..BatchResult::default() }, &mut table);
        let rows = [
            "scenario                 host                debian-6.1",
            "hairpin (ipvs)           lacks ipvs",
            "udp (iptables)           lacks sctp          FAILED",
            "udp-timeouts (iptables)  lacks virtualTime   passed",
        ];
        let text = shown(&table);
        assert_eq!(text.lines().collect::<Vec<_>>(), rows, "{text}");
    }
}
