//! A file as another process sees it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::super::files;

/// A path that starts from a directory of another process's. Neither `..` nor a symbolic link leads out of that directory: what is in a
/// container is not the node's, whatever it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inside {
    root: PathBuf,
    path: PathBuf,
}

impl Inside {
    pub(crate) fn new(root: &Path, path: &str) -> Inside {
        Inside { root: root.to_owned(), path: path.into() }
    }

    /// A file of the node's own.
    pub(super) fn here(path: &Path) -> Inside {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Inside { root: "/".into(), path }
    }

    /// A path that a file names: a relative one starts from the file's own directory.
    pub(crate) fn beside(&self, path: &str) -> Inside {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        Inside { root: self.root.clone(), path: directory.join(path) }
    }

    /// Reads a regular file of at most 1 MiB. Needs Linux 5.6 (openat2(2)).
    pub(crate) fn read(&self) -> io::Result<String> {
        let root = File::open(&self.root)?;
        // Opening a pipe would wait for a writer.
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        files::regular(File::from(openat2(&root, &self.path, how)?))
    }
}
