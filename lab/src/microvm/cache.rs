//! The folder that keeps what was fetched and built: each part is sealed with a hash of its content, and one that no
//! longer matches its seal is built again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::VmError;
use super::tree;

/// Changes whenever what lies in the cache changes its shape.
const LAYOUT: &str = "v1";
/// Name of the file with the hash, beside the folder `content`.
const SEAL: &str = "seal";

/// The cache.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// A part of the cache whose content matches its seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The folder.
    pub path: PathBuf,
    /// The hash of its content.
    pub hash: String,
}

impl Cache {
    /// Opens the cache at `told`, `$SVCLAB_CACHE`, `$XDG_CACHE_HOME/svclab` or `~/.cache/svclab`, whichever is given first.
    ///
    /// # Errors
    /// When there is none of these, or it cannot be made.
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
        fs::create_dir_all(&root).map_err(VmError::io(format!("making the cache {}", root.display())))?;
        let root = fs::canonicalize(&root).map_err(VmError::io(format!("finding the cache {}", root.display())))?;
        Ok(Cache { root })
    }

    /// A folder of the cache that is not sealed: it is made if it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn folder(&self, name: &str) -> Result<PathBuf, VmError> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(VmError::io(format!("making {}", path.display())))?;
        Ok(path)
    }

    /// The sealed part `name` if it is there and undamaged.
    pub fn find(&self, name: &str) -> Option<Sealed> {
        let folder = self.root.join(name);
        let hash = fs::read_to_string(folder.join(SEAL)).ok()?;
        let path = folder.join("content");
        (tree::hash(&path).ok()? == hash).then_some(Sealed { path, hash })
    }

    /// The sealed part `name`; `build` fills its folder where it is missing or damaged. Others wait meanwhile.
    ///
    /// # Errors
    /// Those of `build`, and of the files.
    pub fn get(&self, name: &str, build: impl FnOnce(&Path) -> Result<(), VmError>) -> Result<Sealed, VmError> {
        if let Some(found) = self.find(name) {
            return Ok(found);
        }
        let _only_one = self.lock(&name.replace('/', "-"))?;
        // Another may have built it while this one waited.
        if let Some(found) = self.find(name) {
            return Ok(found);
        }
        let place = self.root.join(name);
        let failed = || VmError::io(format!("writing {}", place.display()));
        let half = place.with_extension("half");
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

    /// Holds the lock `name` until the file is dropped.
    pub(super) fn lock(&self, name: &str) -> Result<File, VmError> {
        let path = self.root.join(format!("{name}.lock"));
        let failed = || VmError::io(format!("locking {}", path.display()));
        let file = File::create(&path).map_err(failed())?;
        file.lock().map_err(failed())?;
        Ok(file)
    }

    /// Removes all but the `keep` parts of folder `kind` that were built last.
    pub(super) fn prune(&self, kind: &str, keep: usize) {
        let Ok(entries) = fs::read_dir(self.root.join(kind)) else { return };
        let age = |path: &Path| fs::metadata(path.join(SEAL)).and_then(|meta| meta.modified()).ok();
        let mut parts: Vec<_> =
            entries.flatten().filter_map(|entry| Some((age(&entry.path())?, entry.path()))).collect();
        parts.sort();
        parts.reverse();
        for (_, path) in parts.into_iter().skip(keep) {
            // Whoever is using it has it open; what cannot be removed stays.
            let _ = fs::remove_dir_all(path);
        }
    }
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
