//! System calls for namespaces, mounts and children. The only file with `unsafe`.
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

/// Creates namespaces; the PID namespace applies to children only.
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

pub(super) fn unshare_net() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS)?)
}

pub(super) fn unshare_host() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)?)
}

pub(super) fn join(file: &File, kind: CloneFlags) -> io::Result<()> {
    Ok(setns(file, kind)?)
}

nix::ioctl_read_bad!(ns_get_owner_uid, nix::request_code_none!(0xb7, 0x4), nix::libc::uid_t);

/// Returns the owner's uid (include/uapi/linux/nsfs.h).
pub(super) fn namespace_owner(namespace: &File) -> io::Result<u32> {
    let mut owner = 0;
    // SAFETY: the kernel writes one uid_t there.
    unsafe { ns_get_owner_uid(namespace.as_raw_fd(), &raw mut owner) }?;
    Ok(owner)
}

pub(super) fn make_mounts_private() -> io::Result<()> {
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?)
}

pub(super) fn mount_tmpfs(at: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some("mode=0755"))?)
}

/// Mounts `/proc` or `/sys` of the calling thread's namespaces.
pub(super) fn mount_pseudo(kind: &str, at: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(Some(kind), at, Some(kind), flags, None::<&str>)?)
}

pub(super) fn bind_mount(from: &Path, to: &Path) -> io::Result<()> {
    Ok(mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
}

pub(super) fn mount_read_only(at: &Path) -> io::Result<()> {
    bind_mount(at, at)?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    let kept = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(None::<&str>, at, None::<&str>, flags | kept, None::<&str>)?)
}

pub(super) fn unmount(at: &Path) -> io::Result<()> {
    Ok(umount2(at, MntFlags::MNT_DETACH)?)
}

pub(super) fn inheritable(file: &File) -> io::Result<()> {
    fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}

/// Makes an inherited descriptor close-on-exec.
pub(super) fn adopt(fd: RawFd) -> io::Result<File> {
    // SAFETY: the parent left this descriptor open for this process only.
    let file = unsafe { File::from_raw_fd(fd) };
    fcntl(&file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(file)
}

pub(super) fn die_with_parent() -> io::Result<()> {
    Ok(set_pdeathsig(Signal::SIGKILL)?)
}

/// Lets the process die with the thread that starts it, and block no signals.
pub(super) fn tie_to_parent(command: &mut Command) {
    // SAFETY: prctl and sigprocmask are async-signal-safe, and the closure touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            SigSet::all().thread_unblock()?;
            die_with_parent()
        });
    }
}

/// Lets the process die with this thread, even if it ended already.
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

pub(super) fn unblock_signals(command: &mut Command) {
    // SAFETY: as in `tie_to_parent`.
    unsafe {
        command.pre_exec(|| Ok(SigSet::all().thread_unblock()?));
    }
}
