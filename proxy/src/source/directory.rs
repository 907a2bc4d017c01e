//! Finds and reads the manifest files of a directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::SourceError;

/// Largest manifest file, in bytes.
pub(super) const LARGEST_FILE: u64 = 64 << 20;
/// Deepest nesting of directories; a bound for link farms that are no cycle.
const DEEPEST: usize = 16;
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// A manifest file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Path relative to the directory, as it is told to people.
    pub name: String,
    /// Where to read it.
    pub path: PathBuf,
}

/// What a walk through a directory found.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Manifest files, in the order of their names.
    pub files: Vec<Found>,
    /// Directories that could not be entered: their names, each with a final `/`, and why.
    pub closed: Vec<(String, String)>,
}

/// Whoever wants to know what a walk comes by. It is told before things are read, so that one who then watches them
/// misses nothing.
pub(super) trait Observer {
    /// A walk begins; the answer is where.
    fn start(&mut self) -> PathBuf;
    /// The entries of this directory are read next.
    fn directory(&mut self, _path: &Path) {}
    /// This file is read next.
    fn file(&mut self, _path: &Path) {}
}

/// An observer for a directory that is read once.
pub(super) struct Once<'a>(pub &'a Path);

impl Observer for Once<'_> {
    fn start(&mut self) -> PathBuf {
        self.0.to_owned()
    }
}

/// All manifest files below a directory. Hidden files and directories are left out, links are followed: a mounted
/// ConfigMap is nothing but links into a hidden directory.
pub(super) fn walk(observer: &mut dyn Observer) -> Result<Walk, SourceError> {
    let root = observer.start();
    let mut walk = Walk::default();
    visit(&root, "", &mut Vec::new(), observer, &mut walk).map_err(|error| SourceError::Directory {
        attempt: "read",
        path: root.display().to_string(),
        cause: error.to_string(),
    })?;
    walk.files.sort();
    Ok(walk)
}

fn visit(
    directory: &Path,
    prefix: &str,
    above: &mut Vec<(u64, u64)>,
    observer: &mut dyn Observer,
    walk: &mut Walk,
) -> io::Result<()> {
    let metadata = fs::metadata(directory)?;
    let identity = (metadata.dev(), metadata.ino());
    if above.contains(&identity) || above.len() > DEEPEST {
        return Ok(());
    }
    observer.directory(directory);
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        paths.push(entry?.path());
    }
    above.push(identity);
    for path in paths {
        let Some(name) = path.file_name().map(|n| n.to_string_lossy().into_owned()) else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{name}");
        if fs::metadata(&path).is_ok_and(|m| m.is_dir()) {
            let name = format!("{name}/");
            match visit(&path, &name, above, observer, walk) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    walk.closed.push((name, format!("cannot be read: {error}")));
                }
                // A directory that went while it was walked is like one that was never there.
                _ => {}
            }
        } else if is_manifest(&path) {
            walk.files.push(Found { name, path });
        }
    }
    above.pop();
    Ok(())
}

/// Whether a file's name says that it is a manifest.
pub(super) fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str());
    extension.is_some_and(|e| EXTENSIONS.contains(&e))
}

/// What reading a file came to.
#[derive(Debug)]
pub(super) enum ReadOutcome {
    /// Its content.
    Bytes(Vec<u8>),
    /// There is no such file any more.
    Gone,
    /// It is there, but cannot be read: why.
    Failed(String),
}

/// Reads a manifest file.
pub(super) fn read(path: &Path) -> ReadOutcome {
    match bytes(path) {
        Ok(bytes) => ReadOutcome::Bytes(bytes),
        // A link that leads nowhere is there, and its file is not.
        Err(_) if path.symlink_metadata().is_err() => ReadOutcome::Gone,
        Err(message) => ReadOutcome::Failed(message),
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let denied = |error: io::Error| format!("cannot be read: {error}");
    // Without O_NONBLOCK, opening a named pipe would wait for a writer.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(nix::libc::O_NONBLOCK);
    let file: File = options.open(path).map_err(denied)?;
    let metadata = file.metadata().map_err(denied)?;
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let too_large = || format!("is larger than {} MiB", LARGEST_FILE >> 20);
    if metadata.len() > LARGEST_FILE {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let taken = file.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(denied)?;
    if taken as u64 > LARGEST_FILE {
        return Err(too_large());
    }
    Ok(bytes)
}
