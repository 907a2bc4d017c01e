//! Runs the same scenarios with two proxies, one after the other.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use svclab_netns::sandbox;

use crate::compare::{self, Excused, Pair, ProxyComparison};
use crate::complete;
use crate::exit::{Exit, FAILED, UNABLE};
use crate::find;
use crate::mode::Mode;
use crate::report::ScenarioReport;
use crate::scenario::run::{EvidenceLevel, NoProgress, ObjectSource, ProxyUnderTest, RunOptions};
use crate::scenario::{self, IptablesVariant, Scenario};
use crate::schedule::output::{self, write_json};
use crate::schedule::{Starts, check_modes, excuse, runtime, stopped};

/// How long the idle proxies are observed after the first scenario in each mode, unless it has an `idle` step.
const REST: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(super) struct CompareArgs {
    /// One proxy: a program that is started as svcproxy is, a YAML file or a command that says how another proxy is started, or
    /// `svcproxy` for $SVCPROXY or the one beside this program.
    a: PathBuf,
    /// The other proxy.
    b: PathBuf,
    /// Scenario files, or names under scenarios/.
    #[arg(required = true, value_name = "FILE", add = complete::scenarios())]
    files: Vec<PathBuf>,
    /// Modes.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE", default_value = "iptables")]
    mode: Vec<Mode>,
    /// Which iptables the proxies use.
    #[arg(long, value_enum, default_value = "auto", value_name = "VARIANT")]
    iptables_variant: IptablesVariant,
    /// Decides cluster IPs and node ports that a scenario leaves open.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The most that a failing step waits, in milliseconds: for an answer, for nodes of the load balancer, for rules of a proxy
    /// that does not report what it has applied [default: 5 s, 15 s and 10 s]. A step's own `timeout` and `eventually` stay.
    #[arg(long, value_name = "MS")]
    patience: Option<u64>,
    /// Write the comparison and both reports as JSON (`-`: to standard output, in place of the text).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn compare(args: &CompareArgs) -> Result<u8, Exit> {
    let scenarios = find::load_all(&args.files, args.seed)?;
    let proxies = [proxy(&args.a)?, proxy(&args.b)?];
    proxies.iter().try_for_each(|proxy| check_modes(proxy, &args.mode))?;
    output::open([args.json.as_deref()])?;
    find::tools()?;
    let _inside = sandbox::enter().map_err(|error| Exit::unable(error.to_string()))?;
    let comparison = runtime()?.block_on(async {
        tokio::select! {
            comparison = all(args, &scenarios, &proxies) => Ok(comparison),
            stop = stopped() => Err(stop.exit()),
        }
    })?;
    if args.json.as_ref().is_none_or(|path| path.as_os_str() != "-") {
        print!("{}", compare::text(&comparison));
    }
    write_json(args.json.as_deref(), &compare::json(&comparison))?;
    Ok(status(&comparison))
}

fn proxy(named: &std::path::Path) -> Result<ProxyUnderTest, Exit> {
    let usual = named.as_os_str() == "svcproxy" && !named.is_file();
    find::proxy(Some(named).filter(|_| !usual), ObjectSource::Api)
}

fn status(comparison: &ProxyComparison) -> u8 {
    let reports = comparison.pairs.iter().flat_map(|pair| [&pair.a, &pair.b]);
    if reports.into_iter().any(|report| report.unable) {
        UNABLE
    } else if comparison.alike() {
        0
    } else {
        FAILED
    }
}

/// Returns the names of the proxies: file names if they differ, else paths.
fn names(args: &CompareArgs, [a, b]: &[ProxyUnderTest; 2]) -> [String; 2] {
    let name = |proxy: &ProxyUnderTest| match proxy {
        ProxyUnderTest::Own(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        ProxyUnderTest::Foreign(foreign) => foreign.title(),
    };
    let (short_a, short_b) = (name(a), name(b));
    if short_a == short_b && args.a != args.b {
        [args.a.display().to_string(), args.b.display().to_string()]
    } else {
        [short_a, short_b]
    }
}

async fn all(args: &CompareArgs, scenarios: &[Scenario], proxies: &[ProxyUnderTest; 2]) -> ProxyComparison {
    let mut comparison = ProxyComparison { names: names(args, proxies), ..ProxyComparison::default() };
    let mut starts = [Starts::default(), Starts::default()];
    for scenario in scenarios {
        for mode in Mode::WITH_OTHER.into_iter().filter(|mode| args.mode.contains(mode) && scenario.is_for(*mode)) {
            let named = proxies.iter().zip(&comparison.names).zip(&starts);
            let excused = named.map(|((proxy, proxy_name), starts)| {
                let reason = excuse(proxy, scenario, mode).or_else(|| starts.refusal(scenario, mode))?;
                let (scenario, mode) = (scenario.name.clone(), mode.to_string());
                Some(Excused { scenario, mode, proxy: proxy_name.clone(), reason })
            });
            if let Some(excused) = excused.flatten().next() {
                comparison.excused.push(excused);
                continue;
            }
            let [a, b] = proxies;
            let first = comparison.pairs.iter().all(|pair| pair.a.mode != mode.to_string());
            let rest = if first { REST } else { Duration::ZERO };
            let a = one(args, scenario, mode, a, &comparison.names[0], rest).await;
            let b = one(args, scenario, mode, b, &comparison.names[1], rest).await;
            starts.iter_mut().zip([&a, &b]).for_each(|(starts, report)| starts.record(scenario, mode, report));
            comparison.pairs.push(Pair { a, b });
        }
    }
    comparison
}

/// Runs a scenario to its last step, even after a failure.
async fn one(
    args: &CompareArgs,
    scenario: &Scenario,
    mode: Mode,
    proxy: &ProxyUnderTest,
    name: &str,
    rest: Duration,
) -> ScenarioReport {
    let options = RunOptions {
        proxy: proxy.clone(),
        proxy_given: None,
        mode,
        variant: args.iptables_variant,
        source: ObjectSource::Api,
        control_plane: None,
        patience: args.patience.map(Duration::from_millis),
        keep_going: true,
        measure: Some(rest),
        machine: None,
        breaks: Vec::new(),
        evidence: EvidenceLevel::Nothing,
        audit: false,
    };
    let report = scenario::run::run(scenario, &options, &mut NoProgress).await;
    let verdict = if report.passed() { "passed" } else { "FAILED" };
    eprintln!("{} ({mode})  {name}  {verdict} in {:.1} s", report.name, report.took.as_secs_f64());
    report
}
