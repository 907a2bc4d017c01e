//! `svclab exec`

use std::os::unix::process::ExitStatusExt;

use clap::Args;
use svclab_netns::enter::{self, Running};

use super::Exit;

#[derive(Args)]
pub(super) struct ExecArgs {
    /// Where: node/NAME, pod/NAME, pod/NAMESPACE/NAME, client/NAME, or just the name.
    place: String,
    /// Process id of the lab, if more than one is up.
    #[arg(long)]
    pid: Option<i32>,
    /// What to run there.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn exec(args: &ExecArgs) -> Result<u8, Exit> {
    let running = enter::running();
    let place = choose(&running, &args.place, args.pid).map_err(Exit::usage)?;
    let status = enter::exec(place, &args.command).map_err(|error| Exit::unable(error.to_string()))?;
    // As a shell does it: 128 and the signal's number.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(u8::try_from(code).unwrap_or(1))
}

/// The place that `wanted` names.
fn choose<'a>(running: &'a [Running], wanted: &str, pid: Option<i32>) -> Result<&'a Running, String> {
    let running: Vec<&Running> = running.iter().filter(|place| pid.is_none_or(|pid| place.pid == pid)).collect();
    if running.is_empty() {
        let which = pid.map(|pid| format!(" with process id {pid}")).unwrap_or_default();
        return Err(format!("no lab{which} that this user has started is up here; `svclab up FILE` builds one"));
    }
    let names = |place: &str| {
        place == wanted
            || place
                .split_once('/')
                .is_some_and(|(_, name)| name == wanted || name.strip_prefix("default/") == Some(wanted))
            || (wanted.starts_with("pod/") && place == wanted.replacen("pod/", "pod/default/", 1))
    };
    let found: Vec<&Running> = running.iter().copied().filter(|place| names(&place.place)).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => {
            let known: Vec<&str> = running.iter().map(|place| place.place.as_str()).collect();
            Err(format!("there is no {wanted:?} (there is: {})", known.join(", ")))
        }
        [first, rest @ ..] if rest.iter().all(|place| place.pid == first.pid) => {
            let known: Vec<&str> = found.iter().map(|place| place.place.as_str()).collect();
            Err(format!("{wanted:?} may be any of {}", known.join(", ")))
        }
        _ => {
            let pids: Vec<String> = found.iter().map(|place| place.pid.to_string()).collect();
            Err(format!("{wanted:?} is in more than one lab: choose with --pid {}", pids.join(" or ")))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn running(places: &[(i32, &str)]) -> Vec<Running> {
        places.iter().map(|(pid, place)| Running { pid: *pid, place: (*place).to_owned(), tid: 1 }).collect()
    }

    #[test]
    fn a_place_goes_by_its_full_or_short_name() {
        let one = running(&[(1, "node/a"), (1, "pod/default/web"), (1, "pod/ingress/web"), (1, "client/laptop")]);
        for (wanted, place) in [
            ("a", "node/a"),
            ("node/a", "node/a"),
            ("web", "pod/default/web"),
            ("pod/web", "pod/default/web"),
            ("ingress/web", "pod/ingress/web"),
            ("laptop", "client/laptop"),
        ] {
            assert_eq!(choose(&one, wanted, None).unwrap().place, place, "{wanted}");
        }
        assert!(choose(&one, "b", None).unwrap_err().contains("node/a, pod/default/web"));
        assert!(choose(&[], "a", None).unwrap_err().contains("svclab up"));
    }

    #[test]
    fn two_labs_are_told_apart_by_pid() {
        let two = running(&[(1, "node/a"), (2, "node/a"), (2, "pod/default/a")]);
        assert!(choose(&two, "node/a", None).unwrap_err().contains("--pid 1 or 2"));
        assert_eq!(choose(&two, "node/a", Some(2)).unwrap().pid, 2);
        assert!(choose(&two, "a", Some(2)).unwrap_err().contains("may be any of"));
    }
}
