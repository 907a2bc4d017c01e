//! A folder of fetched and built parts. A hash of each part detects damage; damaged parts are built again.
//!
//! Only this user may write to, own or replace the folder, so other users cannot insert programs.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc::O_NOFOLLOW;

use super::VmError;
use super::tree;

const LAYOUT: &str = "v1";
/// The file with the hash.
const SEAL: &str = "seal";

/// A private folder of parts.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    pub(super) report: fn(&str),
}

/// An undamaged part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The part's folder.
    pub path: PathBuf,
    /// Hash of its content.
    pub hash: String,
}

impl Cache {
    /// Opens the first of `told`, `$SVCLAB_CACHE`, `$XDG_CACHE_HOME/svclab` and `~/.cache/svclab` that is set. Fails if
    /// others could write there.
    pub fn open(told: Option<&Path>) -> Result<Cache, VmError> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = told
            .map(Path::to_owned)
            .or_else(|| variable("SVCLAB_CACHE"))
            .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("svclab")))
            .or_else(|| variable("HOME").map(|home| home.join(".cache/svclab")));
        let root = root.ok_or_else(|| {
            VmError::Package("there is no place for a cache: set SVCLAB_CACHE, or give --cache-dir".to_owned())
        })?;
        let root = root.join(LAYOUT);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&root);
        made.map_err(VmError::io(format!("making the cache {}", root.display())))?;
        let root = fs::canonicalize(&root).map_err(VmError::io(format!("finding the cache {}", root.display())))?;
        make_private(&root)?;
        Ok(Cache { root, report: |_| () })
    }

    /// Calls `report` with each download's size before it starts.
    pub fn reporting(self, report: fn(&str)) -> Cache {
        Cache { report, ..self }
    }

    /// Returns a folder without hash, created if missing.
    pub fn folder(&self, name: &str) -> Result<PathBuf, VmError> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(VmError::io(format!("making {}", path.display())))?;
        Ok(path)
    }

    /// Returns a part if it exists undamaged.
    pub fn find(&self, name: &str) -> Option<Sealed> {
        let folder = self.root.join(name);
        let hash = fs::read_to_string(folder.join(SEAL)).ok()?;
        let path = folder.join("content");
        (tree::is_owned(&folder, own()).ok()? && tree::hash(&path).ok()? == hash).then_some(Sealed { path, hash })
    }

    /// Returns a part; if it is missing or damaged, `build` fills its folder under a lock.
    pub fn get(&self, name: &str, build: impl FnOnce(&Path) -> Result<(), VmError>) -> Result<Sealed, VmError> {
        if let Some(found) = self.find(name) {
            return Ok(found);
        }
        let _only_one = self.lock(&name.replace('/', "-"))?;
        if let Some(found) = self.find(name) {
            return Ok(found);
        }
        let place = self.root.join(name);
        let failed = || VmError::io(format!("writing {}", place.display()));
        // Part names contain dots, so this name is unique.
        let half = self.root.join(format!("{name}.half"));
        for old in [&half, &place] {
            if old.exists() {
                fs::remove_dir_all(old).map_err(failed())?;
            }
        }
        let content = half.join("content");
        fs::create_dir_all(&content).map_err(failed())?;
        build(&content)?;
        let hash = tree::hash(&content).map_err(failed())?;
        fs::write(half.join(SEAL), &hash).map_err(failed())?;
        fs::rename(&half, &place).map_err(failed())?;
        Ok(Sealed { path: place.join("content"), hash })
    }

    pub(super) fn lock(&self, name: &str) -> Result<File, VmError> {
        let path = self.root.join(format!("{name}.lock"));
        let failed = || VmError::io(format!("locking {}", path.display()));
        let mut how = OpenOptions::new();
        let file = how.write(true).create(true).mode(0o600).custom_flags(O_NOFOLLOW).open(&path).map_err(failed())?;
        file.lock().map_err(failed())?;
        Ok(file)
    }

    pub(super) fn prune(&self, kind: &str, keep: usize) {
        let Ok(entries) = fs::read_dir(self.root.join(kind)) else { return };
        let age = |path: &Path| fs::metadata(path.join(SEAL)).and_then(|meta| meta.modified()).ok();
        let mut parts: Vec<_> =
            entries.flatten().filter_map(|entry| Some((age(&entry.path())?, entry.path()))).collect();
        parts.sort();
        parts.reverse();
        for (_, path) in parts.into_iter().skip(keep) {
            // Running processes keep their open files; failures are ignored.
            let _ = fs::remove_dir_all(path);
        }
    }
}

fn own() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Creates `root`; fails if another user can change it.
fn make_private(root: &Path) -> Result<(), VmError> {
    let look = |path: &Path| fs::metadata(path).map_err(VmError::io(format!("looking at {}", path.display())));
    let unsafe_because = |path: &Path, why: &str| {
        VmError::Package(format!(
            "the cache {} is not safe to use: {} {why}; choose another with --cache-dir, or remove it",
            root.display(),
            path.display()
        ))
    };
    let meta = look(root)?;
    if meta.uid() != own() {
        return Err(unsafe_because(root, &format!("belongs to user {}", meta.uid())));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(unsafe_because(root, "can be written by other users"));
    }
    for above in root.ancestors().skip(1) {
        let meta = look(above)?;
        if !may_hold(&meta) {
            return Err(unsafe_because(above, "above it is another user's, who could put something else in its place"));
        }
    }
    if meta.mode() & 0o077 != 0 {
        let private = fs::set_permissions(root, Permissions::from_mode(0o700));
        private.map_err(VmError::io(format!("making {} private", root.display())))?;
    }
    Ok(())
}

