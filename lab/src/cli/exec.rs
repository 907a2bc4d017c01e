use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use clap::Args;
use svclab_netns::enter::{self, ExecError, LabPlace};
use svclab_netns::sandbox::WORK_DIR;

use super::labs::LabChoice;
use crate::complete;
use crate::exit::Exit;

/// A shell's exit statuses for a missing program and for one that cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

#[derive(Args)]
pub(super) struct ExecArgs {
    /// Where: node/NAME, pod/NAME, pod/NAMESPACE/NAME, client/NAME, or just the name.
    #[arg(add = complete::places())]
    place: String,
    #[command(flatten)]
    lab: LabChoice,
    /// The command to run there.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn exec(args: &ExecArgs) -> Result<u8, Exit> {
    let lab = args.lab.find()?;
    let place = choose(&lab.places, &args.place).map_err(Exit::usage)?;
    // A node gets its own kubeconfig: the user's KUBECONFIG may point to a real cluster.
    let node = place.place.strip_prefix("node/");
    let kubeconfig = node.map(|node| Path::new(WORK_DIR).join("kubeconfig").join(node).display().to_string());
    let environment: Vec<_> = kubeconfig.into_iter().map(|path| ("KUBECONFIG".to_owned(), path)).collect();
    let status = enter::exec(place, &args.command, &environment).map_err(|error| match error {
        ExecError::Enter(error) => Exit::unable(error.to_string()),
        ExecError::Program { ref source, .. } => {
            let status = if source.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
            Exit { status, message: format!("{}: {error}", place.place) }
        }
    })?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(u8::try_from(code).unwrap_or(1))
}

pub(super) fn choose<'a>(places: &'a [LabPlace], wanted: &str) -> Result<&'a LabPlace, String> {
    let names = |place: &str| {
        place == wanted
            || place
                .split_once('/')
                .is_some_and(|(_, name)| name == wanted || name.strip_prefix("default/") == Some(wanted))
            || (wanted.starts_with("pod/") && place == wanted.replacen("pod/", "pod/default/", 1))
    };
    let found: Vec<&LabPlace> = places.iter().filter(|place| names(&place.place)).collect();
    let listed = |places: &[&LabPlace]| places.iter().map(|place| place.place.as_str()).collect::<Vec<_>>().join(", ");
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(format!("there is no {wanted:?} (there is: {})", listed(&places.iter().collect::<Vec<_>>()))),
        several => Err(format!("{wanted:?} may be any of {}", listed(several))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_machine_is_found_by_its_full_or_short_name() {
        let place = |place: &str| LabPlace { pid: 1, place: place.to_owned(), tid: 1 };
        let mut places = ["node/a", "pod/default/web", "pod/ingress/web", "client/laptop"].map(place).to_vec();
        for (wanted, place) in [
            ("a", "node/a"),
            ("node/a", "node/a"),
            ("web", "pod/default/web"),
            ("pod/web", "pod/default/web"),
            ("ingress/web", "pod/ingress/web"),
            ("laptop", "client/laptop"),
        ] {
            assert_eq!(choose(&places, wanted).unwrap().place, place, "{wanted}");
        }
        assert!(choose(&places, "b").unwrap_err().contains("node/a, pod/default/web"));
        places.push(place("pod/default/a"));
        assert_eq!(choose(&places, "a").unwrap_err(), "\"a\" may be any of node/a, pod/default/a");
    }
}
