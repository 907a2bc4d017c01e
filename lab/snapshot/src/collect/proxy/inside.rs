use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::super::files;

/// A path in another process's root directory. Neither `..` nor a symbolic link leaves it: a container must not make
/// the program read the node's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainedPath {
    root: PathBuf,
    path: PathBuf,
}

impl ContainedPath {
    pub(crate) fn new(root: &Path, path: &str) -> ContainedPath {
        ContainedPath { root: root.to_owned(), path: path.into() }
    }

    pub(super) fn here(path: &Path) -> ContainedPath {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        ContainedPath { root: "/".into(), path }
    }

    pub(crate) fn beside(&self, path: &str) -> ContainedPath {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        ContainedPath { root: self.root.clone(), path: directory.join(path) }
    }

    /// Reads a regular file of at most 1 MiB. Needs Linux 5.6 (openat2(2)).
    pub(crate) fn read(&self) -> io::Result<String> {
        let root = File::open(&self.root)?;
        // Opening a pipe would block without `O_NONBLOCK`.
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        files::regular(File::from(openat2(&root, &self.path, how)?))
    }
}
