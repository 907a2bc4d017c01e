//! `--shard` and `--balance`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;

use super::args::{RunArgs, value_name};
use super::job::Job;
use super::target::KernelArg;
use crate::exit::Exit;
use crate::mode::Mode;
use crate::report::{RunRecord, ScenarioRecord};
use crate::scenario::Scenario;
use crate::scenario::run::ProxyUnderTest;
use crate::scenario::values::Sensitivity;
use crate::shard::{ItemTime, Shard, ShardRecord, Times, WorkItem, divide};

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ShardArgs {
    /// Run only this shard of the work, such as 3/16, which is a sixteenth: another machine runs each other shard, and `svclab merge`
    /// makes one report of theirs.
    #[arg(long, value_name = "I/N")]
    pub(crate) shard: Option<Shard>,
    /// Divide the work by the times in this earlier JSON report, the same for all shards [default: by a hash, and several seeds in turn].
    #[arg(long, value_name = "REPORT", requires = "shard")]
    pub(crate) balance: Option<PathBuf>,
}

/// Which shard of which command: everything that decides results, besides the items.
pub(crate) struct SharedWork {
    pub(crate) proxy: String,
    pub(crate) flags: String,
    /// Whether each seed has a microVM.
    pub(crate) by_seed: bool,
}

impl ShardArgs {
    /// Divides the work; `None` without `--shard`.
    pub(crate) fn share(&self, items: &[WorkItem], work: SharedWork) -> Result<Option<ShardRecord>, Exit> {
        let Some(Shard { number, of }) = self.shard else { return Ok(None) };
        let times = self.balance.as_deref().map(times).transpose()?;
        let items = divide(items, of, times.as_ref(), work.by_seed);
        let (lab, SharedWork { proxy, flags, .. }) = (env!("SVCLAB_VERSION").to_owned(), work);
        let share = ShardRecord { number, of, lab, proxy, flags, items };
        eprintln!("shard {}: {} of {}", share.shard(), share.own().count(), share.items.len());
        Ok(Some(share))
    }
}

/// The times in a report of any command.
#[derive(Deserialize)]
struct TimesOfReport {
    #[serde(default)]
    times: Vec<ItemTime>,
}

fn times(path: &Path) -> Result<Times, Exit> {
    let wrong = |problem: String| Exit::usage(format!("--balance: {}: {problem}", path.display()));
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let run: Option<RunRecord> = serde_json::from_slice(&text).ok();
    let times = match run {
        Some(run) => run.scenarios.iter().map(ScenarioRecord::time).collect(),
        None => serde_json::from_slice::<TimesOfReport>(&text).map_err(|error| wrong(error.to_string()))?.times,
    };
    if times.is_empty() {
        return Err(wrong("it has no times: expected a report of --json".to_owned()));
    }
    Ok(Times::new(times))
}

/// Returns the arguments of this machine's part of the run: with `share`, and the seeds of this shard. `items`: in the order of
/// the report.
pub(super) fn take_share(args: &RunArgs, proxy: &ProxyUnderTest, items: &[WorkItem]) -> Result<RunArgs, Exit> {
    let by_seed = args.lab.seed.are_several();
    let proxy = proxy.tested(args.proxy_given()).title();
    let share = args.sharding.share(items, SharedWork { proxy, flags: deciding_flags(args), by_seed })?;
    let mut args = args.clone();
    if by_seed {
        let own = share.iter().flat_map(ShardRecord::own).map(|item| item.seed);
        args.seeds = own.collect::<BTreeSet<u64>>().into_iter().collect();
    }
    args.share = share;
    Ok(args)
}

/// Returns the items of jobs that share a place, sorted as batches are: by mode, seed and scenario.
pub(super) fn items(args: &RunArgs, jobs: &[Job<'_>], place: &KernelArg) -> Vec<WorkItem> {
    let modes: BTreeSet<Mode> = jobs.iter().map(|job| job.mode).collect();
    let each = modes.into_iter().flat_map(|mode| args.lab.seed.each().map(move |seed| (mode, seed)));
    let of = |(mode, seed)| {
        let jobs = jobs.iter().filter(move |job| job.mode == mode);
        jobs.map(move |job| item(job.scenario, mode, place, seed))
    };
    each.flat_map(of).collect()
}

fn item(scenario: &Scenario, mode: Mode, place: &KernelArg, seed: u64) -> WorkItem {
    WorkItem { scenario: scenario.name.clone(), mode: mode.to_string(), place: place.to_string(), seed }
}

impl RunArgs {
    /// Whether this shard runs the scenario, with any seed.
    pub(super) fn has(&self, scenario: &Scenario, mode: Mode, place: &KernelArg) -> bool {
        let is_own = |share: &ShardRecord| share.own().any(|own| *own == item(scenario, mode, place, own.seed));
        self.share.as_ref().is_none_or(is_own)
    }
}

/// Returns the flags of `svclab run` that decide results, except those that are part of the items.
fn deciding_flags(args: &RunArgs) -> String {
    let usual = RunArgs::of(Vec::new());
    let is_usual = (args.lab.iptables_variant == usual.lab.iptables_variant, args.lab.source == usual.lab.source);
    let flags = [
        args.audit.then(|| "--audit".to_owned()),
        args.figures.then(|| "--figures".to_owned()),
        args.vm.deterministic.then(|| "--deterministic".to_owned()),
        args.control_plane.as_ref().map(|_| "--control-plane".to_owned()),
        args.patience.map(|patience| format!("--patience {patience}")),
        args.sensitivity.map(|Sensitivity(skew)| format!("--sensitivity {}%", skew * 100.0)),
        (!is_usual.0).then(|| format!("--iptables-variant {}", value_name(args.lab.iptables_variant))),
        (!is_usual.1).then(|| format!("--source {}", value_name(args.lab.source))),
    ];
    flags.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
