//! Commands of a proxy's description: places that are filled in, programs that are looked up.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What is filled in.
const PLACES: [&str; 4] = ["node", "kubeconfig", "config", "mode"];
/// How long a command that prints a version may take.
const VERSION: Duration = Duration::from_secs(30);

/// What stands for each of the places.
pub type Places = [(&'static str, String); 4];

/// Whether `text` is a command line with places rather than a path.
pub(super) fn has_places(text: &str) -> bool {
    PLACES.iter().any(|place| text.contains(&format!("{{{place}}}")))
}

/// `part` with its places filled in.
pub(super) fn fill(part: &str, places: &Places) -> String {
    places.iter().fold(part.to_owned(), |text, (place, value)| text.replace(&format!("{{{place}}}"), value))
}

/// Gives the program of `command` its full path, if everything in it can be done.
pub(super) fn check(key: &str, command: &mut [String], first: Option<&Path>) -> Result<(), String> {
    let Some(program) = command.first_mut() else {
        return Err(format!("{key}: expected a program and its arguments"));
    };
    *program = find(program, first).ok_or_else(|| {
        format!("{key}: there is no program {program}; name one that is in PATH, or write its full path")
    })?;
    command.iter().try_for_each(|part| check_places(key, part))
}

/// Whether each place of `part` is one that is filled.
pub(super) fn check_places(key: &str, part: &str) -> Result<(), String> {
    match unknown_place(part) {
        Some(unknown) => Err(format!("{key}: {unknown} is none of {{node}}, {{kubeconfig}}, {{config}}, {{mode}}")),
        None => Ok(()),
    }
}

/// The full path of `program`: as it is written, or, if that is a mere name, from `first` or `PATH`.
fn find(program: &str, first: Option<&Path>) -> Option<String> {
    let path = std::env::var_os("PATH").filter(|_| !program.contains('/'));
    let first = first.filter(|_| path.is_some()).map(Path::to_owned);
    let directories = first.into_iter().chain(path.iter().flat_map(std::env::split_paths));
    let mut candidates = directories.map(|directory| directory.join(program)).chain([PathBuf::from(program)]);
    candidates.find(|candidate| candidate.is_file()).map(|found| found.display().to_string())
}

/// A `{place}` that nothing fills.
fn unknown_place(part: &str) -> Option<String> {
    let start = part.find('{')?;
    let end = start + part[start..].find('}')?;
    let place = &part[start + 1..end];
    if PLACES.contains(&place) { unknown_place(&part[end + 1..]) } else { Some(part[start..=end].to_owned()) }
}

/// What a command prints, on standard output first, for a proxy may print its version on either.
pub(super) fn output(command: &[String]) -> Result<String, String> {
    let shown = command.join(" ");
    let [program, arguments @ ..] = command else { return Err("no program".to_owned()) };
    // Files and not pipes: a program that prints much could not go on while nobody reads.
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
    fn a_mere_name_is_looked_up_in_path() {
        assert!(find("sh", None).is_some_and(|path| path.ends_with("/sh") && path.starts_with('/')));
        assert_eq!(find("no-such-program-anywhere", None), None);
        assert_eq!(find("./sh", None), None, "a path is a path");
    }

    #[test]
    fn places_are_filled_and_unknown_ones_are_named() {
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
    fn a_command_prints_its_version_on_either_stream_or_says_why_not() {
        let shell = |script: &str| output(&["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()]);
        assert!(shell("echo v1.2.3").is_ok_and(|text| text.contains("v1.2.3")));
        assert!(shell("echo v1.2.3 >&2").is_ok_and(|text| text.contains("v1.2.3")));
        assert!(shell("echo no such flag >&2; exit 2").is_err_and(|error| error.contains("no such flag")));
    }
}
