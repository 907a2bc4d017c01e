use std::path::{Path, PathBuf};

use clap::{Args, Parser};

use crate::bundle::{BundleStep, SCENARIO};
use crate::console::Stream;
use crate::exit::Exit;
use crate::report::{RunRecord, SIMULATED, ScenarioRecord};
use crate::schedule::child::{self, ChildOutput};
use crate::schedule::{self, RunArgs, signals};

#[derive(Args)]
pub(super) struct ReplayArgs {
    /// A report of `svclab run --json`, or the bundle of a failed step, whose scenario is run.
    #[arg(value_name = "REPORT|BUNDLE")]
    report: PathBuf,
    /// Only this scenario.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// The service proxy, as `svclab run` takes it [default: the one of the report].
    #[arg(long, value_name = "PROXY")]
    proxy: Option<String>,
    /// Write the report of the first run as JSON (`-`: to standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Parser)]
#[command(name = "svclab run", no_binary_name = true)]
struct RunLine {
    #[command(flatten)]
    run: RunArgs,
}

pub(super) fn replay(args: &ReplayArgs) -> Result<u8, Exit> {
    let lines = lines(&args.report, args.scenario.as_deref(), args.proxy.is_none())?;
    let (mut status, are_several) = (0, lines.len() > 1);
    if are_several {
        signals::watch()?;
    }
    for (number, mut line) in lines.into_iter().enumerate() {
        line.extend(args.proxy.iter().flat_map(|proxy| ["--proxy".to_owned(), proxy.clone()]));
        if let Some(json) = args.json.as_ref().filter(|_| number == 0) {
            line.extend(["--json".to_owned(), json.display().to_string()]);
        }
        eprintln!("svclab run {}", shlex::try_join(line.iter().map(String::as_str)).unwrap_or_default());
        let parsed = RunLine::try_parse_from(&line);
        let RunLine { run } = parsed.map_err(|error| Exit::usage(format!("{}: {error}", args.report.display())))?;
        if let Some(stop) = signals::stop() {
            return Err(stop.exit());
        }
        // A run on the host's kernel ends its process, so each run has its own process.
        let output = ChildOutput::To(Stream::Out);
        status = status.max(if are_several { child::run(&run, output, None)? } else { schedule::run(&run)? });
    }
    Ok(status)
}

/// Returns each run's arguments; selects all scenarios if none failed. `own_proxy`: with the proxy of the report.
fn lines(report: &Path, only: Option<&str>, own_proxy: bool) -> Result<Vec<Vec<String>>, Exit> {
    let wrong = |problem: &str| Exit::usage(format!("{}: {problem}", report.display()));
    if report.is_dir() {
        return in_bundle(report, own_proxy).map(|line| vec![line]);
    }
    let run = RunRecord::read(report).map_err(Exit::usage)?;
    let named = |scenario: &&ScenarioRecord| only.is_none_or(|only| scenario.name == only);
    let (passed, failed): (Vec<_>, Vec<_>) = run.scenarios.iter().filter(named).partition(|scenario| scenario.passed);
    let again = if failed.is_empty() { passed } else { failed };
    if again.is_empty() {
        return Err(wrong("it tells of no such scenario"));
    }
    again
        .into_iter()
        .map(|scenario| {
            if scenario.path.is_empty() || scenario.mode.is_empty() {
                return Err(wrong("a scenario lacks `path` or `mode`"));
            }
            let mut line = line(scenario, own_proxy);
            if !scenario.text.is_empty() {
                line.extend(["--from-report".to_owned(), report.display().to_string()]);
            }
            Ok(line)
        })
        .collect()
}

fn in_bundle(bundle: &Path, own_proxy: bool) -> Result<Vec<String>, Exit> {
    let failure = BundleStep::read(bundle).map_err(|error| Exit::usage(error.to_string()))?;
    let record = ScenarioRecord {
        path: bundle.join(SCENARIO).display().to_string(),
        mode: failure.mode,
        iptables_variant: failure.iptables_variant,
        seed: failure.seed,
        machine: failure.machine,
        audited: failure.audited,
        proxy: failure.proxy,
        ..ScenarioRecord::default()
    };
    Ok(line(&record, own_proxy))
}

fn line(scenario: &ScenarioRecord, own_proxy: bool) -> Vec<String> {
    let mut line = vec![scenario.path.clone()];
    let mut flag = |name: &str, value: String| line.extend([name.to_owned(), value]);
    flag("--seed", scenario.seed.to_string());
    flag("--mode", scenario.mode.clone());
    if let Some(given) = scenario.proxy.given.as_ref().filter(|_| own_proxy) {
        flag("--proxy", given.clone());
    }
    if scenario.iptables_variant == SIMULATED {
        line.push("--simulate".to_owned());
        return line;
    }
    flag("--iptables-variant", scenario.iptables_variant.clone());
    line.extend(scenario.audited.then(|| "--audit".to_owned()));
    let machine = scenario.machine.as_ref();
    line.extend(["--kernel".to_owned(), machine.map_or("host", |machine| &machine.kernel).to_owned()]);
    line.extend(machine.filter(|machine| machine.deterministic).map(|_| "--deterministic".to_owned()));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }

    #[test]
    fn failed_scenarios_are_run_with_their_flags() {
        let file = report(
            r#"{"scenarios": [
                {"name": "a", "path": "a.yaml", "mode": "iptables", "iptablesVariant": "auto", "seed": 1, "passed": true, "machine": null},
                {"name": "s", "path": "s.yaml", "mode": "ipvs", "iptablesVariant": "simulated", "seed": 2, "passed": true, "machine": null},
                {"name": "b", "path": "b c.yaml", "mode": "iptables", "iptablesVariant": "legacy", "seed": 7, "passed": false, "audited": true,
                 "machine": {"kernel": "debian-6.12", "deterministic": true, "image": "x"}}]}"#,
        );
        let lines_of = |only| lines(file.path(), only, true).map_err(|exit| exit.message);
        let b =
            "b c.yaml|--seed|7|--mode|iptables|--iptables-variant|legacy|--audit|--kernel|debian-6.12|--deterministic";
        assert_eq!(lines_of(None).unwrap().iter().map(|line| line.join("|")).collect::<Vec<_>>(), [b]);
        let a = "a.yaml|--seed|1|--mode|iptables|--iptables-variant|auto|--kernel|host";
        assert_eq!(lines_of(Some("a")).unwrap()[0].join("|"), a);
        assert_eq!(lines_of(Some("s")).unwrap()[0].join("|"), "s.yaml|--seed|2|--mode|ipvs|--simulate");
        assert!(lines_of(Some("c")).unwrap_err().contains("no such scenario"));
        for line in lines_of(None).unwrap() {
            assert!(RunLine::try_parse_from(line).is_ok());
        }
    }

    #[test]
    fn the_proxy_of_the_report_is_run_unless_another_is_named() {
        let file = report(
            r#"{"scenarios": [{"name": "a", "path": "a.yaml", "mode": "ipvs", "iptablesVariant": "auto", "seed": 1, "passed": false,
                "proxy": {"name": "kube-proxy", "version": "1.36.2", "given": "my proxy.yaml"}}]}"#,
        );
        let line = |own| lines(file.path(), None, own).map_err(|exit| exit.message).unwrap().remove(0);
        assert_eq!(line(true)[5..7], ["--proxy", "my proxy.yaml"]);
        assert!(!line(false).contains(&"--proxy".to_owned()));
    }

    #[test]
    fn a_file_that_is_no_report_is_an_error() {
        for text in ["", "{}", r#"{"scenarios": [{"passed": false}]}"#] {
            assert!(lines(report(text).path(), None, true).is_err(), "{text}");
        }
    }
}