/// Whether only this user and root can rename entries. With the sticky bit (`/tmp`) an entry's owner can, too.
fn may_hold(folder: &Metadata) -> bool {
    let trusted = folder.uid() == own() || folder.uid() == 0 || is_unmapped(folder.uid());
    trusted && (folder.mode() & 0o022 == 0 || folder.mode() & 0o1000 != 0)
}

/// Whether `uid` means a user without number in this user namespace (`/proc/sys/kernel/overflowuid`).
fn is_unmapped(uid: u32) -> bool {
    let all_users = fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.trim_end().ends_with(" 4294967295"));
    !all_users && fs::read_to_string("/proc/sys/kernel/overflowuid").is_ok_and(|text| text.trim() == uid.to_string())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(directory.path())).unwrap();
        (directory, cache)
    }

    #[test]
    fn a_part_is_built_once_and_again_when_it_is_damaged() {
        let (_directory, cache) = cache();
        let built = Cell::new(0);
        let get = || {
            cache.get("kind/one", |path| {
                built.set(built.get() + 1);
                fs::create_dir(path.join("sub")).unwrap();
                fs::write(path.join("sub/file"), "content").map_err(VmError::io("test"))
            })
        };
        let first = get().unwrap();
        assert_eq!(get().unwrap(), first);
        assert_eq!(built.get(), 1);
        let damages: [&dyn Fn(&Path); 4] = [
            &|path| fs::write(path.join("sub/file"), "contents").unwrap(),
            &|path| fs::remove_file(path.join("sub/file")).unwrap(),
            &|path| fs::write(path.join("more"), "").unwrap(),
            &|path| fs::remove_file(path.join("../seal")).unwrap(),
        ];
        for (times, damage) in (2..).zip(damages) {
            damage(&first.path);
            assert_eq!(get().unwrap(), first);
            assert_eq!(built.get(), times, "damage {} was not noticed", times - 1);
        }
    }

    #[test]
    fn two_parts_whose_names_differ_behind_a_dot_are_built_at_once() {
        let (_directory, cache) = cache();
        let write = |path: &Path, text: &str| fs::write(path.join("f"), text).map_err(VmError::io("test"));
        let outer = cache.get("packages/debian-6.1-0", |outer| {
            write(outer, "6.1")?;
            cache.get("packages/debian-6.12-0", |inner| write(inner, "6.12")).map(drop)
        });
        assert_eq!(fs::read_to_string(outer.unwrap().path.join("f")).unwrap(), "6.1");
        let inner = cache.find("packages/debian-6.12-0").unwrap();
        assert_eq!(fs::read_to_string(inner.path.join("f")).unwrap(), "6.12");
    }

    #[test]
    fn a_folder_that_others_can_write_is_no_cache() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join(LAYOUT);
        let open = || Cache::open(Some(directory.path()));
        assert!(open().is_ok());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&root), 0o700);
        fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
        assert!(open().is_ok());
        assert_eq!(mode(&root), 0o700, "others need not read it either");
        for (path, wrong) in [(&root, 0o775), (&root, 0o707), (&directory.path().to_owned(), 0o777)] {
            fs::set_permissions(path, Permissions::from_mode(wrong)).unwrap();
            let refused = open().unwrap_err().to_string();
            assert!(refused.contains("is not safe to use") && refused.contains("--cache-dir"), "{refused}");
            fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        }
        fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
        assert!(open().is_ok(), "as in /tmp");
    }

    #[test]
    fn what_another_user_owns_is_built_anew() {
        let (_directory, cache) = cache();
        let get = || cache.get("kind/one", |path| fs::write(path.join("f"), "f").map_err(VmError::io("test")));
        let part = get().unwrap();
        let other = std::os::unix::fs::chown(part.path.join("f"), Some(65_534), None);
        if other.is_err() {
            eprintln!("NOT RUN: only root can give a file away");
            return;
        }
        assert_eq!(cache.find("kind/one"), None);
        assert_eq!(fs::metadata(get().unwrap().path.join("f")).unwrap().uid(), own());
        std::os::unix::fs::chown(cache.root.as_path(), Some(65_534), None).unwrap();
        let refused = Cache::open(cache.root.parent()).unwrap_err().to_string();
        assert!(refused.contains("belongs to user 65534"), "{refused}");
    }

    #[test]
    fn a_lock_is_no_link() {
        let (directory, cache) = cache();
        let victim = directory.path().join("victim");
        fs::write(&victim, "content").unwrap();
        std::os::unix::fs::symlink(&victim, cache.root.join("kind-one.lock")).unwrap();
        assert!(cache.lock("kind-one").is_err());
        assert_eq!(fs::read_to_string(victim).unwrap(), "content");
    }

    #[test]
    fn what_could_not_be_built_is_not_there() {
        let (_directory, cache) = cache();
        let failed = cache.get("kind/one", |path| {
            fs::write(path.join("file"), "half").unwrap();
            Err(VmError::Package("no".to_owned()))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no");
        assert_eq!(cache.find("kind/one"), None);
    }

    #[test]
    fn only_the_newest_stay() {
        let (_directory, cache) = cache();
        for name in ["images/a", "images/b", "images/c"] {
            cache.get(name, |path| fs::write(path.join("f"), name).map_err(VmError::io("test"))).unwrap();
        }
        cache.prune("images", 1);
        let left = ["a", "b", "c"].map(|name| cache.find(&format!("images/{name}")).is_some());
        assert_eq!(left.iter().filter(|there| **there).count(), 1);
    }
}
