mod cluster;
mod confirmation;
mod events;
mod heap;
mod http;
mod status;
mod watch;

use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use svclab_audit::audit::{AuditOptions, Report, audit};
use svclab_audit::{NodeError, report};
use svclab_sim::render::printable;
use svclab_snapshot::Snapshot;
use svclab_snapshot::collect::{CollectOptions as Collecting, collect};

use crate::exit::{Exit, FAILED, UNABLE};
use crate::find;
use crate::mode::Mode;
use crate::schedule::{output, runtime, stopped};
use watch::WatchOptions;

// `conflicts_with` is beside `requires` because clap does not enforce a requirement that conflicts with another argument.
/// The default of `--watch`, in seconds.
const PERIOD: u64 = 30;

#[derive(Args)]
pub(super) struct AuditArgs {
    /// An archive of `svclab collect`; `-` is standard input.
    #[arg(value_name = "NODE.tar", required_unless_present_any = ["live", "cluster"])]
    archive: Option<PathBuf>,
    /// One report of many nodes: a folder with an archive NODE.tar of each; `-` is a tar of these on standard input.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["archive", "live"])]
    cluster: Option<PathBuf>,
    /// Audit this node: collect as `svclab collect` does, and report only findings that a second look confirms.
    #[arg(long, conflicts_with = "archive")]
    live: bool,
    /// The kubeconfig for the Kubernetes API [default: as `svclab collect` finds it].
    #[arg(long, value_name = "FILE", requires = "live", conflicts_with = "archive")]
    kubeconfig: Option<PathBuf>,
    /// The name of this node's Node object.
    #[arg(long, value_name = "NAME", requires = "live", conflicts_with = "archive")]
    node_name: Option<String>,
    /// The proxy's KubeProxyConfiguration.
    #[arg(long, value_name = "FILE", requires = "live", conflicts_with = "archive")]
    proxy_config: Option<PathBuf>,
    /// Read the node every so many seconds, and audit it again when objects or rules have changed.
    #[arg(long, value_name = "SECONDS", requires = "live", conflicts_with = "archive", num_args = 0..=1, default_missing_value = "30", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
    /// With --watch (default 30): serve /metrics, /findings and /healthz there instead of printing reports.
    #[arg(long, value_name = "ADDR:PORT", requires = "live", conflicts_with_all = ["archive", "output", "format"], value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// With --watch or --listen: create a Kubernetes Event on a Service that this node breaks, one per finding.
    #[arg(long, requires = "live", conflicts_with = "archive")]
    events: bool,
    /// The proxy's mode, where its configuration lacks it or is wrong.
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<Mode>,
    /// The proxy's description, as `svclab run --proxy` takes it: its `tables` are the proxy's rules, others are another program's, and
    /// its `modes`, if it has one only, are the mode. Its programs need not be here.
    #[arg(long, value_name = "FILE")]
    proxy: Option<PathBuf>,
    /// Services that changed in the last so many seconds before the collection are not judged: the proxy may not have applied the change.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(i64).range(0..=86_400))]
    settle: i64,
    /// The report's form.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: AuditFormat,
    /// Write the report to a file, and a summary to standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show the way through the rules for every finding (other forms always do).
    #[arg(long)]
    ways: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuditFormat {
    Text,
    Json,
    Junit,
    Sarif,
    Markdown,
    /// A page of one file for a browser.
    Html,
}

pub(super) fn run(args: &AuditArgs) -> Result<u8, Exit> {
    let (only_mode, tables) = args.proxy.as_deref().map(find::described_for_audit).transpose()?.unwrap_or_default();
    let mode = args.mode.or(only_mode).map(Mode::of_oracle);
    let options = AuditOptions { mode, tables, settle_seconds: args.settle };
    if let Some(cluster) = &args.cluster {
        return cluster::run(cluster, &options, args.format, args.output.as_deref());
    }
    let Some(path) = &args.archive else { return live(args, &options) };
    let snapshot = read(path)?;
    let report = audit(&snapshot, &options).map_err(|error| {
        let said = format!("{}: {error}", path.display());
        if matches!(error, NodeError::Unread { .. }) { Exit::unable(said) } else { Exit::usage(said) }
    })?;
    finish(args, &report)
}

pub(super) fn read(path: &Path) -> Result<Snapshot, Exit> {
    let wrong = |why: &dyn std::fmt::Display| Exit::usage(format!("{}: {why}", path.display()));
    if path.as_os_str() == "-" {
        return Snapshot::read(std::io::stdin().lock()).map_err(|error| wrong(&error));
    }
    let file = File::open(path).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    Snapshot::read(BufReader::new(file)).map_err(|error| wrong(&error))
}

fn finish(args: &AuditArgs, report: &Report) -> Result<u8, Exit> {
    let text = rendered(args, report)?;
    match &args.output {
        None => output::write(Some(Path::new("-")), &text)?,
        Some(path) => {
            output::write(Some(path), &text)?;
            output::write(Some(Path::new("-")), &report::summary(report))?;
        }
    }
    Ok(match (report.is_clean(), report.is_complete()) {
        (false, _) => FAILED,
        (true, true) => 0,
        (true, false) => UNABLE,
    })
}

fn rendered(args: &AuditArgs, report: &Report) -> Result<String, Exit> {
    let json = |result: Result<String, serde_json::Error>| result.map_err(|error| Exit::unable(error.to_string()));
    Ok(match args.format {
        AuditFormat::Text => report::text(report, args.ways),
        AuditFormat::Html => report::html(report),
        AuditFormat::Markdown => report::markdown(report),
        AuditFormat::Junit => report::junit(report),
        AuditFormat::Json => json(report::json(report))?,
        AuditFormat::Sarif => {
            let sarif = report::sarif(report, env!("CARGO_PKG_VERSION"));
            printable(&json(serde_json::to_string_pretty(&sarif))?) + "\n"
        }
    })
}

/// Reports only findings that a second audit after the settling time confirms.
fn live(args: &AuditArgs, options: &AuditOptions) -> Result<u8, Exit> {
    let collecting = Collecting {
        kubeconfig: args.kubeconfig.clone(),
        node_name: args.node_name.clone(),
        proxy_config: args.proxy_config.clone(),
        ..Collecting::default()
    };
    let runtime = runtime()?;
    if let Some(seconds) = args.watch.or(args.listen.map(|_| PERIOD)) {
        let listener = args.listen.map(http::listen).transpose()?;
        let period = Duration::from_secs(seconds);
        let watched = WatchOptions { collect: collecting, audit: options.clone(), period, events: args.events };
        let print = |report: &Report| finish(args, report).map(drop);
        let ended = runtime.block_on(async {
            tokio::select! {
                ended = watch::watch(watched, listener, print) => ended,
                // The first process of a container is not ended by a signal that it does not handle.
                stop = stopped() => Err(stop.exit()),
            }
        });
        // Does not wait for an audit.
        runtime.shutdown_background();
        return ended;
    }
    if args.events {
        return Err(Exit::usage("--events needs --watch or --listen: a single audit creates no Events"));
    }
    let gather = || runtime.block_on(collect(&collecting));
    let audited = |snapshot: &Snapshot| audit(snapshot, options).map_err(|error| Exit::unable(error.to_string()));
    let settle = Duration::from_secs(u64::try_from(options.settle_seconds).unwrap_or(0));
    let mut report = audited(&gather())?;
    if !report.is_clean() && !settle.is_zero() {
        // `sleep` needs the runtime's timer.
        runtime.block_on(async { tokio::time::sleep(settle).await });
        let again = audited(&gather())?;
        report.findings.retain(|finding| again.findings.iter().any(|other| other.is_same(finding)));
    }
    finish(args, &report)
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let wrong = "not an address and a port, such as 127.0.0.1:10289, or [::]:10289 for every address";
    text.parse().map_err(|_| wrong.to_owned())
}
