//! Reads files that users name, up to a limit: endless files (`/dev/zero`, an open pipe) are an error. Scenarios and
//! descriptions of proxies may be embedded. A scenario may come from standard input.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc::O_NONBLOCK;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::dup2_stdin;

use crate::shipped;

/// The most bytes of a file: ten times the manifests of a large cluster.
const LONGEST: u64 = 64 << 20;
const LONGEST_DUMP: u64 = 256 << 20;

/// The path of the scenario that was given as `-`.
pub(crate) const STANDARD_INPUT: &str = "<stdin>";

/// Reads standard input and replaces it with a sealed file in memory, which this process and those that it starts can
/// read from the beginning.
pub(crate) fn keep_standard_input() -> io::Result<()> {
    if is_standard_input_kept() {
        return Ok(());
    }
    let text = bounded(io::stdin().lock(), LONGEST)?;
    let kept = memfd_create("scenario", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    let mut kept = File::from(kept);
    kept.write_all(text.as_bytes())?;
    fcntl(&kept, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SEAL))?;
    Ok(dup2_stdin(&kept)?)
}

/// Whether this process or one that started it has called [`keep_standard_input`].
pub(crate) fn is_standard_input_kept() -> bool {
    let seals = fcntl(io::stdin(), FcntlArg::F_GET_SEALS).unwrap_or(0);
    SealFlag::from_bits_retain(seals).contains(SealFlag::F_SEAL_WRITE)
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT && is_standard_input_kept()
}

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
        self.given.contains_key(path) || is_standard_input(path) || path.is_file() || shipped::text(path).is_some()
    }

    /// # Errors
    /// When no source has the text, or a file on disk is not a regular file of at most 64 MiB.
    pub fn text(&self, path: &Path) -> io::Result<String> {
        match self.given.get(path) {
            Some(given) => Ok(given.clone()),
            None if is_standard_input(path) => text(Path::new("/proc/self/fd/0")),
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
        assert!(text(Path::new("/proc/nowhere")).is_err());
        let file = directory.path().join("file");
        std::fs::write(&file, "content").unwrap();
        assert_eq!(text(&file).unwrap(), "content");
    }
}
