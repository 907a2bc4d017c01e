//! The sandbox: new mount, network, PID, IPC and UTS namespaces around the whole run, and a user namespace for whoever is not
//! the host's root.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;

use super::{diagnose, guard, self_test, supervisor, sys};

/// Private tmpfs directory inside the sandbox for working files; gone with the last process.
///
/// All of `/run` is private in there: programs that keep a lock or a socket in it touch nothing of the host's.
pub const WORK_DIR: &str = "/run/svclab";

/// Environment variable that tells the inner process which descriptor to watch, and whose rights it has.
const MARKER: &str = "SVCLAB_SANDBOX";
/// Another with a message from the outer process to the inner one.
const MESSAGE: &str = "SVCLAB_MESSAGE";

/// Why this machine cannot run the lab: one sentence that says what is missing and how to get it (exit status 3).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SandboxError(pub String);

/// Proof that the process is inside the sandbox.
#[derive(Debug)]
pub struct InsideSandbox {
    _private: (),
}

/// What the inner process remembers about the world outside.
pub(super) struct HostView {
    /// `/proc` as it was before ours covered it: numbers processes as the user's other terminals do.
    proc: File,
    /// Whose rights the sandbox has.
    pub(super) rights: SandboxRights,
    /// Open as long as the outer process lives.
    _lifeline: File,
}

/// Whose rights the lab has in its namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SandboxRights {
    /// Those of a user namespace of its own.
    UserNamespace,
    /// The host's root's: what is not of the lab's namespaces is kept from it.
    Root,
    /// Those of the namespace that it found: a container's root's, or those of a machine that is the lab's alone.
    AsFound,
}

impl SandboxRights {
    const ALL: [SandboxRights; 3] = [SandboxRights::UserNamespace, SandboxRights::Root, SandboxRights::AsFound];

    fn word(self) -> &'static str {
        match self {
            SandboxRights::UserNamespace => "user",
            SandboxRights::Root => "root",
            SandboxRights::AsFound => "found",
        }
    }
}

static OUTSIDE: OnceLock<HostView> = OnceLock::new();

/// What is known of the world outside, inside the sandbox.
pub(super) fn outside() -> Option<&'static HostView> {
    OUTSIDE.get()
}

impl HostView {
    /// The calling thread's directory in `/proc` as seen from outside, for example `/proc/4711/task/4720`.
    pub(super) fn thread_dir(&self) -> io::Result<PathBuf> {
        let link = format!("/proc/self/fd/{}/thread-self", self.proc.as_raw_fd());
        Ok(Path::new("/proc").join(fs::read_link(link)?))
    }
}

/// Puts the rest of the program into the sandbox: call first thing in `main`, before any thread exists.
///
/// The outer process starts the same program again inside, forwards SIGINT, SIGTERM and SIGHUP to it (and kills it if it
/// has not ended ten seconds later, or at a second signal), and exits with its status: there this function does not
/// return. It returns in the inner process, which is PID 1 of its own PID namespace, so that whatever kills it or the
/// outer process ends everything that was started. PID 1 ignores signals that it has no handler for: handle SIGINT and
/// SIGTERM if the run has something to tidy or report.
///
/// # Errors
/// When this machine cannot run the lab.
pub fn enter() -> Result<InsideSandbox, SandboxError> {
    enter_with_message(None)
}

/// Likewise, with a message for the inner process, of something that only the outer one can find out: see [`message`].
///
/// # Errors
/// When this machine cannot run the lab.
pub fn enter_with_message(message: Option<&str>) -> Result<InsideSandbox, SandboxError> {
    if nix::unistd::getpid().as_raw() == 1
        && let Ok(marker) = std::env::var(MARKER)
    {
        return settle(&marker);
    }
    let rights = leave_host()?;
    let (lifeline, keep) = io::pipe().map_err(|e| SandboxError(format!("pipe: {e}")))?;
    let lifeline = File::from(std::os::fd::OwnedFd::from(lifeline));
    let failed = |e: io::Error| SandboxError(format!("starting the lab inside its sandbox: {e}"));
    sys::inheritable(&lifeline).map_err(failed)?;
    let signals = supervisor::block_signals().map_err(failed)?;
    let mut command = Command::new("/proc/self/exe");
    let mut args = std::env::args_os();
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    command
        .args(args)
        .env(MARKER, format!("{}:{}", rights.word(), lifeline.as_raw_fd()))
        // A terminal's Ctrl-C must reach the lab alone, not the proxies that it is to end in order.
        .process_group(0);
    command.envs(message.map(|message| (MESSAGE, message)));
    let child = command.spawn().map_err(failed)?;
    drop(lifeline);
    let code = supervisor::supervise(child, &signals).map_err(failed)?;
    drop(keep);
    std::process::exit(code)
}

