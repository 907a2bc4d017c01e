//! Enters a host of a running lab from another terminal: the namespaces of its thread and of the sandbox's first
//! process, which [`labs`](super::labs) finds.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use nix::fcntl::OFlag;
use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};

pub use super::labs::{LabPlace, running};
use super::labs::{SandboxInit, is_own_user_namespace, not_own};
use super::namespace::Namespace;
use super::{NetnsError, sandbox, sys};

/// Returns a command line with `nsenter` (util-linux).
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

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The namespaces cannot be entered.
    #[error(transparent)]
    Enter(#[from] NetnsError),
    /// The program does not start.
    #[error("{program}: {source}")]
    Program {
        /// The program.
        program: String,
        /// The cause.
        source: std::io::Error,
    },
}

/// Moves this process into a host of a running lab (its PID namespace: for children only). Call before any thread
/// exists.
///
/// # Errors
/// The lab has ended or is another user's, or the kernel refuses.
pub fn join(place: &LabPlace) -> Result<(), NetnsError> {
    let refused = |source| NetnsError::Io { attempted: format!("entering {}", place.place), source };
    let init = SandboxInit::own(place.pid).ok_or_else(|| refused(not_own(place.pid)))?;
    let thread = Path::new("task").join(place.tid.to_string());
    let wanted = [
        (PathBuf::from("ns/user"), CloneFlags::CLONE_NEWUSER),
        (PathBuf::from("ns/pid"), CloneFlags::CLONE_NEWPID),
        (thread.join("ns/uts"), CloneFlags::CLONE_NEWUTS),
        (thread.join("ns/net"), CloneFlags::CLONE_NEWNET),
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

/// Runs a command on a lab's host, with additional environment. Call before any thread exists.
pub fn exec(place: &LabPlace, argv: &[String], environment: &[(String, String)]) -> Result<ExitStatus, ExecError> {
    let (program, args) = argv.split_first().map_or(("", &[][..]), |(program, args)| (program.as_str(), args));
    // Entering the mount namespace moves this process to its root.
    let folder = std::env::current_dir();
    join(place)?;
    let mut command = Command::new(program);
    command.args(args).env("PATH", sandbox::path_with_sbin()).envs(environment.iter().cloned());
    if let Some(folder) = folder.ok().filter(|folder| folder.is_dir()) {
        command.current_dir(folder);
    }
    // Some shells read the host name from HOSTNAME.
    if let Ok(host) = nix::unistd::gethostname() {
        command.env("HOSTNAME", host);
    }
    let mut quiet = SigSet::empty();
    quiet.add(Signal::SIGINT);
    quiet.add(Signal::SIGQUIT);
    let _ = quiet.thread_block();
    sys::unblock_signals(&mut command);
    command.status().map_err(|source| ExecError::Program { program: program.to_owned(), source })
}
