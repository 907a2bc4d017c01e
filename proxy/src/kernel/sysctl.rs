//! Kernel settings of this network namespace, under `/proc/sys/net`.

use std::path::PathBuf;

/// Routes packets to 127.0.0.0/8, for node ports on localhost (`Documentation/networking/ip-sysctl.rst`).
pub const ROUTE_LOCALNET: &str = "net/ipv4/conf/all/route_localnet";
/// Accepts out-of-window TCP segments as valid (`Documentation/networking/nf_conntrack-sysctl.rst`).
pub const TCP_BE_LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";

#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} the kernel setting {}: {source}", key.replace('/', "."))]
pub struct SysctlError {
    operation: &'static str,
    key: String,
    source: std::io::Error,
}

pub fn read(key: &str) -> Result<String, SysctlError> {
    let read = std::fs::read_to_string(path(key));
    read.map(|text| text.trim().to_owned()).map_err(|source| SysctlError { operation: "read", key: key.into(), source })
}

/// Sets a value, unless it is already set: `/proc/sys` may be read-only in a container.
pub fn ensure(key: &str, value: &str) -> Result<(), SysctlError> {
    if read(key).is_ok_and(|present| present == value) {
        return Ok(());
    }
    std::fs::write(path(key), value).map_err(|source| SysctlError { operation: "write", key: key.into(), source })
}

fn path(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(key)
}
