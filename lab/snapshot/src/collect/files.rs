use std::fs::File;
use std::io::{self, Read};

/// The largest configuration file, in bytes.
pub(super) const LARGEST_CONFIG: u64 = 1 << 20;
/// The largest file of `/proc`, in bytes.
const LARGEST_PROC: u64 = 64 << 20;

/// Reads a file; refuses devices and pipes, which might never end.
pub(super) fn regular(file: File) -> io::Result<String> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    bounded(file, LARGEST_CONFIG)
}

/// Reads a file of the thread's network namespace; `/proc/net` is the first thread's.
pub(super) fn net(name: &str) -> io::Result<String> {
    proc(&format!("/proc/thread-self/net/{name}"))
}

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
