//! Entering a place of a running lab from another terminal.
//!
//! `/proc/PID/task/TID/ns/{net,mnt,uts}` are a place's namespaces, `/proc/PID/ns/{user,pid}` the sandbox's; [`labs`](super::labs)
//! has the numbers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use nix::fcntl::OFlag;
use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};

use super::labs::{Init, is_own_user_namespace, not_own};
pub use super::labs::{LabPlace, running};
use super::namespace::Namespace;
use super::{NetnsError, sandbox, sys};

/// The line that enters a place from another terminal; needs `nsenter` of util-linux.
pub fn line(namespace: &Namespace) -> Option<String> {
    let thread = namespace.thread_dir()?;
    let process = thread.parent()?.parent()?.display();
    let thread = thread.display();
    let user = match sandbox::outside()?.rights {
        sandbox::SandboxRights::UserNamespace => format!(" --user={process}/ns/user --preserve-credentials"),
        sandbox::SandboxRights::Root | sandbox::SandboxRights::AsFound => String::new(),
    };
    Some(format!(
        "nsenter{user} --pid={process}/ns/pid --mount={thread}/ns/mnt --uts={thread}/ns/uts --net={thread}/ns/net"
    ))
}

/// Why a command did not run in a place.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The place could not be entered.
    #[error(transparent)]
    Enter(#[from] NetnsError),
    /// The program could not be started in there.
    #[error("{program}: {source}")]
    Program {
        /// As it was named.
        program: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// Moves this process into a place of a running lab, but for its process ids, which are its children's. Call before any thread
/// exists.
///
/// # Errors
/// When the process is no lab of this user's (any more), or the kernel does not allow it.
pub fn join(place: &LabPlace) -> Result<(), NetnsError> {
    // Looked at anew: the number may be another process's by now.
    let refused = |source| NetnsError::Io { attempted: format!("entering {}", place.place), source };
    let init = Init::own(place.pid).ok_or_else(|| refused(not_own(place.pid)))?;
    let thread = Path::new("task").join(place.tid.to_string());
    let wanted = [
        (PathBuf::from("ns/user"), CloneFlags::CLONE_NEWUSER),
        (PathBuf::from("ns/pid"), CloneFlags::CLONE_NEWPID),
        (thread.join("ns/uts"), CloneFlags::CLONE_NEWUTS),
        (thread.join("ns/net"), CloneFlags::CLONE_NEWNET),
        // Last: /proc is another one after it.
        (thread.join("ns/mnt"), CloneFlags::CLONE_NEWNS),
    ];
    let failed = |path: &Path| NetnsError::io(format!("entering {} of process {}", path.display(), place.pid));
    let mut joined: Vec<(PathBuf, CloneFlags, File)> = Vec::new();
    for (path, kind) in wanted {
        let file = init.open(&path, OFlag::O_RDONLY).map_err(failed(&path))?;
        let same = kind == CloneFlags::CLONE_NEWUSER && is_own_user_namespace(&file);
        if !same {
            joined.push((path, kind, file));
        }
    }
    for (path, kind, file) in &joined {
        sys::join(file, *kind).map_err(failed(path))?;
    }
    Ok(())
}

/// Runs a command in a running lab's place with this terminal; `environment` is added to this process's. Call before any thread
/// exists.
///
/// # Errors
/// When the place cannot be entered, or the program not be started there.
pub fn exec(place: &LabPlace, argv: &[String], environment: &[(String, String)]) -> Result<ExitStatus, ExecError> {
    let (program, args) = argv.split_first().map_or(("", &[][..]), |(program, args)| (program.as_str(), args));
    join(place)?;
    let mut command = Command::new(program);
    command.args(args).envs(environment.iter().cloned());
    // Some shells believe the variable and not the kernel.
    if let Ok(host) = nix::unistd::gethostname() {
        command.env("HOSTNAME", host);
    }
    // The terminal's Ctrl-C is for the command; this process stays to return its status.
    let mut quiet = SigSet::empty();
    quiet.add(Signal::SIGINT);
    quiet.add(Signal::SIGQUIT);
    let _ = quiet.thread_block();
    sys::unblock_signals(&mut command);
    command.status().map_err(|source| ExecError::Program { program: program.to_owned(), source })
}
