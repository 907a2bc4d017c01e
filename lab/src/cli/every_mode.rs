//! `svclab run` in several modes: each where it can be run, one line for each at the end, and one report of all.
//!
//! A mode that needs a microVM where none can be had is told, and is no failure at a desk unless it was asked for.

use std::fmt::Write as _;

use serde_json::json;

use super::batch::{Batch, Done, Reports};
use super::jobs::Job;
use super::place::Where;
use super::run_args::RunArgs;
use super::{Exit, FAILED, UNABLE, in_microvm, stop};
use crate::report::junit;
use crate::report::terminal::counted;

/// What became of one mode in one place.
struct Line {
    mode: String,
    place: String,
    verdict: String,
    passed: bool,
}

/// Scenarios in one mode in one place, with how the place is called.
struct PlacedBatch<'a> {
    batch: Batch<'a>,
    place: String,
    /// Why not the host's kernel, as the end of a sentence.
    because: String,
    in_microvm: bool,
}

pub(super) fn run(args: &RunArgs, jobs: &[Job<'_>]) -> Result<u8, Exit> {
    stop::watch()?;
    let mut reports = Reports::new()?;
    let (mut lines, mut left_out) = (Vec::new(), Vec::new());
    let must = !args.mode.is_empty() || std::env::var_os("CI").is_some();
    for batch in divide(args, jobs)? {
        if stop::stop().is_some() {
            break;
        }
        let not_run = if reports.worst != 0 && !args.keep_going {
            Some(("another mode came to no good end; --keep-going goes on".to_owned(), false))
        } else {
            args.notice(&format!("{} mode, on {}{}:", batch.batch.mode, batch.place, batch.because));
            let microvm = batch.in_microvm.then(|| match args.control_plane {
                Some(_) => Err(Exit::unable("--control-plane is for this machine's kernel")),
                None => in_microvm::try_out(args, &batch.batch),
            });
            microvm.and_then(Result::err).map(|why| (why.message, must))
        };
        let (verdict, passed) = match not_run {
            Some((why, counts)) => {
                reports.worst = if counts { UNABLE } else { reports.worst };
                for scenario in &batch.batch.scenarios {
                    reports.suite(junit::not_run(&scenario.name, &batch.batch.mode.to_string(), &why, counts));
                    left_out
                        .push(json!({ "scenario": scenario.name, "mode": batch.batch.mode.to_string(), "why": why }));
                }
                (format!("not run: {why}"), false)
            }
            None => {
                let done = reports.run(args, &batch.batch)?;
                (words(&done), done.status == 0)
            }
        };
        lines.push(Line { mode: batch.batch.mode.to_string(), place: batch.place, verdict, passed });
    }
    let lines = if args.quiet { failed(lines) } else { lines };
    shown(&lines).lines().for_each(|line| args.stream().line(line));
    reports.finish(args, json!({ "notRun": left_out }))
}

/// By mode and, within a mode, by place.
fn divide<'a>(args: &RunArgs, jobs: &[Job<'a>]) -> Result<Vec<PlacedBatch<'a>>, Exit> {
    let mut placed: Vec<PlacedBatch<'a>> = Vec::new();
    for job in jobs {
        let (kernel, deterministic, place, because) = match args.vm.choose(std::slice::from_ref(job))? {
            Where::Host => {
                args.lab.seed.one()?;
                ("host".to_owned(), false, format!("this machine's kernel, {}", release()), String::new())
            }
            Where::Inside(guest) => {
                let how = if guest.deterministic { "a deterministic microVM" } else { "a microVM" };
                (guest.kernel.to_string(), guest.deterministic, format!("{} in {how}", guest.kernel), guest.because)
            }
        };
        let fits = |batch: &Batch<'_>| {
            batch.mode == job.mode && batch.kernel == kernel && batch.deterministic == deterministic
        };
        match placed.iter_mut().find(|batch| fits(&batch.batch)) {
            Some(batch) => batch.batch.scenarios.push(job.scenario),
            None => {
                let in_microvm = kernel != "host";
                let batch = Batch { kernel, deterministic, mode: job.mode, scenarios: vec![job.scenario] };
                placed.push(PlacedBatch { batch, place, because, in_microvm });
            }
        }
    }
    // What is quick, and needs nothing of the network, comes first.
    placed.sort_by_key(|batch| (batch.in_microvm, batch.batch.mode));
    Ok(placed)
}

