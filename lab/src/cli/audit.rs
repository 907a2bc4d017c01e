//! `svclab audit`: whether all rules of a node are right.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use svclab_audit::audit::{AuditOptions, Finding, Report, audit};
use svclab_audit::report;
use svclab_oracle::Mode;
use svclab_snapshot::Snapshot;
use svclab_snapshot::collect::{CollectOptions as Collecting, collect};

use super::changes::Standing;
use super::run_args::ModeArg;
use super::runtime::runtime;
use super::{Exit, FAILED, UNABLE, output};

// `conflicts_with` is beside `requires` because clap does not enforce a requirement that conflicts with another argument.
#[derive(Args)]
pub(super) struct AuditArgs {
    /// An archive of `svclab collect`; `-` is standard input.
    #[arg(value_name = "NODE.tar", required_unless_present = "live")]
    archive: Option<PathBuf>,
    /// This node, as it is now: collects as `svclab collect` does, and looks twice at what is wrong.
    #[arg(long, conflicts_with = "archive")]
    live: bool,
    /// Where the Kubernetes API is; default: as `svclab collect` finds it.
    #[arg(long, value_name = "FILE", requires = "live", conflicts_with = "archive")]
    kubeconfig: Option<PathBuf>,
    /// The name of this node's Node object.
    #[arg(long, value_name = "NAME", requires = "live", conflicts_with = "archive")]
    node_name: Option<String>,
    /// The proxy's KubeProxyConfiguration.
    #[arg(long, value_name = "FILE", requires = "live", conflicts_with = "archive")]
    proxy_config: Option<PathBuf>,
    /// Look every so many seconds, and audit again when objects or rules have changed.
    #[arg(long, value_name = "SECONDS", requires = "live", conflicts_with = "archive", num_args = 0..=1, default_missing_value = "30", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
    /// The proxy's mode, where its configuration does not say it or is not to be believed.
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<ModeArg>,
    /// Services that changed in the last so many seconds before the node was looked at are not judged: the proxy may not have applied it.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(i64).range(0..=86_400))]
    settle: i64,
    /// The report's form.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Write the report to a file, and a summary to standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// With every finding's way through the rules (other forms always have it).
    #[arg(long)]
    ways: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Junit,
    Sarif,
    Markdown,
    /// A page of one file for a browser.
    Html,
}

pub(super) fn run(args: &AuditArgs) -> Result<u8, Exit> {
    let options = AuditOptions { mode: args.mode.map(|mode| mode_of(mode.into())), settle_seconds: args.settle };
    let Some(path) = &args.archive else { return live(args, &options) };
    let snapshot = read(path)?;
    let report = audit(&snapshot, &options).map_err(|error| Exit::usage(format!("{}: {error}", path.display())))?;
    finish(args, &report)
}

fn mode_of(mode: crate::mode::Mode) -> Mode {
    use crate::mode::Mode as File;
    match mode {
        File::Iptables => Mode::Iptables,
        File::Ipvs => Mode::Ipvs,
        File::Nftables => Mode::Nftables,
        File::Userspace => Mode::Userspace,
    }
}

/// Reads an archive.
pub(super) fn read(path: &Path) -> Result<Snapshot, Exit> {
    let wrong = |why: &dyn std::fmt::Display| Exit::usage(format!("{}: {why}", path.display()));
    if path.as_os_str() == "-" {
        return Snapshot::read(std::io::stdin().lock()).map_err(|error| wrong(&error));
    }
    let file = File::open(path).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    Snapshot::read(BufReader::new(file)).map_err(|error| wrong(&error))
}

/// Writes the report, and says by the status what it is.
fn finish(args: &AuditArgs, report: &Report) -> Result<u8, Exit> {
    let text = rendered(args, report)?;
    match &args.output {
        None => output::write(Some(Path::new("-")), &text)?,
        Some(path) => {
            output::write(Some(path), &text)?;
            output::write(Some(Path::new("-")), &report::summary(report))?;
        }
    }
    Ok(match (report.is_clean(), report.judged()) {
        (false, _) => FAILED,
        (true, true) => 0,
        (true, false) => UNABLE,
    })
}

fn rendered(args: &AuditArgs, report: &Report) -> Result<String, Exit> {
    let json = |result: Result<String, serde_json::Error>| result.map_err(|error| Exit::unable(error.to_string()));
    Ok(match args.format {
        Format::Text => report::text(report, args.ways),
        Format::Html => report::html(report),
        Format::Markdown => report::markdown(report),
        Format::Junit => report::junit(report),
        Format::Json => json(report::json(report))?,
        Format::Sarif => json(serde_json::to_string_pretty(&report::sarif(report, env!("CARGO_PKG_VERSION"))))? + "\n",
    })
}

/// The node that the program runs on. What is wrong is looked at once more after the settling time: only what is wrong then, too, is told.
fn live(args: &AuditArgs, options: &AuditOptions) -> Result<u8, Exit> {
    let collecting = Collecting {
        kubeconfig: args.kubeconfig.clone(),
        node_name: args.node_name.clone(),
        proxy_config: args.proxy_config.clone(),
        ..Collecting::default()
    };
    let runtime = runtime()?;
    let gather = || runtime.block_on(collect(&collecting));
    // A sleep is made inside of the runtime, whose timer it needs.
    let wait = |time: Duration| runtime.block_on(async { tokio::time::sleep(time).await });
    let audited = |snapshot: &Snapshot| audit(snapshot, options).map_err(|error| Exit::unable(error.to_string()));
    let settle = Duration::from_secs(u64::try_from(options.settle_seconds).unwrap_or(0));
    let mut standing: Option<Standing> = None;
    loop {
        let snapshot = gather();
        let now = Standing::of(&snapshot);
        let mut status = 0;
        if standing.as_ref() != Some(&now) {
            let mut report = audited(&snapshot)?;
            if !report.is_clean() && !settle.is_zero() {
                wait(settle);
                let again = audited(&gather())?;
                let still: BTreeSet<_> = again.findings.iter().map(identity).collect();
                report.findings.retain(|finding| still.contains(&identity(finding)));
            }
            status = finish(args, &report)?;
            standing = Some(now);
        }
        let Some(seconds) = args.watch else { return Ok(status) };
        wait(Duration::from_secs(seconds));
    }
}

/// What a finding is about.
fn identity(finding: &Finding) -> (&'static str, String, &'static str, &'static str) {
    (finding.kind, finding.service.clone(), finding.protocol, finding.frontend)
}
