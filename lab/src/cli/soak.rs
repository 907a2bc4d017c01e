//! `svclab soak`

use std::time::Duration;

use clap::Args;

use super::run::{interrupted, runtime};
use super::{BROKEN, Exit, LabArgs, UNABLE, find};
use crate::netns::sandbox;
use crate::scenario::PATIENCE;
use crate::scenario::file::Mode;
use crate::scenario::run::soak::{NodeRow, Row, SoakOptions, SoakReport, soak};
use crate::scenario::run::{RunOptions, StartError};

#[derive(Args)]
pub(super) struct SoakArgs {
    /// For how long.
    #[arg(long, default_value_t = 10.0, value_name = "MINUTES", value_parser = positive)]
    minutes: f64,
    /// Changes of objects in that time.
    #[arg(long, default_value_t = 20_000, value_name = "NUMBER")]
    changes: usize,
    /// A shell command on the first node before its rules are compared: for the test that shows that a soak can fail.
    #[arg(long = "break", hide = true, value_name = "COMMAND")]
    damage: Vec<String>,
    #[command(flatten)]
    lab: LabArgs,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= 100_000.0);
    number.ok_or_else(|| "expected a number of minutes, such as 10 or 0.25".to_owned())
}

pub(super) fn run(args: &SoakArgs) -> Result<u8, Exit> {
    let seed = args.lab.seed.one()?;
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())?;
    find::tools()?;
    let _inside = sandbox::enter().map_err(|error| Exit::unable(error.to_string()))?;
    let run = RunOptions {
        proxy,
        mode: Mode::Iptables,
        variant: args.lab.iptables_variant.into(),
        source: args.lab.source.into(),
        patience: PATIENCE,
        keep_going: false,
        breaks: Vec::new(),
        measure: false,
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
    let mut told = |row: &Row| {
        if std::mem::take(&mut head) {
            println!("{}", header(&row.nodes));
        }
        println!("{}", line(row));
    };
    let report = runtime()?.block_on(async {
        tokio::select! {
            report = soak(&options, &mut told) => report.map_err(|error| {
                let status = if matches!(error, StartError::Cluster(_)) { UNABLE } else { BROKEN };
                Exit { status, message: error.to_string() }
            }),
            () = interrupted() => Err(Exit { status: BROKEN, message: "interrupted".to_owned() }),
        }
    })?;
    Ok(verdict(&report, args, seed))
}

fn header(nodes: &[NodeRow]) -> String {
    let of =
        |node: &NodeRow| format!(" | {:>23} {:>4} {:>6}", format!("{}: syncs rss/KiB", node.node), "fds", "errors");
    let nodes: String = nodes.iter().map(of).collect();
    format!("{:>8} {:>8}{nodes} | {:>8} {:>6}", "time", "changes", "requests", "failed")
}

fn line(row: &Row) -> String {
    let of = |node: &NodeRow| format!(" | {:>13} {:>9} {:>4} {:>6}", node.syncs, node.rss, node.fds, node.errors);
    let nodes: String = row.nodes.iter().map(of).collect();
    let time = format!("{:.1} s", row.at.as_secs_f64());
    format!("{time:>8} {:>8}{nodes} | {:>8} {:>6}", row.changes, row.requests, row.failed)
}

fn verdict(report: &SoakReport, args: &SoakArgs, seed: u64) -> u8 {
    println!("{} versions of objects, {} rules compared with a fresh proxy's", report.versions, report.rules);
    if report.broken.is_empty() {
        println!("all kept: no error, no failed request, no growth, the same rules");
        return 0;
    }
    for broken in &report.broken {
        println!("BROKEN {broken}");
    }
    let (minutes, changes) = (args.minutes, args.changes);
    println!("repeat with: svclab soak --minutes {minutes} --changes {changes} --seed {seed}");
    BROKEN
}