/// The release of the host's kernel.
fn release() -> String {
    let name = nix::sys::utsname::uname();
    name.map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default()
}

fn words(done: &Done) -> String {
    let seconds: f64 = done.scenarios.iter().filter_map(|one| one["seconds"].as_f64()).sum();
    let is_virtual = done.scenarios.iter().any(|one| one["machine"]["deterministic"] == true);
    let time = format!("{seconds:.1} s{}", if is_virtual { " of virtual time" } else { "" });
    let broken: Vec<&str> =
        done.scenarios.iter().filter(|one| one["passed"] != true).filter_map(|one| one["name"].as_str()).collect();
    let passed = done.scenarios.len() - broken.len();
    match (done.status, &done.scenarios[..]) {
        (0, []) => "not run: the proxy is excused".to_owned(),
        (0, _) if done.judged() == 0 => "not judged: no step was carried out".to_owned(),
        (0, [_]) => format!("passed in {time}"),
        (0, all) => format!("{} passed in {time}", all.len()),
        (FAILED, [_]) => format!("FAILED in {time}"),
        (FAILED, [_, ..]) => format!("{passed} passed, FAILED: {}, in {time}", broken.join(", ")),
        (status, _) => format!("could not be run, status {status}: see above"),
    }
}

/// Those that did not pass and, if that is none, one that says so.
fn failed(lines: Vec<Line>) -> Vec<Line> {
    let modes = lines.len();
    let failed: Vec<Line> = lines.into_iter().filter(|line| !line.passed).collect();
    if failed.is_empty() {
        let all = counted(modes, "mode");
        return vec![Line { mode: all, place: String::new(), verdict: "all passed".to_owned(), passed: true }];
    }
    failed
}

/// A line per mode and place.
fn shown(lines: &[Line]) -> String {
    let width = |of: fn(&Line) -> usize| lines.iter().map(of).max().unwrap_or_default();
    let (modes, places) = (width(|line| line.mode.len()), width(|line| line.place.len()));
    let mut text = String::new();
    for Line { mode, place, verdict, .. } in lines {
        let _ = writeln!(text, "{mode:<modes$}  {place:<places$}  {verdict}");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn done(status: u8, scenarios: Value) -> Done {
        Done { status, scenarios: scenarios.as_array().cloned().unwrap_or_default() }
    }

    #[test]
    fn a_line_says_mode_kernel_and_verdict() {
        let passed = json!({ "name": "a", "passed": true, "judged": true, "seconds": 1.25 });
        let broken = json!({ "name": "b", "passed": false, "seconds": 2.0 });
        let unjudged = json!({ "name": "c", "passed": true, "judged": false, "seconds": 1.0 });
        for (done, says) in [
            (done(0, json!([unjudged])), "not judged: no step was carried out"),
            (done(0, json!([passed])), "passed in 1.2 s"),
            (done(0, json!([passed, passed])), "2 passed in 2.5 s"),
            (done(1, json!([broken])), "FAILED in 2.0 s"),
            (done(1, json!([passed, broken])), "1 passed, FAILED: b, in 3.2 s"),
            (done(3, json!([])), "could not be run, status 3: see above"),
        ] {
            assert_eq!(words(&done), says);
        }
        let line = |mode: &str, place: &str, verdict: &str, passed| Line {
            mode: mode.into(),
            place: place.into(),
            verdict: verdict.into(),
            passed,
        };
        let lines =
            || vec![line("iptables", "here", "passed", true), line("ipvs", "a microVM", "not run: no network", false)];
        assert_eq!(shown(&lines()), "iptables  here       passed\nipvs      a microVM  not run: no network\n");
        assert_eq!(shown(&failed(lines())), "ipvs  a microVM  not run: no network\n");
        assert_eq!(
            shown(&failed(lines()[..1].iter().map(|one| line(&one.mode, "", "", true)).collect())),
            "1 mode    all passed\n"
        );
    }
}
