//! Files that are read with a bound.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc::O_NONBLOCK;

/// Bytes that a configuration file may have.
pub(super) const LARGEST_CONFIG: u64 = 1 << 20;
/// Bytes that a file in `/proc` may have.
const LARGEST_PROC: u64 = 64 << 20;

/// Reads a regular file: a pipe or a device might never end.
pub(super) fn config(path: &Path) -> io::Result<String> {
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    bounded(file, LARGEST_CONFIG)
}

/// Reads a file of `/proc/net`: of the thread's network namespace, where `/proc/net` itself is the first thread's.
pub(super) fn net(name: &str) -> io::Result<String> {
    proc(&format!("/proc/thread-self/net/{name}"))
}

/// Reads a file of `/proc`.
pub(super) fn proc(path: &str) -> io::Result<String> {
    bounded(File::open(path)?, LARGEST_PROC)
}

fn bounded(file: File, largest: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(largest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > largest {
        return Err(io::Error::other(format!("it is longer than {largest} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
