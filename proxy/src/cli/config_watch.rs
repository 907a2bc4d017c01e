//! kube-proxy exits when its configuration file changes; this proxy logs it and keeps the old configuration, unless
//! `restartOnConfigChange` is set.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use crate::kubeproxy_config::LoadedConfig;
use crate::small_file;

/// One read handles all events within this time: swapping a ConfigMap causes about five.
const GATHER: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct ConfigWatch {
    _watcher: RecommendedWatcher,
}

impl ConfigWatch {
    pub fn start(loaded: &LoadedConfig, restart: RestartOnChange) -> notify::Result<ConfigWatch> {
        let report = move |path: &Path, news| match news {
            ContentChange::Changed => restart.changed(path),
            ContentChange::Restored => info!("the configuration file {} is again as it was read", path.display()),
        };
        Self::start_with(loaded, small_file::read, report)
    }

    fn start_with(
        loaded: &LoadedConfig,
        read: impl Fn(&Path) -> io::Result<Vec<u8>> + Send + 'static,
        report: impl Fn(&Path, ContentChange) + Send + 'static,
    ) -> notify::Result<ConfigWatch> {
        let path = std::path::absolute(&loaded.file).unwrap_or_else(|_| PathBuf::from(&loaded.file));
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        let mut reported = ReportedConfig { read: loaded.digest, last: loaded.digest };
        let (sender, changes) = channel();
        // The file may have changed between its first reading and the watch.
        let _ = sender.send(());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.is_ok_and(|event| !may_change(event.kind)) {
                return;
            }
            let _ = sender.send(());
        })?;
        // kubelet swaps links in a ConfigMap, and editors replace the file.
        watcher.watch(&directory, RecursiveMode::NonRecursive)?;
        std::thread::Builder::new().name("config-watch".to_owned()).spawn(move || {
            while wait_for_changes(&changes) {
                // The file may be missing for a moment while it is replaced.
                let bytes = read(&path).ok();
                if let Some(news) = bytes.and_then(|bytes| reported.change(Sha256::digest(bytes).into())) {
                    report(&path, news);
                }
            }
        })?;
        Ok(ConfigWatch { _watcher: watcher })
    }
}

/// What a change of the configuration file leads to.
#[derive(Clone)]
pub struct RestartOnChange(Arc<RestartState>);

struct RestartState {
    is_wanted: bool,
    check: Mutex<Box<dyn Fn() -> anyhow::Result<()> + Send>>,
    ends: AtomicBool,
}

impl RestartOnChange {
    /// `check` fails if the settings are wrong now.
    pub fn new(is_wanted: bool, check: impl Fn() -> anyhow::Result<()> + Send + 'static) -> RestartOnChange {
        let (check, ends) = (Mutex::new(Box::new(check) as Box<_>), AtomicBool::new(false));
        RestartOnChange(Arc::new(RestartState { is_wanted, check, ends }))
    }

    fn changed(&self, path: &Path) {
        let path = path.display();
        if !self.0.is_wanted {
            warn!("the configuration file {path} has changed; this takes effect with a restart");
            return;
        }
        let check = self.0.check.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = check() {
            warn!("the configuration file {path} has changed, and is wrong: {error:#}; continuing as before");
            return;
        }
        info!("the configuration file {path} has changed");
        self.0.ends.store(true, Ordering::SeqCst);
        // Ends as by a supervisor's signal, with a sync in progress finished.
        if let Err(error) = kill(Pid::this(), Signal::SIGTERM) {
            warn!(%error, "cannot end; a change of the configuration file takes effect with a restart");
        }
    }

    /// Fails if the proxy has ended for a change, so that any supervisor starts it again; so does kube-proxy.
    pub fn outcome(&self) -> anyhow::Result<()> {
        let ends = self.0.ends.load(Ordering::SeqCst);
        anyhow::ensure!(!ends, "the configuration file has changed: ended, to be started again with it");
        Ok(())
    }
}

/// Returns false for opening and reading: the watch itself does both.
fn may_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

/// Returns false when the watcher has ended.
fn wait_for_changes(changes: &Receiver<()>) -> bool {
    if changes.recv().is_err() {
        return false;
    }
    std::thread::sleep(GATHER);
    changes.try_iter().for_each(drop);
    true
}

#[derive(Debug)]
struct ReportedConfig {
    read: [u8; 32],
    last: [u8; 32],
}

#[derive(Debug, PartialEq, Eq)]
enum ContentChange {
    Changed,
    Restored,
}

impl ReportedConfig {
    fn change(&mut self, now: [u8; 32]) -> Option<ContentChange> {
        if now == std::mem::replace(&mut self.last, now) {
            return None;
        }
        Some(if now == self.read { ContentChange::Restored } else { ContentChange::Changed })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const TEXT: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    const PATIENCE: Duration = Duration::from_secs(30);

    fn watched(path: &Path) -> (ConfigWatch, Receiver<ContentChange>, Arc<AtomicUsize>) {
        let loaded = crate::kubeproxy_config::read(path).unwrap();
        let ((sender, reported), reads) = (channel(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&reads);
        let read = move |path: &Path| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::fs::read(path)
        };
        let watch = ConfigWatch::start_with(&loaded, read, move |_, news| sender.send(news).unwrap()).unwrap();
        (watch, reported, reads)
    }

    #[test]
    fn a_replaced_file_is_reported() {
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
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(ContentChange::Changed));
        replace(TEXT);
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(ContentChange::Restored));
        std::fs::write(&path, "mode: userspace\n").unwrap();
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(ContentChange::Changed));
        assert!(reported.try_recv().is_err(), "each once");
    }

    #[test]
    fn a_swapped_config_map_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let below = |name: &str| directory.path().join(name);
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
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(ContentChange::Changed));
    }

    #[test]
    fn only_changes_cause_reads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, TEXT).unwrap();
        let (_watch, reported, reads) = watched(&path);
        for _ in 0..500 {
            std::fs::read(&path).unwrap();
        }
        std::fs::write(&path, "mode: ipvs\n").unwrap();
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(ContentChange::Changed));
        // One at the start. Truncate, write and close are three events, which one read handles if this machine is not busy.
        let after_a_change = reads.load(Ordering::SeqCst);
        assert!((1..=4).contains(&after_a_change), "{after_a_change} reads for one change");
        let opened = reads_raise(&path);
        assert!(!opened.is_empty() && !opened.into_iter().any(may_change));
    }

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
    fn each_change_is_reported_once() {
        let mut reported = ReportedConfig { read: [1; 32], last: [1; 32] };
        assert_eq!(reported.change([1; 32]), None);
        assert_eq!(reported.change([2; 32]), Some(ContentChange::Changed));
        assert_eq!(reported.change([2; 32]), None);
        assert_eq!(reported.change([3; 32]), Some(ContentChange::Changed));
        assert_eq!(reported.change([1; 32]), Some(ContentChange::Restored));
    }
}
