//! Every system call that changes namespaces, mounts or what a child process starts with. The only file with `unsafe`.
#![allow(
    unsafe_code,
    reason = "adopting an inherited descriptor and running code between fork and exec have no safe form"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};

/// Moves this (single-threaded) process into new namespaces; the PID namespace takes effect for its children.
pub(super) fn unshare_for_sandbox(user: bool) -> io::Result<()> {
    let mut flags = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    if user {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    Ok(unshare(flags)?)
}

/// Moves this thread into new network and UTS namespaces.
pub(super) fn unshare_net() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS)?)
}

/// Moves this thread into new network, mount and UTS namespaces.
pub(super) fn unshare_host() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)?)
}

/// Joins the namespace of kind `kind` that `file` refers to.
pub(super) fn join(file: &File, kind: CloneFlags) -> io::Result<()> {
    Ok(setns(file, kind)?)
}

nix::ioctl_read_bad!(ns_get_owner_uid, nix::request_code_none!(0xb7, 0x4), nix::libc::uid_t);

/// The user who made a user namespace (`NS_GET_OWNER_UID`, `include/uapi/linux/nsfs.h`).
pub(super) fn namespace_owner(namespace: &File) -> io::Result<u32> {
    let mut owner = 0;
    // SAFETY: the kernel writes one uid_t there.
    unsafe { ns_get_owner_uid(namespace.as_raw_fd(), &raw mut owner) }?;
    Ok(owner)
}

/// Keeps mounts made from now on out of every other mount namespace, and theirs out of this one.
pub(super) fn make_mounts_private() -> io::Result<()> {
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?)
}

/// Mounts an empty tmpfs.
pub(super) fn mount_tmpfs(at: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some("mode=0755"))?)
}

/// Mounts a `proc` or `sysfs` anew; it shows the PID or network namespace of the calling thread.
pub(super) fn mount_pseudo(kind: &str, at: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(Some(kind), at, Some(kind), flags, None::<&str>)?)
}

/// Makes a directory visible at a second place.
pub(super) fn bind_mount(from: &Path, to: &Path) -> io::Result<()> {
    Ok(mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
}

/// Makes a pseudo file system, or a part of one, read-only where it is.
pub(super) fn mount_read_only(at: &Path) -> io::Result<()> {
    bind_mount(at, at)?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    let kept = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(None::<&str>, at, None::<&str>, flags | kept, None::<&str>)?)
}

/// Takes away what is mounted at `at`.
pub(super) fn unmount(at: &Path) -> io::Result<()> {
    Ok(umount2(at, MntFlags::MNT_DETACH)?)
}

/// Lets a child inherit `file` under its present number.
pub(super) fn inheritable(file: &File) -> io::Result<()> {
    fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}

/// Takes over a descriptor that the parent made inheritable, and hides it from our own children.
pub(super) fn adopt(fd: RawFd) -> io::Result<File> {
    // SAFETY: the caller got the number from the parent of this process, which left it open for nobody else.
    let file = unsafe { File::from_raw_fd(fd) };
    fcntl(&file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(file)
}

/// Has the kernel kill this process when the thread that started it ends.
pub(super) fn die_with_parent() -> io::Result<()> {
    Ok(set_pdeathsig(Signal::SIGKILL)?)
}

/// Has the kernel kill the command's process when the thread that starts it ends; gives it an empty signal mask.
pub(super) fn tie_to_parent(command: &mut Command) {
    // SAFETY: prctl and sigprocmask are async-signal-safe, and the closure touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            SigSet::all().thread_unblock()?;
            die_with_parent()
        });
    }
}

/// Has the kernel kill the command's process when this thread ends, also if that happens before the process is ready.
pub(super) fn die_with_this_process(command: &mut Command) {
    let parent = nix::unistd::getpid();
    // SAFETY: prctl and getppid are async-signal-safe, and the closure touches no memory of the parent.
    unsafe {
        command.pre_exec(move || {
            die_with_parent()?;
            if nix::unistd::getppid() == parent { Ok(()) } else { Err(nix::Error::ESRCH.into()) }
        });
    }
}

/// Gives the command's process an empty signal mask.
pub(super) fn unblock_signals(command: &mut Command) {
    // SAFETY: as in `tie_to_parent`.
    unsafe {
        command.pre_exec(|| Ok(SigSet::all().thread_unblock()?));
    }
}
