//! `svclab replay`

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, Parser};
use serde_json::Value;

use super::run::run;
use super::run_args::RunArgs;
use super::{Exit, UNABLE, recorded, stop};
use crate::bundle::{BundleStep, SCENARIO};
use crate::report::SIMULATED;

#[derive(Args)]
pub(super) struct ReplayArgs {
    /// A report that `svclab run --json` wrote, or the bundle of a failed step: the scenario in it is run.
    #[arg(value_name = "REPORT|BUNDLE")]
    report: PathBuf,
    /// Only this scenario.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Write the report of the first repeated run as JSON (`-`: to standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// `svclab run`, read from what a report tells.
#[derive(Parser)]
#[command(name = "svclab run", no_binary_name = true)]
struct Again {
    #[command(flatten)]
    run: RunArgs,
}

pub(super) fn replay(args: &ReplayArgs) -> Result<u8, Exit> {
    let lines = lines(&args.report, args.scenario.as_deref())?;
    let (mut status, several) = (0, lines.len() > 1);
    if several {
        stop::watch()?;
    }
    for (number, mut line) in lines.into_iter().enumerate() {
        if let Some(json) = args.json.as_ref().filter(|_| number == 0) {
            line.extend(["--json".to_owned(), json.display().to_string()]);
        }
        eprintln!("svclab run {}", line.join(" "));
        let again =
            Again::try_parse_from(&line).map_err(|error| Exit::usage(format!("{}: {error}", args.report.display())))?;
        // A run on the host's kernel does not come back, only its exit status does: each of several is a process of its own.
        if let Some(stop) = stop::stop() {
            return Err(stop.exit());
        }
        status = status.max(if several { apart(&line)? } else { run(&again.run)? });
    }
    Ok(status)
}

/// The same in another process.
fn apart(line: &[String]) -> Result<u8, Exit> {
    let unable = |error: std::io::Error| Exit::unable(format!("cannot run svclab: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(unable)?);
    command.arg("run").args(line).stdin(Stdio::null());
    svclab_netns::die_with_this_process(&mut command);
    let status = stop::status(&mut command).map_err(unable)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(UNABLE))
}

/// The arguments of `svclab run` for what broke in a report, or for all of it if nothing did.
fn lines(report: &Path, only: Option<&str>) -> Result<Vec<Vec<String>>, Exit> {
    let wrong = |problem: String| Exit::usage(format!("{}: {problem}", report.display()));
    if report.is_dir() {
        return in_bundle(report).map(|line| vec![line]);
    }
    let value = recorded::report(report)?;
    let scenarios = value["scenarios"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |scenario: &&Value| only.is_none_or(|only| scenario["name"] == only);
    let chosen: Vec<&Value> = scenarios.iter().filter(named).collect();
    let broken: Vec<&Value> = chosen.iter().copied().filter(|scenario| scenario["passed"] != true).collect();
    let again = if broken.is_empty() { chosen } else { broken };
    if again.is_empty() {
        return Err(wrong("it tells of no such scenario".to_owned()));
    }
    again
        .into_iter()
        .map(|scenario| {
            let mut line = line(scenario).ok_or_else(|| wrong("a scenario lacks `path` or `seed`".to_owned()))?;
            if scenario["text"].is_string() {
                line.extend(["--from-report".to_owned(), report.display().to_string()]);
            }
            Ok(line)
        })
        .collect()
}

/// The scenario in a bundle, as it was run.
fn in_bundle(bundle: &Path) -> Result<Vec<String>, Exit> {
    let failure = BundleStep::read(bundle).map_err(|error| Exit::usage(error.to_string()))?;
    let wrong = || Exit::usage(format!("{}: it does not say how it was run", bundle.display()));
    let own = BundleStep { path: bundle.join(SCENARIO).display().to_string(), ..failure };
    serde_json::to_value(own).ok().as_ref().and_then(line).ok_or_else(wrong)
}

fn line(scenario: &Value) -> Option<Vec<String>> {
    let mut line = vec![scenario["path"].as_str()?.to_owned(), "--seed".to_owned(), scenario["seed"].to_string()];
    scenario["seed"].as_u64()?;
    line.extend(["--mode".to_owned(), scenario["mode"].as_str()?.to_owned()]);
    let variant = scenario["iptablesVariant"].as_str()?;
    if variant == SIMULATED {
        line.push("--simulate".to_owned());
        return Some(line);
    }
    line.extend(["--iptables-variant".to_owned(), variant.to_owned()]);
    line.extend((scenario["audited"] == true).then(|| "--audit".to_owned()));
    let machine: Option<crate::report::MicroVm> = serde_json::from_value(scenario["machine"].clone()).ok()?;
    let kernel = machine.as_ref().map_or("host", |machine| &machine.kernel);
    line.extend(["--kernel".to_owned(), kernel.to_owned()]);
    line.extend(machine.filter(|machine| machine.deterministic).map(|_| "--deterministic".to_owned()));
    Some(line)
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
    fn what_broke_is_run_again_as_it_was() {
        let file = report(
            r#"{"scenarios": [
                {"name": "a", "path": "a.yaml", "mode": "iptables", "iptablesVariant": "auto", "seed": 1, "passed": true, "machine": null},
                {"name": "s", "path": "s.yaml", "mode": "ipvs", "iptablesVariant": "simulated", "seed": 2, "passed": true, "machine": null},
                {"name": "b", "path": "b c.yaml", "mode": "iptables", "iptablesVariant": "legacy", "seed": 7, "passed": false, "audited": true,
                 "machine": {"kernel": "debian-6.12", "deterministic": true, "image": "x"}}]}"#,
        );
        let lines_of = |only| lines(file.path(), only).map_err(|exit| exit.message);
        let b =
            "b c.yaml|--seed|7|--mode|iptables|--iptables-variant|legacy|--audit|--kernel|debian-6.12|--deterministic";
        assert_eq!(lines_of(None).unwrap().iter().map(|line| line.join("|")).collect::<Vec<_>>(), [b]);
        let a = "a.yaml|--seed|1|--mode|iptables|--iptables-variant|auto|--kernel|host";
        assert_eq!(lines_of(Some("a")).unwrap()[0].join("|"), a);
        assert_eq!(lines_of(Some("s")).unwrap()[0].join("|"), "s.yaml|--seed|2|--mode|ipvs|--simulate");
        assert!(lines_of(Some("c")).unwrap_err().contains("no such scenario"));
        for line in lines_of(None).unwrap() {
            assert!(Again::try_parse_from(line).is_ok());
        }
    }

    #[test]
    fn what_is_no_report_is_told() {
        for text in ["", "{}", r#"{"scenarios": [{"passed": false}]}"#] {
            assert!(lines(report(text).path(), None).is_err(), "{text}");
        }
    }
}
