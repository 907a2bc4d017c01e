//! `svclab run` in several modes: each where it can be run, one line for each at the end, and one report of all.
//!
//! A mode that needs a microVM where none can be had is told, and is no failure at a desk unless it was asked for.

use std::fmt::Write as _;

use serde_json::json;

use super::part::{Done, Part, Reports};
use super::place::Where;
use super::run::{RunArgs, Turn};
use super::{BROKEN, Exit, UNABLE, inside};
use crate::report::junit;
use crate::scenario::file::Mode;

/// What became of one mode in one place.
struct Line {
    mode: Mode,
    place: String,
    verdict: String,
}

/// Scenarios in one mode in one place, with how the place is called.
struct Piece<'a> {
    part: Part<'a>,
    place: String,
    /// Why not the host's kernel, as the end of a sentence.
    because: String,
    in_microvm: bool,
}

pub(super) fn run(args: &RunArgs, turns: &[Turn<'_>]) -> Result<u8, Exit> {
    let mut reports = Reports::new()?;
    let (mut worst, mut judged, mut lines, mut left_out) = (0, 0, Vec::new(), Vec::new());
    let must = !args.mode.is_empty() || std::env::var_os("CI").is_some();
    for piece in divide(args, turns)? {
        let not_run = if worst != 0 && !args.keep_going {
            Some(("another mode came to no good end; --keep-going goes on".to_owned(), false))
        } else {
            eprintln!("{} mode, on {}{}:", piece.part.mode, piece.place, piece.because);
            let microvm = piece.in_microvm.then(|| inside::try_out(args, &piece.part));
            microvm.and_then(Result::err).map(|why| (why.message, must))
        };
        let verdict = match not_run {
            Some((why, counts)) => {
                worst = if counts { UNABLE } else { worst };
                for scenario in &piece.part.scenarios {
                    reports.suite(junit::not_run(&scenario.name, &piece.part.mode.to_string(), &why, counts));
                    left_out
                        .push(json!({ "scenario": scenario.name, "mode": piece.part.mode.to_string(), "why": why }));
                }
                format!("not run: {why}")
            }
            None => {
                let done = reports.run(args, &piece.part)?;
                worst = worst.max(done.status);
                judged += done.scenarios.len();
                words(&done)
            }
        };
        lines.push(Line { mode: piece.part.mode, place: piece.place, verdict });
    }
    eprint!("{}", shown(&lines));
    if worst == 0 && judged == 0 {
        eprintln!("nothing was judged: no scenario could be run");
        worst = UNABLE;
    }
    reports.write(args, worst == 0, json!({ "notRun": left_out }))?;
    Ok(worst)
}

/// By mode and, within a mode, by place.
fn divide<'a>(args: &RunArgs, turns: &[Turn<'a>]) -> Result<Vec<Piece<'a>>, Exit> {
    let mut pieces: Vec<Piece<'a>> = Vec::new();
    for turn in turns {
        let (kernel, deterministic, place, because) = match args.vm.choose(std::slice::from_ref(turn))? {
            Where::Host => {
                args.lab.seed.one()?;
                ("host".to_owned(), false, format!("this machine's kernel, {}", release()), String::new())
            }
            Where::Inside(guest) => {
                let how = if guest.deterministic { "a deterministic microVM" } else { "a microVM" };
                (guest.kernel.to_string(), guest.deterministic, format!("{} in {how}", guest.kernel), guest.because)
            }
        };
        let fits =
            |part: &Part<'_>| part.mode == turn.mode && part.kernel == kernel && part.deterministic == deterministic;
        match pieces.iter_mut().find(|piece| fits(&piece.part)) {
            Some(piece) => piece.part.scenarios.push(turn.scenario),
            None => {
                let in_microvm = kernel != "host";
                let part = Part { kernel, deterministic, mode: turn.mode, scenarios: vec![turn.scenario] };
                pieces.push(Piece { part, place, because, in_microvm });
            }
        }
    }
    // What is quick, and needs nothing of the network, comes first.
    pieces.sort_by_key(|piece| (piece.in_microvm, piece.part.mode));
    Ok(pieces)
}

/// The release of the host's kernel.
fn release() -> String {
    let name = nix::sys::utsname::uname();
    name.map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default()
}

fn words(done: &Done) -> String {
    let seconds: f64 = done.scenarios.iter().filter_map(|one| one["seconds"].as_f64()).sum();
    let broken: Vec<&str> =
        done.scenarios.iter().filter(|one| one["passed"] != true).filter_map(|one| one["name"].as_str()).collect();
    let kept = done.scenarios.len() - broken.len();
    match (done.status, &done.scenarios[..]) {
        (0, []) => "not run: the proxy is excused".to_owned(),
        (0, [_]) => format!("kept in {seconds:.1} s"),
        (0, all) => format!("{} kept in {seconds:.1} s", all.len()),
        (BROKEN, [_]) => format!("BROKEN in {seconds:.1} s"),
        (BROKEN, [_, ..]) => format!("{kept} kept, BROKEN: {}, in {seconds:.1} s", broken.join(", ")),
        (status, _) => format!("could not be run, status {status}: see above"),
    }
}

/// A line per mode and place.
fn shown(lines: &[Line]) -> String {
    let width = |of: fn(&Line) -> usize| lines.iter().map(of).max().unwrap_or_default();
    let (modes, places) = (width(|line| line.mode.to_string().len()), width(|line| line.place.len()));
    let mut text = String::new();
    for Line { mode, place, verdict } in lines {
        let _ = writeln!(text, "{:<modes$}  {place:<places$}  {verdict}", mode.to_string());
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
        let kept = json!({ "name": "a", "passed": true, "seconds": 1.25 });
        let broken = json!({ "name": "b", "passed": false, "seconds": 2.0 });
        for (done, says) in [
            (done(0, json!([kept])), "kept in 1.2 s"),
            (done(0, json!([kept, kept])), "2 kept in 2.5 s"),
            (done(1, json!([broken])), "BROKEN in 2.0 s"),
            (done(1, json!([kept, broken])), "1 kept, BROKEN: b, in 3.2 s"),
            (done(3, json!([])), "could not be run, status 3: see above"),
        ] {
            assert_eq!(words(&done), says);
        }
        let line = |mode, place: &str, verdict: &str| Line { mode, place: place.into(), verdict: verdict.into() };
        let lines = [line(Mode::Iptables, "here", "kept"), line(Mode::Ipvs, "a microVM", "not run: no network")];
        assert_eq!(shown(&lines), "iptables  here       kept\nipvs      a microVM  not run: no network\n");
    }
}
