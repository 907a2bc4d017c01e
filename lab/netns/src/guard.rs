//! Keeps what the host's root runs in the sandbox from the host: it is the real root there, in the first user namespace.
//!
//! This is for accidents: proxies raise kernel settings, load modules and write to `/sys` as they start, and on a host that is not
//! theirs they must not. A program that wants to get out gets out: root can mount again what is read-only here.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability};

use super::sys;

/// What is in `/proc` for every process alike, as container runtimes close it. A kernel may lack some.
const CLOSED: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

/// The settings of the calling thread's network namespace.
const NETWORK: &str = "/proc/sys/net";

/// The network devices of the namespace that a `sysfs` was mounted in: all that the lab has are virtual ones.
const VIRTUAL: &str = "devices/virtual/net";

/// Where a fresh `sysfs` is for a moment; this `/run` is the sandbox's own.
const ASIDE: &str = "/run/svclab-sys";

/// What programs of the lab are not for: the kernel's modules, the clock, devices, limits, other security modules.
const DROPPED: [Capability; 20] = [
    Capability::CAP_AUDIT_CONTROL,
    Capability::CAP_AUDIT_READ,
    Capability::CAP_AUDIT_WRITE,
    Capability::CAP_BLOCK_SUSPEND,
    Capability::CAP_LEASE,
    Capability::CAP_LINUX_IMMUTABLE,
    Capability::CAP_MAC_ADMIN,
    Capability::CAP_MAC_OVERRIDE,
    Capability::CAP_MKNOD,
    Capability::CAP_SYSLOG,
    Capability::CAP_SYS_BOOT,
    Capability::CAP_SYS_MODULE,
    Capability::CAP_SYS_NICE,
    Capability::CAP_SYS_PACCT,
    Capability::CAP_SYS_RAWIO,
    Capability::CAP_SYS_RESOURCE,
    Capability::CAP_SYS_TIME,
    Capability::CAP_SYS_TTY_CONFIG,
    Capability::CAP_WAKE_ALARM,
    Capability::CAP_CHECKPOINT_RESTORE,
];

/// Makes kernel settings read-only, but for those of the network namespace.
///
/// Settings below `net` that all network namespaces share, such as `net.core.wmem_max` and `nf_conntrack_max`, are read-only in
/// every namespace but the first by themselves.
pub(super) fn settings() -> io::Result<()> {
    let network = File::open(NETWORK)?;
    for path in CLOSED.map(Path::new).into_iter().filter(|path| path.exists()) {
        sys::mount_read_only(path)?;
    }
    // By the descriptor, which still leads to the mount that can be written to.
    sys::bind_mount(&PathBuf::from(format!("/proc/self/fd/{}", network.as_raw_fd())), Path::new(NETWORK))
}

/// A `/sys` that shows the calling thread's network namespace, in which nothing but the settings of its devices can be written.
pub(super) fn devices() -> io::Result<()> {
    let (aside, at) = (Path::new(ASIDE), Path::new("/sys"));
    std::fs::create_dir_all(aside)?;
    // A container with a masked /sys refuses a fresh one; what is there is closed all the same.
    let fresh = sys::mount_pseudo("sysfs", aside);
    if fresh.is_ok() {
        sys::bind_mount(aside, at)?;
    }
    sys::mount_read_only(at)?;
    if fresh.is_ok() {
        // Without devices there is no such directory: loopback is one in every namespace.
        sys::bind_mount(&aside.join(VIRTUAL), &at.join(VIRTUAL))?;
        sys::unmount(aside)?;
    }
    // The directory stays: another thread may be about to mount on it.
    Ok(())
}

/// Gives up [`DROPPED`], for this process and all that it starts. Call before any thread exists.
pub(super) fn capabilities() -> io::Result<()> {
    let gone = |error: caps::errors::CapsError| io::Error::other(error.to_string());
    for set in [CapSet::Bounding, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        for capability in DROPPED {
            // An old kernel does not know the newest.
            if caps::has_cap(None, set, capability).unwrap_or(false) {
                caps::drop(None, set, capability).map_err(gone)?;
            }
        }
    }
    Ok(())
}
