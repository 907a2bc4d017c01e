//! Commands of a proxy's description: fills placeholders, finds programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use svclab_netns::sandbox::path_with_sbin;

use super::names::meant;

const PLACES: [&str; 4] = ["node", "kubeconfig", "config", "mode"];
const VERSION: Duration = Duration::from_secs(30);

pub type Placeholders = [(&'static str, String); 4];

pub(super) fn has_places(text: &str) -> bool {
    PLACES.iter().any(|place| text.contains(&format!("{{{place}}}")))
}

pub(super) fn fill(part: &str, places: &Placeholders) -> String {
    places.iter().fold(part.to_owned(), |text, (place, value)| text.replace(&format!("{{{place}}}"), value))
}

pub(super) fn check(key: &str, command: &mut [String], first: Option<&Path>) -> Result<(), String> {
    let Some(program) = command.first_mut() else {
        return Err(format!("{key}: expected a program and its arguments"));
    };
    *program = find(program, first).ok_or_else(|| {
        format!("{key}: there is no program {program}; name one that is in PATH, or write its full path")
    })?;
    command.iter().try_for_each(|part| check_places(key, part))
}

pub(super) fn check_places(key: &str, part: &str) -> Result<(), String> {
    match unknown_place(part) {
        Some(unknown) => {
            let places = PLACES.map(|place| format!("{{{place}}}"));
            let known = places.each_ref().map(String::as_str);
            Err(format!("{key}: {unknown} is none of {}{}", known.join(", "), meant(&unknown, &known)))
        }
        None => Ok(()),
    }
}

/// Looks up names without a slash in `first`, then in `PATH`, then in the sbin folders.
fn find(program: &str, first: Option<&Path>) -> Option<String> {
    let path = (!program.contains('/')).then(path_with_sbin);
    let first = first.filter(|_| path.is_some()).map(Path::to_owned);
    let directories = first.into_iter().chain(path.iter().flat_map(std::env::split_paths));
    let mut candidates = directories.map(|directory| directory.join(program)).chain([PathBuf::from(program)]);
    candidates.find(|candidate| candidate.is_file()).map(|found| found.display().to_string())
}

fn unknown_place(part: &str) -> Option<String> {
    let start = part.find('{')?;
    let end = start + part[start..].find('}')?;
    let place = &part[start + 1..end];
    if PLACES.contains(&place) { unknown_place(&part[end + 1..]) } else { Some(part[start..=end].to_owned()) }
}

/// Returns the command's standard output, then standard error: proxies print their version on either.
pub(super) fn output(command: &[String]) -> Result<String, String> {
    let shown = command.join(" ");
    let [program, arguments @ ..] = command else { return Err("no program".to_owned()) };
    // The output goes to files, as a full pipe would block the program.
    let file = || tempfile::tempfile().map_err(|error| format!("cannot make a temporary file: {error}"));
    let (mut out, mut err) = (file()?, file()?);
    let shared = |file: &std::fs::File| file.try_clone().map(Stdio::from).map_err(|error| error.to_string());
    let mut started = Command::new(Path::new(program));
    started.args(arguments).stdin(Stdio::null()).stdout(shared(&out)?).stderr(shared(&err)?);
    let mut child = started.spawn().map_err(|error| format!("{shown}: {error}"))?;
    let deadline = Instant::now() + VERSION;
    let status = loop {
        match child.try_wait().map_err(|error| format!("{shown}: {error}"))? {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{shown}: not over within {} s", VERSION.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut text = String::new();
    for file in [&mut out, &mut err] {
        use std::io::{Read as _, Seek as _};
        let mut bytes = Vec::new();
        let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
        read.map_err(|error| format!("{shown}: reading its output: {error}"))?;
        text.push_str(&String::from_utf8_lossy(&bytes));
        text.push('\n');
    }
    if status.success() { Ok(text) } else { Err(format!("{shown}: {status}: {}", text.trim())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_slash_is_looked_up_in_path() {
        assert!(find("sh", None).is_some_and(|path| path.ends_with("/sh") && path.starts_with('/')));
        assert_eq!(find("no-such-program-anywhere", None), None);
        assert_eq!(find("./sh", None), None, "a path is a path");
    }

    #[test]
    fn placeholders_are_filled_and_unknown_ones_are_errors() {
        let places = [
            ("node", "a".to_owned()),
            ("kubeconfig", "/k".to_owned()),
            ("config", "/c".to_owned()),
            ("mode", "ipvs".to_owned()),
        ];
        assert_eq!(fill("--x={config}:{node}/{mode}{", &places), "--x=/c:a/ipvs{");
        assert_eq!(check_places("command", "{node}{config}"), Ok(()));
        assert!(check_places("env", "{node}{pod}").is_err_and(|error| error.starts_with("env: {pod} is none of")));
    }

    #[test]
    fn the_version_is_read_from_either_stream() {
        let shell = |script: &str| output(&["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()]);
        assert!(shell("echo v1.2.3").is_ok_and(|text| text.contains("v1.2.3")));
        assert!(shell("echo v1.2.3 >&2").is_ok_and(|text| text.contains("v1.2.3")));
        assert!(shell("echo no such flag >&2; exit 2").is_err_and(|error| error.contains("no such flag")));
    }
}
