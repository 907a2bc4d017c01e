//! Says when the configuration file has changed. Upstream ends itself then, to be started again; a proxy that goes on
//! with what it has is the safer one, and the operator decides when it is time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use crate::kubeproxy_config::LoadedConfig;
use crate::small_file;

/// Changes within this time of the first one are read together: a ConfigMap's swap is some five events, an editor's save
/// as many, and a directory in which others write all the time costs ten small reads a second at most.
const GATHER: Duration = Duration::from_millis(100);

/// Watches until it is dropped.
#[derive(Debug)]
pub struct ConfigWatch {
    _watcher: RecommendedWatcher,
}

impl ConfigWatch {
    /// Begins to watch the file that was read.
    ///
    /// # Errors
    /// When its directory cannot be watched, or there can be no thread for it.
    pub fn start(loaded: &LoadedConfig) -> notify::Result<ConfigWatch> {
        let tell = |path: &Path, news| match news {
            News::Changed => {
                warn!("the configuration file {} has changed; this takes effect with a restart", path.display());
            }
            News::AsRead => info!("the configuration file {} is again as it was read", path.display()),
        };
        Self::telling(loaded, small_file::read, tell)
    }

    fn telling(
        loaded: &LoadedConfig,
        read: impl Fn(&Path) -> io::Result<Vec<u8>> + Send + 'static,
        tell: impl Fn(&Path, News) + Send + 'static,
    ) -> notify::Result<ConfigWatch> {
        let path = std::path::absolute(&loaded.file).unwrap_or_else(|_| PathBuf::from(&loaded.file));
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        let mut reported = ReportedConfig { read: loaded.digest, last: loaded.digest };
        let (sender, changes) = channel();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.is_ok_and(|event| !may_change(event.kind)) {
                return;
            }
            // The thread that listens ends after this watcher only.
            let _ = sender.send(());
        })?;
        // The directory, because a ConfigMap's file is a link that is swapped, and editors put a new file in place.
        watcher.watch(&directory, RecursiveMode::NonRecursive)?;
        std::thread::Builder::new().name("config-watch".to_owned()).spawn(move || {
            while gathered(&changes) {
                // A file that is gone for a moment is being replaced.
                let bytes = read(&path).ok();
                if let Some(news) = bytes.and_then(|bytes| reported.news(Sha256::digest(bytes).into())) {
                    tell(&path, news);
                }
            }
        })?;
        Ok(ConfigWatch { _watcher: watcher })
    }
}

/// Whether such an event may mean another content. To open a file and to read it, which this watch does itself, does not.
fn may_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

/// Waits for a change and takes all that come soon after it; false when there will be none any more.
fn gathered(changes: &Receiver<()>) -> bool {
    if changes.recv().is_err() {
        return false;
    }
    std::thread::sleep(GATHER);
    changes.try_iter().for_each(drop);
    true
}

/// What was read and what was last reported of.
#[derive(Debug)]
struct ReportedConfig {
    read: [u8; 32],
    last: [u8; 32],
}

#[derive(Debug, PartialEq, Eq)]
enum News {
    Changed,
    AsRead,
}

impl ReportedConfig {
    /// Each content is reported once.
    fn news(&mut self, now: [u8; 32]) -> Option<News> {
        if now == std::mem::replace(&mut self.last, now) {
            return None;
        }
        Some(if now == self.read { News::AsRead } else { News::Changed })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const TEXT: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A watch on `path`: what it tells, and how often it has read the file.
    fn watched(path: &Path) -> (ConfigWatch, Receiver<News>, Arc<AtomicUsize>) {
        let loaded = crate::kubeproxy_config::read(path).unwrap();
        let ((sender, reported), reads) = (channel(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&reads);
        let read = move |path: &Path| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::fs::read(path)
        };
        let watch = ConfigWatch::telling(&loaded, read, move |_, news| sender.send(news).unwrap()).unwrap();
        (watch, reported, reads)
    }

    #[test]
    fn a_file_that_is_replaced_is_told_of() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, TEXT).unwrap();
        let (_watch, reported, _) = watched(&path);
        let replace = |text: &str| {
            let new = directory.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, &path).unwrap();
        };
        replace("mode: ipvs\n");
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(News::Changed));
        replace(TEXT);
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(News::AsRead));
        std::fs::write(&path, "mode: userspace\n").unwrap();
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(News::Changed));
        assert!(reported.try_recv().is_err(), "each once");
    }

    #[test]
    fn a_config_map_whose_links_are_swapped_is_told_of() {
        let directory = tempfile::tempdir().unwrap();
        let below = |name: &str| directory.path().join(name);
        // As the kubelet lays a ConfigMap out (its AtomicWriter).
        let version = |name: &str, text: &str| {
            std::fs::create_dir(below(name)).unwrap();
            std::fs::write(below(name).join("config.conf"), text).unwrap();
            symlink(name, below("..data_tmp")).unwrap();
            std::fs::rename(below("..data_tmp"), below("..data")).unwrap();
        };
        version("..1", TEXT);
        symlink("..data/config.conf", below("config.conf")).unwrap();
        let (_watch, reported, _) = watched(&below("config.conf"));
        version("..2", "mode: ipvs\n");
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(News::Changed));
    }

    #[test]
    fn the_file_is_read_after_changes_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, TEXT).unwrap();
        let (_watch, reported, reads) = watched(&path);
        for _ in 0..500 {
            std::fs::read(&path).unwrap();
        }
        std::fs::write(&path, "mode: ipvs\n").unwrap();
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(News::Changed));
        // Truncated, written, closed: three events, together unless this machine is very busy.
        let after_a_change = reads.load(Ordering::SeqCst);
        assert!((1..=3).contains(&after_a_change), "{after_a_change} reads for one change");
        let opened = reads_raise(&path);
        assert!(!opened.is_empty() && !opened.into_iter().any(may_change));
    }

    /// The events of a file that is read.
    fn reads_raise(path: &Path) -> Vec<EventKind> {
        let (sender, events) = channel();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            sender.send(event.unwrap()).unwrap();
        })
        .unwrap();
        watcher.watch(path.parent().unwrap(), RecursiveMode::NonRecursive).unwrap();
        std::fs::read(path).unwrap();
        let end = path.with_file_name("end");
        std::fs::write(&end, "").unwrap();
        events.iter().take_while(|event| !event.paths.contains(&end)).map(|event| event.kind).collect()
    }

    #[test]
    fn each_change_is_told_once() {
        let mut reported = ReportedConfig { read: [1; 32], last: [1; 32] };
        assert_eq!(reported.news([1; 32]), None);
        assert_eq!(reported.news([2; 32]), Some(News::Changed));
        assert_eq!(reported.news([2; 32]), None);
        assert_eq!(reported.news([3; 32]), Some(News::Changed));
        assert_eq!(reported.news([1; 32]), Some(News::AsRead));
    }
}
