//! Kernel settings under `/proc/sys/net`, of the network namespace that the proxy runs in.

use std::path::PathBuf;

/// Lets packets to 127.0.0.0/8 be routed, which node ports on localhost need
/// (`Documentation/networking/ip-sysctl.rst`).
pub const ROUTE_LOCALNET: &str = "net/ipv4/conf/all/route_localnet";
/// Conntrack takes out-of-window TCP segments for valid (`Documentation/networking/nf_conntrack-sysctl.rst`).
pub const TCP_BE_LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";

/// A setting that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} the kernel setting {}: {source}", key.replace('/', "."))]
pub struct SysctlError {
    operation: &'static str,
    key: String,
    source: std::io::Error,
}

/// Reads a setting.
///
/// # Errors
/// When it is not there or not readable.
pub fn read(key: &str) -> Result<String, SysctlError> {
    let read = std::fs::read_to_string(path(key));
    read.map(|text| text.trim().to_owned()).map_err(|source| SysctlError { operation: "read", key: key.into(), source })
}

/// Sees to it that a setting has this value; does not write what already stands there, as `/proc/sys` may be
/// read-only in a container.
///
/// # Errors
/// When it is another value and cannot be written.
pub fn ensure(key: &str, value: &str) -> Result<(), SysctlError> {
    if read(key).is_ok_and(|present| present == value) {
        return Ok(());
    }
    std::fs::write(path(key), value).map_err(|source| SysctlError { operation: "write", key: key.into(), source })
}

fn path(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(key)
}
