//! Several modes: a batch per mode and kernel, one report. Without microVMs, a mode fails only in CI or if the user
//! named it.

use super::args::RunArgs;
use super::batch::{BatchResult, CombinedReport, RunBatch};
use super::job::Job;
use super::target::RunTarget;
use super::{microvm, signals};
use crate::exit::{Exit, FAILED, UNABLE};
use crate::report::NotRunRecord;
use crate::report::terminal::counted;

struct BatchLine {
    mode: String,
    place: String,
    verdict: String,
    passed: bool,
}

pub(super) fn run(args: &RunArgs, jobs: &[Job<'_>]) -> Result<u8, Exit> {
    signals::watch()?;
    let mut combined = CombinedReport::new()?;
    let (mut lines, mut not_run) = (Vec::new(), Vec::new());
    let must = !args.mode.is_empty() || std::env::var_os("CI").is_some();
    for batch in divide(args, jobs)? {
        if signals::stop().is_some() {
            break;
        }
        let (mode, place) = (batch.mode.to_string(), place(&batch.target));
        let refused = if combined.worst != 0 && !args.keep_going {
            Some(("an earlier mode failed; use --keep-going to continue".to_owned(), false))
        } else {
            let because = batch.target.guest().map_or("", |guest| &guest.because);
            args.notice(&format!("{mode} mode, on {place}{because}:"));
            try_out(args, &batch).err().map(|why| (why.message, must))
        };
        let (verdict, passed) = match refused {
            Some((why, is_failure)) => {
                combined.worst = if is_failure { UNABLE } else { combined.worst };
                not_run.extend(batch.scenarios.iter().map(|scenario| NotRunRecord {
                    scenario: scenario.name.clone(),
                    mode: mode.clone(),
                    why: why.clone(),
                    is_failure,
                }));
                (format!("not run: {why}"), false)
            }
            None => {
                let result = combined.run(args, &batch)?;
                (words(&result), result.status == 0)
            }
        };
        lines.push(BatchLine { mode, place, verdict, passed });
    }
    let lines = if args.quiet { failed(lines) } else { lines };
    shown(&lines).iter().for_each(|line| args.stream().line(line));
    combined.not_run = Some(not_run);
    combined.finish(args)
}

/// Divides jobs into batches. Batches on the host's kernel come first: they are fast and need no network.
fn divide<'a>(args: &RunArgs, jobs: &[Job<'a>]) -> Result<Vec<RunBatch<'a>>, Exit> {
    let mut batches: Vec<RunBatch<'a>> = Vec::new();
    for job in jobs {
        let target = args.vm.target(std::slice::from_ref(job))?;
        if target == RunTarget::Host {
            args.lab.seed.one()?;
        }
        RunBatch::add(&mut batches, target, job.mode, job.scenario);
    }
    batches.sort_by_key(|batch| (batch.target.guest().is_some(), batch.mode));
    Ok(batches)
}

/// Fetches and builds the batch's microVM, if any.
fn try_out(args: &RunArgs, batch: &RunBatch<'_>) -> Result<(), Exit> {
    match batch.target.guest() {
        None => Ok(()),
        Some(guest) if args.control_plane.is_some() => Err(super::no_control_plane(guest)),
        Some(guest) => microvm::try_out(args, guest, batch),
    }
}

fn place(target: &RunTarget) -> String {
    match target {
        RunTarget::Host => {
            let name = nix::sys::utsname::uname();
            let release = name.map(|name| name.release().to_string_lossy().into_owned());
            format!("this machine's kernel, {}", release.unwrap_or_default())
        }
        RunTarget::Guest(guest) if guest.deterministic => format!("{} in a deterministic microVM", guest.kernel),
        RunTarget::Guest(guest) => format!("{} in a microVM", guest.kernel),
    }
}

fn words(result: &BatchResult) -> String {
    let scenarios = &result.scenarios;
    let seconds: f64 = scenarios.iter().map(|one| one.seconds).sum();
    let is_virtual = scenarios.iter().any(|one| one.machine.as_ref().is_some_and(|machine| machine.deterministic));
    let time = format!("{seconds:.1} s{}", if is_virtual { " of virtual time" } else { "" });
    let broken: Vec<&str> = scenarios.iter().filter(|one| !one.passed).map(|one| one.name.as_str()).collect();
    let passed = scenarios.len() - broken.len();
    match (result.status, &scenarios[..]) {
        (0, []) => "not run: the proxy is excused".to_owned(),
        (0, _) if !result.is_judged() => "not judged: no step was carried out".to_owned(),
        (0, [_]) => format!("passed in {time}"),
        (0, all) => format!("{} passed in {time}", all.len()),
        (FAILED, [_]) => format!("FAILED in {time}"),
        (FAILED, [_, ..]) => format!("{passed} passed, FAILED: {}, in {time}", broken.join(", ")),
        (status, _) => format!("could not be run, status {status}: see above"),
    }
}

/// Returns the failed batches, or one line that all passed.
fn failed(lines: Vec<BatchLine>) -> Vec<BatchLine> {
    let modes = lines.len();
    let failed: Vec<BatchLine> = lines.into_iter().filter(|line| !line.passed).collect();
    if failed.is_empty() {
        let all = counted(modes, "mode");
        return vec![BatchLine { mode: all, place: String::new(), verdict: "all passed".to_owned(), passed: true }];
    }
    failed
}

fn shown(lines: &[BatchLine]) -> Vec<String> {
    let width = |of: fn(&BatchLine) -> usize| lines.iter().map(of).max().unwrap_or_default();
    let (modes, places) = (width(|line| line.mode.len()), width(|line| line.place.len()));
    let line =
        |BatchLine { mode, place, verdict, .. }: &BatchLine| format!("{mode:<modes$}  {place:<places$}  {verdict}");
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ScenarioRecord;

    #[test]
    fn a_line_has_mode_kernel_and_verdict() {
        let scenario = |name: &str, passed: bool, judged: bool, seconds: f64| {
            let name = name.to_owned();
            ScenarioRecord { name, passed, judged, seconds, ..ScenarioRecord::default() }
        };
        let passed = || scenario("a", true, true, 1.25);
        let broken = || scenario("b", false, true, 2.0);
        for (status, scenarios, expected) in [
            (0, vec![scenario("c", true, false, 1.0)], "not judged: no step was carried out"),
            (0, vec![passed()], "passed in 1.2 s"),
            (0, vec![passed(), passed()], "2 passed in 2.5 s"),
            (1, vec![broken()], "FAILED in 2.0 s"),
            (1, vec![passed(), broken()], "1 passed, FAILED: b, in 3.2 s"),
            (3, vec![], "could not be run, status 3: see above"),
        ] {
            assert_eq!(words(&BatchResult { status, scenarios, ..BatchResult::default() }), expected);
        }
        let line = |mode: &str, place: &str, verdict: &str, passed| {
            let [mode, place, verdict] = [mode, place, verdict].map(str::to_owned);
            BatchLine { mode, place, verdict, passed }
        };
        let not_run = || line("ipvs", "a microVM", "not run: no network", false);
        let lines = || vec![line("iptables", "here", "passed", true), not_run()];
        assert_eq!(shown(&lines()), ["iptables  here       passed", "ipvs      a microVM  not run: no network"]);
        assert_eq!(shown(&failed(lines())), ["ipvs  a microVM  not run: no network"]);
        assert_eq!(shown(&failed(vec![line("iptables", "", "", true)])), ["1 mode    all passed"]);
    }
}
