use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

/// `Documentation/networking/ip-sysctl.rst`: needed for node ports on localhost.
pub const ROUTE_LOCALNET: &str = "net/ipv4/conf/all/route_localnet";
/// `Documentation/networking/nf_conntrack-sysctl.rst`: picks up connections without entry.
pub const TCP_LOOSE: &str = "net/netfilter/nf_conntrack_tcp_loose";
/// `Documentation/networking/nf_conntrack-sysctl.rst`: accepts out-of-window segments.
pub const TCP_BE_LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";

/// What becomes of a setting that has another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingChange {
    Write,
    /// Only opens the file for writing, for `svcproxy check`: fails as a write would.
    Try,
}

impl SettingChange {
    pub(super) fn apply(self, path: &Path, value: &str) -> io::Result<()> {
        match self {
            SettingChange::Write => std::fs::write(path, value),
            // Without O_TRUNC, which proc(5) ignores and a test's file does not.
            SettingChange::Try => OpenOptions::new().write(true).open(path).map(drop),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} the kernel setting {}: {source}", key.replace('/', "."))]
pub struct SysctlError {
    operation: &'static str,
    key: String,
    source: io::Error,
}

pub fn read(key: &str) -> Result<String, SysctlError> {
    let read = std::fs::read_to_string(path(key));
    read.map(|text| text.trim().to_owned()).map_err(|source| SysctlError { operation: "read", key: key.into(), source })
}

/// Writes only a different value: `/proc/sys` may be read-only in a container.
pub fn ensure(key: &str, value: &str, change: SettingChange) -> Result<(), SysctlError> {
    if read(key).is_ok_and(|present| present == value) {
        return Ok(());
    }
    change.apply(&path(key), value).map_err(|source| SysctlError { operation: "write", key: key.into(), source })
}

fn path(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(key)
}
