//! Protects the host from its root in the sandbox, which has no user namespace: from accidents of proxies, which set
//! kernel settings, load modules and write to `/sys`, not from programs that remount.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability};

use super::sys;

/// Paths that container runtimes mask, too; a kernel may lack some.
const CLOSED: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

const NETWORK: &str = "/proc/sys/net";

/// The writable folder below `/sys`.
const VIRTUAL: &str = "devices/virtual/net";

const ASIDE: &str = "/run/svclab-sys";

/// Capabilities for modules, clock, devices, limits and other security modules.
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

/// Makes kernel settings read-only, except those of the network namespace.
pub(super) fn settings() -> io::Result<()> {
    let network = File::open(NETWORK)?;
    for path in CLOSED.map(Path::new).into_iter().filter(|path| path.exists()) {
        sys::mount_read_only(path)?;
    }
    // The descriptor keeps the writable mount.
    sys::bind_mount(&PathBuf::from(format!("/proc/self/fd/{}", network.as_raw_fd())), Path::new(NETWORK))
}

/// Mounts a `/sys` that is writable only below [`VIRTUAL`].
pub(super) fn devices() -> io::Result<()> {
    let (aside, at) = (Path::new(ASIDE), Path::new("/sys"));
    std::fs::create_dir_all(aside)?;
    // A container with a masked /sys refuses a new one.
    let fresh = sys::mount_pseudo("sysfs", aside);
    if fresh.is_ok() {
        sys::bind_mount(aside, at)?;
    }
    sys::mount_read_only(at)?;
    if fresh.is_ok() {
        sys::bind_mount(&aside.join(VIRTUAL), &at.join(VIRTUAL))?;
        sys::unmount(aside)?;
    }
    Ok(())
}

/// Drops capabilities. Call before any thread exists.
pub(super) fn capabilities() -> io::Result<()> {
    let gone = |error: caps::errors::CapsError| io::Error::other(error.to_string());
    for set in [CapSet::Bounding, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        for capability in DROPPED {
            if caps::has_cap(None, set, capability).unwrap_or(false) {
                caps::drop(None, set, capability).map_err(gone)?;
            }
        }
    }
    Ok(())
}
