//! Namespaces around a run, with a user namespace unless the host's root runs it.

use std::ffi::OsString;
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

/// Private tmpfs for working files. The whole `/run` is private, so programs do not use the host's locks and sockets.
pub const WORK_DIR: &str = "/run/svclab";

/// Environment variable with the inner process's rights and lifeline.
const MARKER: &str = "SVCLAB_SANDBOX";
const MESSAGE: &str = "SVCLAB_MESSAGE";

/// Why the sandbox fails, with a remedy (exit status 3).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SandboxError(pub String);

/// Proof of running inside.
#[derive(Debug)]
pub struct InsideSandbox {
    _private: (),
}

pub(super) struct HostView {
    /// The host's `/proc`, with the process ids that terminals show.
    proc: File,
    pub(super) rights: SandboxRights,
    _lifeline: File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SandboxRights {
    /// Root of the sandbox's own user namespace.
    UserNamespace,
    /// The host's root, restricted by `guard`.
    Root,
    /// A container's root, or a microVM.
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

pub(super) fn outside() -> Option<&'static HostView> {
    OUTSIDE.get()
}

impl HostView {
    pub(super) fn thread_dir(&self) -> io::Result<PathBuf> {
        let link = format!("/proc/self/fd/{}/thread-self", self.proc.as_raw_fd());
        Ok(Path::new("/proc").join(fs::read_link(link)?))
    }
}

/// The folders of iptables, nft, ip and proxies, which Debian leaves out of the `PATH` of ordinary users.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns this process's `PATH`, followed by the sbin folders that it lacks.
#[must_use]
pub fn path_with_sbin() -> OsString {
    with_sbin(std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()))
}

fn with_sbin(path: OsString) -> OsString {
    let own: Vec<PathBuf> = std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty()).collect();
    let lacking = SBIN.iter().map(PathBuf::from).filter(|folder| !own.contains(folder));
    std::env::join_paths(own.iter().cloned().chain(lacking)).unwrap_or(path)
}

/// Moves the rest of the program into the sandbox. Call first in `main`, before any thread exists.
///
/// The outer process starts the program again inside, forwards SIGINT, SIGTERM and SIGHUP, kills it ten seconds later
/// or at a second signal, and exits with its status. This returns only inside, as PID 1, and the end of either process
/// ends everything. The inner process has the sbin folders in its `PATH`. PID 1 ignores signals without a handler: handle SIGINT and SIGTERM to clean up.
///
/// # Errors
/// This machine cannot run the lab.
pub fn enter() -> Result<InsideSandbox, SandboxError> {
    enter_with_message(None)
}

/// Like [`enter`], with a [`message`] for the inner process.
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
        .env("PATH", path_with_sbin())
        .env(MARKER, format!("{}:{}", rights.word(), lifeline.as_raw_fd()))
        // Ctrl-C must reach the lab, not the proxies.
        .process_group(0);
    command.envs(message.map(|message| (MESSAGE, message)));
    let child = command.spawn().map_err(failed)?;
    drop(lifeline);
    let code = supervisor::supervise(child, &signals).map_err(failed)?;
    drop(keep);
    std::process::exit(code)
}

/// Returns the outer process's message to the inner process.
#[must_use]
pub fn message() -> Option<String> {
    let is_inner = nix::unistd::getpid().as_raw() == 1 && std::env::var_os(MARKER).is_some();
    std::env::var(MESSAGE).ok().filter(|_| is_inner)
}

/// Environment variable of microVMs: the sandbox stays in the first user namespace, which alone may use IPVS and some
/// settings.
pub const WHOLE_MACHINE: &str = "SVCLAB_WHOLE_MACHINE";

/// Creates namespaces, for the host's root without a user namespace: IPVS and large transactions of
/// `iptables-nft-restore` and `nft` (`SO_SNDBUFFORCE`) only work in the first one.
fn leave_host() -> Result<SandboxRights, SandboxError> {
    if std::env::var_os(WHOLE_MACHINE).is_some() {
        let failed = |error| SandboxError(format!("making the lab's namespaces in the microVM: {error}"));
        return sys::unshare_for_sandbox(false).map(|()| SandboxRights::AsFound).map_err(failed);
    }
    let is_first = is_first_user_namespace();
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
        Err(refused) => match sys::unshare_for_sandbox(false) {
            Ok(()) => Ok(if is_first { SandboxRights::Root } else { SandboxRights::AsFound }),
            Err(_) => Err(diagnose::no_user_namespace(&refused)),
        },
    }
}

fn is_first_user_namespace() -> bool {
    const FIRST: u64 = 0xEFFF_FFFD;
    fs::metadata("/proc/self/ns/user").is_ok_and(|namespace| namespace.ino() == FIRST)
}

/// Whether root privileges, such as larger netlink buffers, are missing.
#[must_use]
pub fn lacks_root() -> bool {
    outside().is_some() && !is_first_user_namespace()
}

fn settle(marker: &str) -> Result<InsideSandbox, SandboxError> {
    let failed = |what: &'static str| move |e: io::Error| SandboxError(format!("sandbox: {what}: {e}"));
    let (rights, fd) = marker
        .split_once(':')
        .and_then(|(word, fd)| {
            Some((SandboxRights::ALL.into_iter().find(|rights| rights.word() == word)?, fd.parse().ok()?))
        })
        .ok_or_else(|| SandboxError(format!("sandbox: {MARKER}={marker} must not be set by hand")))?;
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
    // Containers may refuse this mount.
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

/// Raises the limit, because each concurrent probe needs a socket.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(1 << 18), hard);
    }
}

pub(super) const PRIVATE_ENVIRONMENT: &[&str] = &[MARKER, MESSAGE];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sbin_folders_follow_the_users_own() {
        let path = |own: &str| with_sbin(own.into()).into_string().unwrap();
        assert_eq!(path("/usr/bin:/bin"), "/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin");
        assert_eq!(path("/sbin:/usr/bin:/usr/local/sbin"), "/sbin:/usr/bin:/usr/local/sbin:/usr/sbin");
        assert_eq!(path(""), "/usr/local/sbin:/usr/sbin:/sbin");
    }
}
