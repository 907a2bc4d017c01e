use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use svclab_microvm::kernels::Kernel;
use svclab_netns::sandbox;

use crate::exit::{Exit, FAILED, UNABLE, status_of};
use crate::find;
use crate::mode::Mode;
use crate::report::TestedProxy;
use crate::scenario::run::soak::{SoakNodeRow, SoakOptions, SoakReport, SoakRow, soak};
use crate::scenario::run::{EvidenceLevel, ProxyUnderTest, RunOptions};
use crate::schedule::{LabArgs, abilities, check_modes, guest, runtime, signals, stopped, value_name};
use crate::shard::{ANY_PLACE, Shard, WorkItem, divide};

/// A microVM may take this many times the soak's duration, plus [`BESIDES`] for everything but the changes.
const SLOWER: u32 = 3;
const BESIDES: Duration = Duration::from_secs(900);

#[derive(Args)]
pub(super) struct SoakArgs {
    /// How long the soak takes.
    #[arg(long, default_value_t = 10.0, value_name = "MINUTES", value_parser = positive)]
    minutes: f64,
    /// Changes of objects in that time.
    #[arg(long, default_value_t = 20_000, value_name = "NUMBER")]
    changes: usize,
    /// The proxies' mode. Where the host's kernel lacks IPVS, the soak is run in a microVM, whose emulated processors are some ten times
    /// slower: use fewer changes a minute.
    #[arg(long, value_enum, default_value = "iptables", value_name = "MODE")]
    mode: Mode,
    /// The kernel of that microVM, or `host`.
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<String>,
    /// A shell command on the first node before its rules are compared: for the test that shows that a soak can fail.
    #[arg(long = "break", hide = true, value_name = "COMMAND")]
    damage: Vec<String>,
    /// Soak only with this shard of the seeds A..B, such as 3/16: another machine soaks with those of each other shard.
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    #[command(flatten)]
    lab: LabArgs,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= 100_000.0);
    number.ok_or_else(|| "expected a number of minutes, such as 10 or 0.25".to_owned())
}

pub(super) fn run(args: &SoakArgs) -> Result<u8, Exit> {
    if args.lab.seed.are_several() || args.shard.is_some() {
        return each_seed(args);
    }
    let seed = args.lab.seed.one()?;
    if let Some(kernel) = kernel(args)? {
        return in_microvm(args, &kernel);
    }
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source)?;
    check_modes(&proxy, &[args.mode])?;
    find::tools()?;
    let _inside = sandbox::enter().map_err(|error| Exit::unable(error.to_string()))?;
    let run = RunOptions {
        proxy_given: find::proxy_given(args.lab.proxy.as_deref()),
        proxy,
        mode: args.mode,
        variant: args.lab.iptables_variant,
        source: args.lab.source,
        control_plane: None,
        patience: None,
        keep_going: false,
        breaks: Vec::new(),
        evidence: EvidenceLevel::Nothing,
        audit: false,
        measure: None,
        machine: None,
    };
    let options = SoakOptions {
        run,
        seed,
        duration: Duration::from_secs_f64(args.minutes * 60.0),
        changes: args.changes,
        damage: args.damage.clone(),
    };
    let mut head = true;
    let mut progress = |row: &SoakRow| {
        if std::mem::take(&mut head) {
            println!("{}", header(&row.nodes));
        }
        println!("{}", row_line(row));
    };
    let report = runtime()?.block_on(async {
        tokio::select! {
            report = soak(&options, &mut progress) => report.map_err(|error| {
                let status = if error.is_of_this_machine() { UNABLE } else { FAILED };
                Exit { status, message: error.to_string() }
            }),
            stop = stopped() => Err(stop.exit()),
        }
    })?;
    Ok(verdict(&report, args, &options.run.tested_proxy(), seed))
}

/// Returns the microVM's kernel; `None` to use the kernel of this process.
fn kernel(args: &SoakArgs) -> Result<Option<Kernel>, Exit> {
    match args.kernel.as_deref() {
        Some("host") => Ok(None),
        Some(other) => other.parse().map(Some).map_err(Exit::usage),
        None => {
            let needs = args.mode.needs();
            let lacks = !needs.is_empty() && {
                let host = abilities::of_host()?;
                needs.iter().any(|need| !need.is_met_by(&host))
            };
            Ok(lacks.then(Kernel::default))
        }
    }
}

