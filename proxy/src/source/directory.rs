use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::SourceError;

/// In bytes.
pub(super) const LARGEST_FILE: u64 = 64 << 20;
const DEEPEST: usize = 16;
/// Each directory takes a watch; the kernel allows a user at least 8,192 (inotify(7), `max_user_watches`).
const MOST_DIRECTORIES: usize = 1_000;
const MOST_FILES: usize = 10_000;
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManifestFile {
    /// The path, relative to the manifest directory.
    pub name: String,
    pub path: PathBuf,
    /// Whether the entry is a link out of the directory.
    pub is_outside: bool,
}

#[derive(Debug, Default)]
pub(super) struct DirectoryWalk {
    pub files: Vec<ManifestFile>,
    /// Entries that could not be read or exceed a limit (directories with a final `/`). Beyond a limit only the first
    /// has a reason.
    pub closed: Vec<(String, Option<String>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WalkLimit {
    Depth,
    Directories,
    Files,
}

impl WalkLimit {
    fn message(self, others: usize) -> String {
        let others = if others > 0 { format!(", nor are {others} others") } else { String::new() };
        let why = match self {
            WalkLimit::Depth => format!("it lies deeper than {DEEPEST} directories"),
            WalkLimit::Directories => format!("there are more than {MOST_DIRECTORIES} directories"),
            WalkLimit::Files => format!("there are more than {MOST_FILES} manifest files"),
        };
        format!("is not read{others}: {why}")
    }
}

pub(super) const OUTSIDE: &str = "is a link to a target outside the manifest directory, and is not followed";

/// Is called before each read, so that a watch misses no change.
pub(super) trait WalkObserver {
    fn start(&mut self) -> PathBuf;
    fn directory(&mut self, _path: &Path) {}
    fn file(&mut self, _path: &Path) {}
}

pub(super) struct SingleWalk<'a>(pub &'a Path);

impl WalkObserver for SingleWalk<'_> {
    fn start(&mut self) -> PathBuf {
        self.0.to_owned()
    }
}

/// Omits hidden files. Follows links within the directory, as in a mounted ConfigMap, and visits each directory once.
pub(super) fn walk(observer: &mut dyn WalkObserver) -> Result<DirectoryWalk, SourceError> {
    let root = observer.start();
    let failed = |error: io::Error| SourceError::Directory {
        operation: "read",
        path: root.display().to_string(),
        cause: error.to_string(),
    };
    let real = fs::canonicalize(&root).map_err(failed)?;
    let mut walker = Walker {
        root: real,
        observer,
        entered: BTreeSet::new(),
        linked: BTreeSet::new(),
        walk: DirectoryWalk::default(),
        beyond: BTreeMap::new(),
    };
    walker.visit(&root, "", 0).map_err(failed)?;
    Ok(walker.end())
}

struct Walker<'o> {
    /// The manifest directory's canonical path.
    root: PathBuf,
    observer: &'o mut dyn WalkObserver,
    /// Visited directories by device and inode.
    entered: BTreeSet<(u64, u64)>,
    /// Watched directories of link targets.
    linked: BTreeSet<PathBuf>,
    walk: DirectoryWalk,
    beyond: BTreeMap<WalkLimit, Vec<String>>,
}

