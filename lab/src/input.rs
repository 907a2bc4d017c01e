//! Reads files that users name, up to a limit: endless files (`/dev/zero`, an open pipe) are an error. Scenarios and
//! descriptions of proxies may be embedded.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc::O_NONBLOCK;

use crate::shipped;

/// The most bytes of a file: ten times the manifests of a large cluster.
const LONGEST: u64 = 64 << 20;
const LONGEST_DUMP: u64 = 256 << 20;

/// Texts by path. Looks first in given texts, then on disk, then in embedded files.
#[derive(Debug, Clone, Default)]
pub struct InputFiles {
    given: BTreeMap<PathBuf, String>,
}

impl InputFiles {
    pub fn given(texts: BTreeMap<PathBuf, String>) -> InputFiles {
        InputFiles { given: texts }
    }

    pub fn has(&self, path: &Path) -> bool {
        self.given.contains_key(path) || path.is_file() || shipped::text(path).is_some()
    }

    /// # Errors
    /// When no source has the text, or a file on disk is not a regular file of at most 64 MiB.
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

pub fn text(path: &Path) -> io::Result<String> {
    // Without `O_NONBLOCK`, opening a pipe would block.
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file; write what it would give into one"));
    }
    bounded(file, LONGEST)
}

/// Reads a dump, which may be a pipe (`--rules <(ssh node iptables-save)`).
///
/// # Errors
/// When the dump is longer than 256 MiB.
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
    fn endless_files_are_errors() {
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
