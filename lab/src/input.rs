//! Files that users name, read with a bound: what never ends (`/dev/zero`, a pipe that stays open) is refused, and not waited for.
//! A scenario or a description of a proxy that is not on disk may be one that the program carries.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc::O_NONBLOCK;

use crate::shipped;

/// Bytes that a scenario, a manifest or a description of a proxy may have: a large cluster's manifests are a tenth of it.
const LONGEST: u64 = 64 << 20;
/// Bytes that a dump may have: half a million rules are as long.
const LONGEST_DUMP: u64 = 256 << 20;

/// Texts by path: first those that were given, then files on disk, then those that the program carries.
#[derive(Debug, Clone, Default)]
pub struct Files {
    given: BTreeMap<PathBuf, String>,
}

impl Files {
    /// With these texts in the place of what is on disk.
    pub fn given(texts: BTreeMap<PathBuf, String>) -> Files {
        Files { given: texts }
    }

    /// Whether there is such a text.
    pub fn has(&self, path: &Path) -> bool {
        self.given.contains_key(path) || path.is_file() || shipped::text(path).is_some()
    }

    /// Reads a text.
    ///
    /// # Errors
    /// When it is neither given, nor on disk as a regular file of 64 MiB at most, nor carried by the program.
    pub fn text(&self, path: &Path) -> io::Result<String> {
        match self.given.get(path) {
            Some(given) => Ok(given.clone()),
            None => text(path).or_else(|error| match shipped::text(path) {
                Some(carried) if error.kind() == io::ErrorKind::NotFound => Ok(carried.to_owned()),
                _ => Err(error),
            }),
        }
    }
}

/// Reads a text that must be a regular file.
///
/// # Errors
/// When it is none, is longer than 64 MiB, or cannot be read.
pub fn text(path: &Path) -> io::Result<String> {
    // Opening a pipe would wait for a writer.
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file; write what it would give into one"));
    }
    bounded(file, LONGEST)
}

/// Reads a dump, which may come from a pipe (`--rules <(ssh node iptables-save)`).
///
/// # Errors
/// When it is longer than 256 MiB, or cannot be read.
pub fn dump(path: &Path) -> io::Result<String> {
    bounded(File::open(path)?, LONGEST_DUMP)
}

fn bounded(file: impl Read, longest: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(io::Error::other(format!("it is longer than {} MiB", longest >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is no text in UTF-8"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_never_ends_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for endless in [Path::new("/dev/zero"), &pipe, directory.path()] {
            let refused = text(endless).unwrap_err().to_string();
            assert!(refused.contains("no regular file"), "{refused}");
        }
        assert_eq!(bounded(io::repeat(b'x'), 1 << 20).unwrap_err().to_string(), "it is longer than 1 MiB");
        assert_eq!(bounded(io::repeat(b'x').take(1 << 20), 1 << 20).unwrap().len(), 1 << 20);
        assert!(text(Path::new("/nowhere")).is_err());
        let file = directory.path().join("file");
        std::fs::write(&file, "content").unwrap();
        assert_eq!(text(&file).unwrap(), "content");
    }
}