impl Walker<'_> {
    fn visit(&mut self, directory: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        let metadata = fs::metadata(directory)?;
        let identity = (metadata.dev(), metadata.ino());
        if self.entered.contains(&identity) {
            return Ok(());
        }
        if let Some(bound) = self.bound(depth) {
            self.skip_beyond(bound, prefix.to_owned());
            return Ok(());
        }
        self.entered.insert(identity);
        self.observer.directory(directory);
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory)? {
            paths.push(entry?.path());
        }
        // Sorted, so that each walk stops at the same entries.
        paths.sort();
        for path in paths {
            self.entry(path, prefix, depth);
        }
        Ok(())
    }

    fn bound(&self, depth: usize) -> Option<WalkLimit> {
        match depth {
            _ if depth > DEEPEST => Some(WalkLimit::Depth),
            _ if self.entered.len() + self.linked.len() >= MOST_DIRECTORIES => Some(WalkLimit::Directories),
            _ => None,
        }
    }

    fn entry(&mut self, path: PathBuf, prefix: &str, depth: usize) {
        let Some(name) = path.file_name().map(|n| n.to_string_lossy().into_owned()) else { return };
        if name.starts_with('.') {
            return;
        }
        let name = format!("{prefix}{name}");
        let link = fs::symlink_metadata(&path).is_ok_and(|m| m.is_symlink());
        let target = if link { target(&path) } else { None };
        let is_outside = target.as_ref().is_some_and(|target| !target.starts_with(&self.root));
        if fs::metadata(&path).is_ok_and(|m| m.is_dir()) {
            let name = format!("{name}/");
            if is_outside {
                return self.walk.closed.push((name, Some(OUTSIDE.to_owned())));
            }
            match self.visit(&path, &name, depth + 1) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.walk.closed.push((name, Some(format!("cannot be read: {error}"))));
                }
                // The entry was removed during the walk.
                _ => {}
            }
        } else if is_manifest(&path) {
            self.file(ManifestFile { name, path, is_outside }, target);
        }
    }

    fn file(&mut self, found: ManifestFile, target: Option<PathBuf>) {
        if self.walk.files.len() >= MOST_FILES {
            return self.skip_beyond(WalkLimit::Files, found.name);
        }
        let lies_in = target.filter(|_| !found.is_outside).and_then(|target| Some(target.parent()?.to_owned()));
        if let Some(directory) = lies_in
            && !self.linked.contains(&directory)
        {
            if let Some(bound) = self.bound(0) {
                return self.skip_beyond(bound, found.name);
            }
            self.linked.insert(directory);
        }
        self.walk.files.push(found);
    }

    fn skip_beyond(&mut self, bound: WalkLimit, name: String) {
        self.beyond.entry(bound).or_default().push(name);
    }

    fn end(self) -> DirectoryWalk {
        let mut walk = self.walk;
        for (bound, names) in self.beyond {
            let others = names.len() - 1;
            let lines = std::iter::once(Some(bound.message(others))).chain(std::iter::repeat(None));
            walk.closed.extend(names.into_iter().zip(lines));
        }
        walk.files.sort();
        walk
    }
}

/// Returns a link's target; `None` if the target's directory is missing.
pub(super) fn target(link: &Path) -> Option<PathBuf> {
    if let Ok(target) = fs::canonicalize(link) {
        return Some(target);
    }
    let named = link.parent()?.join(fs::read_link(link).ok()?);
    Some(fs::canonicalize(named.parent()?).ok()?.join(named.file_name()?))
}

pub(super) fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str());
    extension.is_some_and(|e| EXTENSIONS.contains(&e))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A younger timestamp does not identify the content: a later change may get the same one. The kernel's file clock has
/// steps of 10 ms at HZ=100, some file systems store seconds or two.
const SETTLED: Duration = Duration::from_secs(3);