/// The message of the outer process; `None` in the outer process, and where there is none.
#[must_use]
pub fn message() -> Option<String> {
    let is_inner = nix::unistd::getpid().as_raw() == 1 && std::env::var_os(MARKER).is_some();
    std::env::var(MESSAGE).ok().filter(|_| is_inner)
}

/// Set where the whole machine is the lab's, in a microVM: it then stays in the first user namespace, which alone is allowed
/// to use IPVS and some settings.
pub const WHOLE_MACHINE: &str = "SVCLAB_WHOLE_MACHINE";

/// Leaves the host's namespaces.
///
/// The host's root stays in the first user namespace: only there may a netlink socket's buffer grow beyond the host's limit
/// (`SO_SNDBUFFORCE`), which `iptables-nft-restore` and `nft` need for a transaction of a few hundred rules, and only there does
/// IPVS work.
fn leave_host() -> Result<SandboxRights, SandboxError> {
    if std::env::var_os(WHOLE_MACHINE).is_some() {
        let failed = |error| SandboxError(format!("making the lab's namespaces in the microVM: {error}"));
        return sys::unshare_for_sandbox(false).map(|()| SandboxRights::AsFound).map_err(failed);
    }
    let is_first = is_first_user_namespace();
    // A container's root may lack what it takes.
    if is_first && nix::unistd::geteuid().is_root() && sys::unshare_for_sandbox(false).is_ok() {
        return Ok(SandboxRights::Root);
    }
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    match sys::unshare_for_sandbox(true) {
        Ok(()) => {
            let map = || -> io::Result<()> {
                fs::write("/proc/self/setgroups", "deny")?;
                fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
                fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
            };
            map().map_err(|e| diagnose::no_capabilities("mapping the user", &e))?;
            Ok(SandboxRights::UserNamespace)
        }
        // A root may do without, where user namespaces are switched off.
        Err(refused) => match sys::unshare_for_sandbox(false) {
            Ok(()) => Ok(if is_first { SandboxRights::Root } else { SandboxRights::AsFound }),
            Err(_) => Err(diagnose::no_user_namespace(&refused)),
        },
    }
}

/// Whether this process is in the user namespace that the machine has booted with (`include/uapi/linux/nsfs.h`).
fn is_first_user_namespace() -> bool {
    const FIRST: u64 = 0xEFFF_FFFD;
    fs::metadata("/proc/self/ns/user").is_ok_and(|namespace| namespace.ino() == FIRST)
}

/// Whether programs in here are refused what only the machine's root may have, such as netlink messages beyond the limit for
/// sockets' buffers.
#[must_use]
pub fn lacks_root() -> bool {
    outside().is_some() && !is_first_user_namespace()
}

/// The inner process: ties itself to the outer one, makes mounts private and proves that the kernel lets it work.
fn settle(marker: &str) -> Result<InsideSandbox, SandboxError> {
    let failed = |what: &'static str| move |e: io::Error| SandboxError(format!("sandbox: {what}: {e}"));
    let (rights, fd) = marker
        .split_once(':')
        .and_then(|(word, fd)| {
            Some((SandboxRights::ALL.into_iter().find(|rights| rights.word() == word)?, fd.parse().ok()?))
        })
        .ok_or_else(|| SandboxError(format!("sandbox: {MARKER}={marker} is not for people")))?;
    sys::die_with_parent().map_err(failed("asking to die with the outer process"))?;
    let lifeline = sys::adopt(fd).map_err(failed("taking over the lifeline"))?;
    if supervisor::is_gone(&lifeline) {
        std::process::exit(1);
    }
    SigSet::all().thread_unblock().map_err(|e| failed("unblocking signals")(e.into()))?;
    let proc = File::open("/proc").map_err(failed("opening /proc"))?;
    sys::make_mounts_private().map_err(|e| diagnose::no_capabilities("mounting", &e))?;
    sys::mount_tmpfs(Path::new("/run")).map_err(|e| diagnose::no_capabilities("mounting a private /run", &e))?;
    fs::create_dir_all(WORK_DIR).map_err(failed("making the work directory"))?;
    // A container may refuse a fresh /proc. The old one works as well, only its process ids are the outer ones.
    let _ = sys::mount_pseudo("proc", Path::new("/proc"));
    raise_descriptor_limit();
    if rights == SandboxRights::Root {
        guard::settings().map_err(failed("keeping the host's kernel settings from the lab"))?;
        guard::devices().map_err(failed("keeping the host's devices from the lab"))?;
        guard::capabilities().map_err(failed("giving up capabilities"))?;
    }
    let outside = HostView { proc, rights, _lifeline: lifeline };
    let _ = OUTSIDE.set(outside);
    self_test::real_operation()?;
    Ok(InsideSandbox { _private: () })
}

/// Thousands of concurrent probes are thousands of sockets.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(1 << 18), hard);
    }
}

/// Environment variables that programs started in the lab must not see.
pub(super) const PRIVATE_ENVIRONMENT: &[&str] = &[MARKER, MESSAGE];