/// Soaks with one seed after the other, each in a process of its own, and returns the worst status.
fn each_seed(args: &SoakArgs) -> Result<u8, Exit> {
    let Shard { number, of } = args.shard.unwrap_or(Shard { number: 1, of: 1 });
    let place = args.kernel.clone().unwrap_or_else(|| ANY_PLACE.to_owned());
    let item = |seed| WorkItem { scenario: "soak".to_owned(), mode: args.mode.to_string(), place: place.clone(), seed };
    let items: Vec<WorkItem> = args.lab.seed.each().map(item).collect();
    let divided = divide(&items, of, None, true);
    let seeds: Vec<u64> = divided.iter().filter(|one| one.shard == number).map(|one| one.item.seed).collect();
    let names: Vec<String> = seeds.iter().map(u64::to_string).collect();
    println!("shard {number}/{of}: {} of {} seeds: {}", seeds.len(), items.len(), names.join(", "));
    let unable = |error: std::io::Error| Exit::unable(format!("cannot run svclab: {error}"));
    signals::watch()?;
    let mut worst = 0;
    for seed in names {
        println!("seed {seed}:");
        let mut command = Command::new(std::env::current_exe().map_err(unable)?);
        svclab_netns::die_with_this_process(&mut command);
        command.args(line(args, args.kernel.as_deref(), &seed)).stdin(Stdio::null());
        command.args(args.lab.proxy.iter().flat_map(|proxy| [Path::new("--proxy"), proxy]));
        worst = worst.max(signals::status(&mut command).map(status_of).map_err(unable)?);
        if let Some(stop) = signals::stop() {
            return Err(stop.exit());
        }
    }
    Ok(worst)
}

/// Returns the arguments of a soak with one seed, without the proxy.
fn line(args: &SoakArgs, kernel: Option<&str>, seed: &str) -> Vec<String> {
    let mut line = vec!["soak".to_owned()];
    let mut flag = |name: &str, value: String| line.extend([format!("--{name}"), value]);
    kernel.into_iter().for_each(|kernel| flag("kernel", kernel.to_owned()));
    flag("mode", args.mode.to_string());
    flag("minutes", args.minutes.to_string());
    flag("changes", args.changes.to_string());
    flag("seed", seed.to_owned());
    flag("iptables-variant", value_name(args.lab.iptables_variant));
    flag("source", value_name(args.lab.source));
    for damage in &args.damage {
        flag("break", damage.clone());
    }
    line
}

fn in_microvm(args: &SoakArgs, kernel: &Kernel) -> Result<u8, Exit> {
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source)?;
    let ProxyUnderTest::Own(program) = proxy else {
        return Err(Exit::usage("a soak in a microVM is for svcproxy alone: another's proxy is soaked on the host"));
    };
    let mut order = vec!["guest-exec".to_owned(), "/usr/bin/svclab".to_owned()];
    order.extend(line(args, Some("host"), &args.lab.seed.to_string()));
    let programs = BTreeMap::from([("svcproxy".to_owned(), program)]);
    let deadline = SLOWER * Duration::from_secs_f64(args.minutes * 60.0) + BESIDES;
    guest::boot(None, kernel, programs, order, deadline, &mut |line| println!("{line}"))
}

fn header(nodes: &[SoakNodeRow]) -> String {
    let of = |node: &SoakNodeRow| {
        let first = format!("{}: syncs rss/KiB", node.node);
        format!(" | {first:>23} {:>4} {:>6} {:>9}", "fds", "errors", "ms/change")
    };
    let nodes: String = nodes.iter().map(of).collect();
    format!("{:>8} {:>8}{nodes} | {:>8} {:>6}", "time", "changes", "requests", "failed")
}

fn row_line(row: &SoakRow) -> String {
    let of = |node: &SoakNodeRow| {
        let per_change = format!("{:.2}", node.per_change.as_secs_f64() * 1000.0);
        format!(" | {:>13} {:>9} {:>4} {:>6} {per_change:>9}", node.syncs, node.rss, node.fds, node.errors)
    };
    let nodes: String = row.nodes.iter().map(of).collect();
    let time = format!("{:.1} s", row.at.as_secs_f64());
    format!("{time:>8} {:>8}{nodes} | {:>8} {:>6}", row.changes, row.requests, row.failed)
}

fn verdict(report: &SoakReport, args: &SoakArgs, proxy: &TestedProxy, seed: u64) -> u8 {
    println!("{} versions of objects, {} rules compared with a fresh proxy's", report.versions, report.rules);
    if report.broken.is_empty() {
        println!("all passed: no error, no failed request, no growth, the same rules");
        return 0;
    }
    for broken in &report.broken {
        println!("FAILED {broken}");
    }
    let (minutes, changes) = (args.minutes, args.changes);
    let mode = match args.mode {
        Mode::Iptables => String::new(),
        other => format!(" --mode {other}"),
    };
    let proxy = proxy.flag();
    println!("repeat with: svclab soak{mode}{proxy} --minutes {minutes} --changes {changes} --seed {seed}");
    FAILED
}