impl FileStamp {
    fn of(metadata: &fs::Metadata) -> FileStamp {
        FileStamp {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    pub(super) fn at(path: &Path) -> Option<FileStamp> {
        fs::metadata(path).ok().map(|metadata| FileStamp::of(&metadata))
    }

    /// Whether the timestamp is old enough; false if the clock was set back.
    fn is_settled(&self, now: SystemTime) -> bool {
        let changed = u64::try_from(self.changed.0).map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        changed.is_ok_and(|changed| now.duration_since(changed).is_ok_and(|age| age >= SETTLED))
    }
}

#[derive(Debug)]
pub(super) enum ReadOutcome {
    /// The content, without a stamp if changed too recently.
    Bytes(Vec<u8>, Option<FileStamp>),
    Gone,
    Failed(String),
}

pub(super) fn read(path: &Path) -> ReadOutcome {
    match bytes(path) {
        Ok((bytes, stamp)) => ReadOutcome::Bytes(bytes, stamp),
        // A link without a target is unreadable, not gone.
        Err(_) if path.symlink_metadata().is_err() => ReadOutcome::Gone,
        Err(message) => ReadOutcome::Failed(message),
    }
}

fn bytes(path: &Path) -> Result<(Vec<u8>, Option<FileStamp>), String> {
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
    // The stamp is taken before the content, so that a concurrent write changes it.
    let stamp = Some(FileStamp::of(&metadata)).filter(|stamp| stamp.is_settled(SystemTime::now()));
    let mut bytes = Vec::new();
    let taken = file.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(denied)?;
    if taken as u64 > LARGEST_FILE {
        return Err(too_large());
    }
    Ok((bytes, stamp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn found(root: &TempDir) -> (Vec<String>, Vec<(String, Option<String>)>) {
        let walk = walk(&mut SingleWalk(root.path())).unwrap();
        (walk.files.into_iter().filter(|one| !one.is_outside).map(|one| one.name).collect(), walk.closed)
    }

    #[test]
    fn only_links_within_the_directory_are_followed() {
        let (root, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        fs::write(outside.path().join("x.yaml"), "").unwrap();
        fs::create_dir(root.path().join("..data")).unwrap();
        fs::write(root.path().join("..data/in.yaml"), "").unwrap();
        for (target, name) in [
            (outside.path(), "dir"),
            (&outside.path().join("x.yaml"), "file.yaml"),
            (&outside.path().join("none.yaml"), "later.yaml"),
            (Path::new("..data/in.yaml"), "in.yaml"),
            (Path::new("dir/../../x.yaml"), "up.yaml"),
        ] {
            symlink(target, root.path().join(name)).unwrap();
        }
        let (files, closed) = found(&root);
        assert_eq!(files, ["in.yaml"]);
        assert_eq!(closed, [("dir/".to_owned(), Some(OUTSIDE.to_owned()))]);
        let named = outside.path().join("named");
        symlink(root.path(), &named).unwrap();
        let walk = walk(&mut SingleWalk(&named)).unwrap();
        assert!(walk.files.iter().any(|one| one.name == "in.yaml" && !one.is_outside), "{walk:?}");
    }

    #[test]
    fn cyclic_links_end() {
        let root = TempDir::new().unwrap();
        for i in 0..12 {
            let directory = root.path().join(format!("d{i}"));
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("x.yaml"), "").unwrap();
            (0..12).for_each(|to| symlink(format!("../d{to}"), directory.join(format!("l{to}"))).unwrap());
        }
        let (files, closed) = found(&root);
        assert_eq!((files.len(), closed.len()), (12, 0), "{files:?} {closed:?}");
    }

    #[test]
    fn entries_beyond_a_limit_are_reported_in_one_line() {
        let root = TempDir::new().unwrap();
        for i in 0..MOST_DIRECTORIES + 5 {
            fs::create_dir(root.path().join(format!("{i:05}"))).unwrap();
        }
        let deep: PathBuf = std::iter::repeat_n("00000", DEEPEST + 3).collect();
        fs::create_dir_all(root.path().join(&deep)).unwrap();
        fs::write(root.path().join("00000/x.yaml"), "").unwrap();
        fs::write(root.path().join(&deep).join("y.yaml"), "").unwrap();
        let (files, closed) = found(&root);
        assert_eq!(files, ["00000/x.yaml"]);
        let lines: Vec<&str> = closed.iter().filter_map(|(_, line)| line.as_deref()).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0], "is not read: it lies deeper than 16 directories");
        assert!(lines[1].ends_with("others: there are more than 1000 directories"), "{lines:?}");
        assert!(closed.len() > 6, "each is known, so that what it held is kept");
    }

    #[test]
    fn a_file_that_changed_has_another_stamp() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("x.yaml");
        fs::write(&path, "a: 1").unwrap();
        let first = FileStamp::at(&path).unwrap();
        assert_eq!(FileStamp::at(&path), Some(first));
        assert!(!first.is_settled(SystemTime::now()) && first.is_settled(SystemTime::now() + 2 * SETTLED));
        assert!(!first.is_settled(UNIX_EPOCH), "the clock was set back");
        fs::write(root.path().join("y"), "a: 1").unwrap();
        fs::rename(root.path().join("y"), &path).unwrap();
        assert_ne!(FileStamp::at(&path), Some(first));
        fs::write(&path, "a: 10").unwrap();
        assert_ne!(FileStamp::at(&path), Some(first));
    }
}
