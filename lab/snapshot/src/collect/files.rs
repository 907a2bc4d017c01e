//! Files that are read with a bound.

use std::fs::File;
use std::io::{self, Read};

/// Bytes that a configuration file may have.
pub(super) const LARGEST_CONFIG: u64 = 1 << 20;
/// Bytes that a file in `/proc` may have.
const LARGEST_PROC: u64 = 64 << 20;

/// Reads what must be a regular file: a device might never end.
pub(super) fn regular(file: File) -> io::Result<String> {
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
