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
        Self::telling(loaded, |path, news| match news {
            News::Changed => {
                warn!("the configuration file {} has changed; this takes effect with a restart", path.display());
            }
            News::AsRead => info!("the configuration file {} is again as it was read", path.display()),
        })
    }

    fn telling(
        loaded: &LoadedConfig,
        mut tell: impl FnMut(&Path, News) + Send + 'static,
    ) -> notify::Result<ConfigWatch> {
        let path = std::path::absolute(&loaded.file).unwrap_or_else(|_| PathBuf::from(&loaded.file));
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        let mut told = Told { read: loaded.digest, last: loaded.digest };
        // The directory, because a ConfigMap's file is a link that is swapped, and editors put a new file in place.
        let mut watcher = notify::recommended_watcher(move |_| {
            if let Some(news) = told.look(&path) {
                tell(&path, news);
            }
        })?;
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
    fn look(&mut self, path: &Path) -> Option<News> {
        // A file that is gone for a moment is being replaced.
        let bytes = std::fs::read(path).ok()?;
        self.news(Sha256::digest(bytes).into())
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
    fn a_file_that_is_replaced_is_told_of() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        std::fs::write(&path, text).unwrap();
        let loaded = crate::kubeproxy_config::read(&path).unwrap();
        let (sender, told) = std::sync::mpsc::channel();
        let _watch = ConfigWatch::telling(&loaded, move |_, news| sender.send(news).unwrap()).unwrap();
        let replace = |text: &str| {
            let new = directory.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, &path).unwrap();
        };
        let patience = std::time::Duration::from_secs(30);
        replace("mode: ipvs\n");
        assert_eq!(told.recv_timeout(patience), Ok(News::Changed));
        replace(text);
        assert_eq!(told.recv_timeout(patience), Ok(News::AsRead));
        assert!(told.try_recv().is_err(), "each once");
    }

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
