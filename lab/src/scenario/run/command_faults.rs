//! Replaces iptables commands by shell scripts that fail, hang or print garbage while a switch file exists, and
//! otherwise run the real command.
//!
//! The scripts come first in the `PATH` of a node's proxy. They affect every proxy that runs commands by name, and none
//! of the lab's own commands.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use svclab_netns::sandbox::WORK_DIR;

use super::error::{LabError, make};
use crate::scenario::Scenario;
use crate::scenario::fault::{CommandFaultKind, IptablesCommand};
use crate::scenario::file::Action;

/// Returns the proxy's `PATH` on each node with a `commandFault`. `path` has the real commands.
pub(super) fn paths(scenario: &Scenario, path: &str) -> Result<BTreeMap<String, String>, LabError> {
    let meeting = scenario.steps.iter().flat_map(|step| match &step.action {
        Action::CommandFault(_) => step.nodes.as_slice(),
        _ => &[],
    });
    let mut paths = BTreeMap::new();
    for node in meeting {
        if !paths.contains_key(node) {
            let directory = directory(node);
            write_all(&directory, path)?;
            paths.insert(node.clone(), format!("{}:{path}", directory.display()));
        }
    }
    Ok(paths)
}

/// Begins a command's fault on a node; `None` ends the fault.
pub(super) fn set(node: &str, command: IptablesCommand, does: Option<CommandFaultKind>) -> Result<(), LabError> {
    let (directory, file) = (directory(node), switch(node, command));
    let done = match does {
        // Replaces the file atomically: a command may be reading it.
        Some(does) => {
            let fresh = directory.join("fresh");
            fs::write(&fresh, format!("{}\n", does.word())).and_then(|()| fs::rename(&fresh, &file))
        }
        None => fs::remove_file(&file),
    };
    done.map_err(|source| LabError::Directory { path: file, source })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FaultHit {
    /// The command's process, then its children.
    pub(super) pids: Vec<i32>,
}

pub(super) fn was_hit(node: &str, command: IptablesCommand) -> bool {
    notes(node, command).exists()
}

pub(super) fn take_hits(node: &str, command: IptablesCommand) -> Vec<FaultHit> {
    let file = notes(node, command);
    let text = fs::read_to_string(&file).unwrap_or_default();
    let _ = fs::remove_file(&file);
    let pids = |line: &str| line.split(' ').filter_map(|pid| pid.parse().ok()).collect();
    text.lines().map(|line| FaultHit { pids: pids(line) }).collect()
}

impl FaultHit {
    /// Returns the processes that still exist. A zombie command counts, as the proxy is its parent; a zombie child does
    /// not.
    pub(super) fn left(&self) -> Vec<i32> {
        let there = |index: usize, pid: i32| {
            let stat = procfs::process::Process::new(pid).and_then(|process| process.stat()).ok()?;
            // The PID may belong to another program by now.
            let is_it = stat.comm == "sleep" || IptablesCommand::ALL.iter().any(|one| is_called(&stat.comm, *one));
            (is_it && (index == 0 || stat.state != 'Z')).then_some(pid)
        };
        self.pids.iter().enumerate().filter_map(|(index, pid)| there(index, *pid)).collect()
    }
}

/// Whether a process is the command: the kernel names a process after the first 15 bytes of its script's name.
fn is_called(comm: &str, command: IptablesCommand) -> bool {
    command.names().iter().any(|name| name.chars().take(15).eq(comm.chars()))
}

fn directory(node: &str) -> PathBuf {
    Path::new(WORK_DIR).join("faults").join(node)
}

fn switch(node: &str, command: IptablesCommand) -> PathBuf {
    directory(node).join(format!("{command}.does"))
}

fn notes(node: &str, command: IptablesCommand) -> PathBuf {
    directory(node).join(format!("{command}.met"))
}

fn write_all(directory: &Path, path: &str) -> Result<(), LabError> {
    let _ = fs::remove_dir_all(directory);
    make(directory)?;
    for command in IptablesCommand::ALL {
        for name in command.names() {
            let mut places = std::env::split_paths(path).map(|place| place.join(&name));
            let Some(real) = places.find(|real| real.is_file()) else { continue };
            let file = directory.join(&name);
            let permissions = fs::Permissions::from_mode(0o755);
            let done = fs::write(&file, script(directory, command, &real));
            done.and_then(|()| fs::set_permissions(&file, permissions))
                .map_err(|source| LabError::Directory { path: file, source })?;
        }
    }
    Ok(())
}

/// Returns the script that replaces a command. Garbage is invalid UTF-8 in invalid rules, longer than a pipe's buffer
/// (64 KiB), on both outputs.
fn script(directory: &Path, command: IptablesCommand, real: &Path) -> String {
    let (file, real) = (directory.join(command.to_string()), real.display());
    let file = file.display();
    let status = if matches!(command, IptablesCommand::IptablesSave | IptablesCommand::Ip6tablesSave) { 0 } else { 1 };
    format!(
        r#"#!/bin/sh
does=
[ -e '{file}.does' ] && read -r does <'{file}.does'
noise() {{ yes "$(printf '*nat\n:KUBE-\377\376 - [x]\n-A KUBE-SERVICES\nCOMMIT')" | head -c 300000; }}
case "$does" in
fail) echo $$ >>'{file}.met'; echo '{command}: the lab has it fail' >&2; exit 1 ;;
hang) sleep 1000000 & echo "$$ $!" >>'{file}.met'; wait ;;
garbage) echo $$ >>'{file}.met'; noise; noise >&2; exit {status} ;;
*) exec '{real}' "$@" ;;
esac
"#
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command as Process, Output, Stdio};
    use std::thread::sleep;
    use std::time::Duration;

    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;

    use super::*;

    const RESTORE: IptablesCommand = IptablesCommand::Ip6tablesRestore;

    fn folders() -> (tempfile::TempDir, tempfile::TempDir) {
        let (real, faked) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for command in [RESTORE, IptablesCommand::Ip6tablesSave] {
            let file = real.path().join(&command.names()[1]);
            fs::write(&file, "#!/bin/sh\necho \"real $*\"\ncat\n").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        write_all(faked.path(), real.path().to_str().unwrap()).unwrap();
        (real, faked)
    }

    fn run(faked: &Path, command: IptablesCommand, does: Option<CommandFaultKind>) -> Output {
        let switch = faked.join(format!("{command}.does"));
        match does {
            Some(does) => fs::write(switch, format!("{}\n", does.word())).unwrap(),
            None => drop(fs::remove_file(switch)),
        }
        Process::new(faked.join(&command.names()[1])).arg("-n").stdin(Stdio::null()).output().unwrap()
    }

    #[test]
    fn a_faulty_command_fails_or_prints_garbage_until_the_fault_ends() {
        let (_real, faked) = folders();
        let faked = faked.path();
        let output = run(faked, RESTORE, None);
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"real -n\n"[..]));
        assert!(!faked.join("ip6tables-restore.met").exists(), "that was no fault");
        let output = run(faked, RESTORE, Some(CommandFaultKind::Fail));
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        assert!(String::from_utf8_lossy(&output.stderr).contains("the lab has it fail"));
        for (command, status) in [(RESTORE, 1), (IptablesCommand::Ip6tablesSave, 0)] {
            let output = run(faked, command, Some(CommandFaultKind::Garbage));
            assert_eq!(output.status.code(), Some(status), "{command}");
            assert!(
                output.stdout.len() > 1 << 16 && output.stderr.len() > 1 << 16,
                "{command}: a pipe holds all of it"
            );
            assert!(String::from_utf8(output.stdout).is_err(), "{command}: it is text");
        }
        let runs = fs::read_to_string(faked.join("ip6tables-restore.met")).unwrap().lines().count();
        assert_eq!(runs, 2, "one that failed, and one that printed garbage");
        let output = run(faked, RESTORE, None);
        assert_eq!(output.status.code(), Some(0), "it works again");
        assert!(!faked.join("iptables").exists(), "what the machine lacks stays missing");
    }

    #[test]
    fn a_hanging_command_counts_until_its_group_is_killed_and_reaped() {
        let (_real, faked) = folders();
        fs::write(faked.path().join("ip6tables-restore.does"), "hang\n").unwrap();
        let mut child = Process::new(faked.path().join("ip6tables-nft-restore")).process_group(0).spawn().unwrap();
        let notes = faked.path().join("ip6tables-restore.met");
        while !fs::read_to_string(&notes).unwrap_or_default().ends_with('\n') {
            sleep(Duration::from_millis(1));
        }
        let text = fs::read_to_string(&notes).unwrap();
        let met = FaultHit { pids: text.split_whitespace().map(|pid| pid.parse().unwrap()).collect() };
        assert_eq!(met.pids[0], child.id() as i32);
        // The child keeps its parent's name until it executes `sleep`.
        assert_eq!(met.left(), met.pids, "both hang");
        killpg(Pid::from_raw(met.pids[0]), Signal::SIGKILL).unwrap();
        while met.left().contains(&met.pids[1]) {
            sleep(Duration::from_millis(1));
        }
        assert_eq!(met.left(), met.pids[..1], "it is a zombie");
        child.wait().unwrap();
        assert!(met.left().is_empty());
    }
}
