//! Says when the configuration file has changed. Upstream ends itself then, to be started again; a proxy that goes on
//! with what it has is the safer one, and the operator decides when it is time.

use std::path::{Path, PathBuf};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use crate::kubeproxy_config::LoadedConfig;

/// Watches until it is dropped.
#[derive(Debug)]
pub struct ConfigWatch {
    _watcher: RecommendedWatcher,
}

impl ConfigWatch {
    /// Begins to watch the file that was read.
    ///
    /// # Errors
    /// When its directory cannot be watched.
    pub fn start(loaded: &LoadedConfig) -> notify::Result<ConfigWatch> {
        let path = std::path::absolute(&loaded.file).unwrap_or_else(|_| PathBuf::from(&loaded.file));
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        let mut told = Told { read: loaded.digest, last: loaded.digest };
        // The directory, because a ConfigMap's file is a link that is swapped, and editors put a new file in place.
        let mut watcher = notify::recommended_watcher(move |_| told.look(&path))?;
        watcher.watch(&directory, RecursiveMode::NonRecursive)?;
        Ok(ConfigWatch { _watcher: watcher })
    }
}

/// What was read and what was last told of.
#[derive(Debug)]
struct Told {
    read: [u8; 32],
    last: [u8; 32],
}

#[derive(Debug, PartialEq, Eq)]
enum News {
    Changed,
    AsRead,
}

impl Told {
    fn look(&mut self, path: &Path) {
        // A file that is gone for a moment is being replaced.
        let Ok(bytes) = std::fs::read(path) else { return };
        match self.news(Sha256::digest(bytes).into()) {
            None => {}
            Some(News::Changed) => {
                warn!("the configuration file {} has changed; this takes effect with a restart", path.display());
            }
            Some(News::AsRead) => info!("the configuration file {} is again as it was read", path.display()),
        }
    }

    /// Each content is told once.
    fn news(&mut self, now: [u8; 32]) -> Option<News> {
        if now == std::mem::replace(&mut self.last, now) {
            return None;
        }
        Some(if now == self.read { News::AsRead } else { News::Changed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let mut told = Told { read: [1; 32], last: [1; 32] };
        assert_eq!(told.news([1; 32]), None);
        assert_eq!(told.news([2; 32]), Some(News::Changed));
        assert_eq!(told.news([2; 32]), None);
        assert_eq!(told.news([3; 32]), Some(News::Changed));
        assert_eq!(told.news([1; 32]), Some(News::AsRead));
    }
}
