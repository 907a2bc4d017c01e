use std::path::{Path, PathBuf};

use procfs::process::all_processes;

use super::ContainedPath;

const NAMES: [&str; 2] = ["kube-proxy", "svcproxy"];

#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) name: String,
    root: PathBuf,
    directory: PathBuf,
    arguments: Vec<String>,
}

impl Process {
    pub(super) fn of(pid: i32, command: Vec<String>) -> Option<Process> {
        let (program, arguments) = command.split_first()?;
        let name = Path::new(program).file_name()?.to_str()?;
        NAMES.contains(&name).then(|| Process {
            name: name.to_owned(),
            root: format!("/proc/{pid}/root").into(),
            directory: format!("/proc/{pid}/cwd").into(),
            arguments: arguments.to_vec(),
        })
    }

    /// Returns the last value of `--flag=VALUE` or `--flag VALUE`.
    pub(crate) fn flag(&self, name: &str) -> Option<&str> {
        self.values(name).last().copied().filter(|value| !value.is_empty())
    }

    pub(super) fn values(&self, name: &str) -> Vec<&str> {
        let mut found = Vec::new();
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            match written(argument, name) {
                Some(Some(value)) => found.push(value),
                Some(None) => found.extend(arguments.next().map(String::as_str)),
                None => {}
            }
        }
        found
    }

    pub(super) fn switch(&self, name: &str) -> Option<bool> {
        let mut all = self.arguments.iter().filter_map(|argument| written(argument, name));
        all.next_back().and_then(|value| value.map_or(Some(true), is_true))
    }

    pub(super) fn file(&self, path: &str) -> ContainedPath {
        ContainedPath::new(if path.starts_with('/') { &self.root } else { &self.directory }, path)
    }
}

fn written<'a>(argument: &'a str, name: &str) -> Option<Option<&'a str>> {
    let rest = argument.strip_prefix("--")?.strip_prefix(name)?;
    match rest.strip_prefix('=') {
        Some(value) => Some(Some(value)),
        None => rest.is_empty().then_some(None),
    }
}

/// Parses as Go's `strconv.ParseBool`.
pub(super) fn is_true(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

pub(in super::super) fn find() -> Option<Process> {
    let own = std::fs::read_link("/proc/thread-self/ns/net").ok()?;
    all_processes().ok()?.flatten().find_map(|process| {
        let found = Process::of(process.pid(), process.cmdline().ok()?)?;
        let namespace = std::fs::read_link(format!("/proc/{}/ns/net", process.pid())).ok()?;
        (namespace == own).then_some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(command: &[&str]) -> Option<Process> {
        Process::of(7, command.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn a_command_line_tells_the_program_and_its_flags() {
        let flags =
            ["/usr/local/bin/kube-proxy", "--config=/a", "--config", "/var/lib/config.conf", "--configs=x", "-v"];
        let proxy = process(&flags).unwrap();
        assert_eq!(proxy.flag("config"), Some("/var/lib/config.conf"));
        assert_eq!(proxy.flag("hostname-override"), None);
        assert_eq!(proxy.file("/etc/x"), ContainedPath::new(Path::new("/proc/7/root"), "/etc/x"));
        assert_eq!(proxy.file("x"), ContainedPath::new(Path::new("/proc/7/cwd"), "x"));
        assert_eq!(process(&["svcproxy", "--hostname-override=n1"]).unwrap().flag("hostname-override"), Some("n1"));
        assert_eq!(process(&["svcproxy", "--config"]).unwrap().flag("config"), None);
        let twice = process(&["kube-proxy", "--a=1", "--a", "2", "--b", "--c=f", "--d=x"]).unwrap();
        assert_eq!(twice.values("a"), ["1", "2"]);
        assert_eq!(["b", "c", "d", "e"].map(|name| twice.switch(name)), [Some(true), Some(false), None, None]);
        assert!(process(&["kube-proxy-exporter"]).is_none());
        assert!(process(&[]).is_none());
    }
}
